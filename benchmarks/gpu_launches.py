"""How long each launch of a GPU engine takes: writes one CUDA program per network of the zoo.

    python -m benchmarks.gpu_launches DIR [NET...]        # needs no GPU; nets are exported with torch
    cd DIR && make && ./vit_tiny                          # where nvcc and the GPU are

A program prints the time of the whole network as one CUDA graph, and of every distinct launch among 16 of its kind. It
is for finding what is slow; bits are compared elsewhere (``make gpu-evidence``). Weights and inputs are random numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.zoo import ZOO, onnx_bytes
from compiler_kernels.compile import freeze_model
from compiler_kernels.ir.weights import pack
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.c.writer import c_string
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.program import block_of
from compiler_kernels.targets.cuda.schedule import arranged
from compiler_kernels.targets.cuda.taps import with_taps
from compiler_kernels.targets.cuda.unit import unit_text
from compiler_kernels.toolchain.nvcc import FLAGS
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources

MAIN = Path(__file__).with_name("gpu_launches_main.cu")


def program(net: str) -> str:
    """The text of NET.cu."""
    frozen = freeze_model(onnx_bytes(ZOO[net]))
    lowered = lower_to_l2(frozen.module, frozen.store)
    lowered = with_taps(lowered, frozen.store, frozen.module.main, frozen.store, SM_90)
    arrangement = arranged(lowered, SM_90, net)
    module, launches = arrangement.module, arrangement.launches
    weights = len(pack(module.main, frozen.store))
    block = block_of(module, launches, weights)
    offsets: list[int] = []
    rows = []
    for launch in launches:
        kernel, first = launch.kernel, len(offsets)
        offsets += block.pointers(launch)
        fields = [
            c_string(kernel.name), c_string(launch.node), f"(void *){kernel.name}",
            f"dim3({', '.join(map(str, kernel.grid))})", kernel.block, kernel.shared_bytes, kernel.cluster,
            int(kernel.dependent), len(offsets) - first, f"offsets + {first}",
        ]  # fmt: skip
        rows.append(f"    {{{', '.join(map(str, fields))}}},")
    return "\n".join(
        [
            unit_text([launch.kernel for launch in launches]),
            '#include "gpu_launches_main.cu"',
            f"static const unsigned long offsets[] = {{{', '.join(f'{o}ul' for o in offsets)}}};",
            "static const Launch launches[] = {",
            *rows,
            "};",
            f'int main() {{ return times("{net}", launches, {len(rows)}, {block.tickets}ul, {block.total}ul); }}',
            "",
        ]
    )


def write(folder: Path, nets: Sequence[str]) -> None:
    """The programs, what they include, and a Makefile."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**runtime_sources(), **cuda_sources(), MAIN.name: MAIN.read_bytes()}.items():
        if name.endswith((".h", ".cu")):
            (folder / name).write_bytes(data)
    for net in nets:
        (folder / f"{net}.cu").write_text(program(net), "utf-8")
    rule = f"%: %.cu {MAIN.name}\n\tnvcc {' '.join(FLAGS)} -arch=sm_90 -w -I. -o $@ $<\n"
    (folder / "Makefile").write_text(f"all: {' '.join(nets)}\n{rule}", "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_launches", description="Times of GPU launches.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(ZOO)}; all if not given")
    options = parser.parse_args(arguments)
    unknown = [net for net in options.nets if net not in ZOO]
    if unknown:
        print(f"error: there is no network {unknown[0]!r}: choose from {', '.join(ZOO)}", file=sys.stderr)
        return 2
    write(options.folder, options.nets or list(ZOO))
    return 0


if __name__ == "__main__":
    sys.exit(main())
