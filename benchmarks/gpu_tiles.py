"""Tiles of the GPU convolutions, measured: writes a sweep, and makes the table of what it found.

    python -m benchmarks.gpu_tiles write DIR [NET[@BATCH]...] [--most 12]    # needs no GPU
    sh DIR/run.sh > DIR/results.txt                                          # where nvcc, gcc and the GPU are
    python -m benchmarks.gpu_tiles table DIR/results.txt                     # into the package

Every tile of a shape runs on the same random memory; its result is compared bit for bit with that of the CPU target's
AVX2 kernel. A time is that of one launch among 16 in a CUDA graph, each dependent on the one before, with weights that
take turns where they are large, so that they come from memory as in a whole network.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from benchmarks.zoo import ZOO, onnx_bytes
from compiler_kernels.compile import freeze_model
from compiler_kernels.ir.graph import Graph, Module, TensorType
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.c.program import emit_for
from compiler_kernels.targets.cuda.families import conv_tiles, winograd_tiles
from compiler_kernels.targets.cuda.families.tiles_table import key_of, table_file
from compiler_kernels.targets.cuda.gpu import SM_90
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.cuda.taps import may_take_taps, reading_taps
from compiler_kernels.targets.cuda.unit import unit_text
from compiler_kernels.targets.isa import AVX2
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources

NETS: Final = ("resnet18", "resnet18@32", "unet2m", "densenet121", "mobilenetv2", "ecg")
FLAGS: Final = "-std=c++17 -O3 -arch=sm_90 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -I. -w"
UNITS: Final = 48
"""Files the kernels are divided among, to compile side by side."""

stem_family = import_module("compiler_kernels.targets.cuda.families.stem")
FAMILIES: Final[dict[str, Any]] = {
    "direct": import_module("compiler_kernels.targets.cuda.families.conv").conv,
    "winograd": import_module("compiler_kernels.targets.cuda.families.winograd").winograd,
    "stem": stem_family.stem,
}


@dataclass(frozen=True)
class Case:
    """One shape: its row in the table, the function that stands for it, and the kernels by tile.

    ``taps``: of kernels that transform taps, groups of 16 outputs x 8 channels, ``units`` of each 16 outputs.
    """

    key: str
    net: str
    function: Graph
    kernels: dict[tuple[int, ...], CudaKernel]
    taps: int = 0
    units: int = 1


def lowered(net: str) -> Module:
    """The L2 module of a network of the zoo, ``NAME`` or ``NAME@BATCH``."""
    name, _, batch = net.partition("@")
    found = ZOO[name]
    data = onnx_bytes(replace(found, shape=(int(batch or 1), *found.shape[1:])))
    frozen = freeze_model(data)
    return lower_to_l2(frozen.module, frozen.store)


def candidates(family: str, shape: Any) -> list[Any]:
    """Tiles of a family that fit, cheapest by estimate first."""
    if family == "stem":
        found = stem_family.candidates(shape, SM_90)
        return sorted(found, key=lambda t: float(stem_family.cost(t, shape, SM_90)))
    tiles: Any = conv_tiles if family == "direct" else winograd_tiles
    fitting = [t for t in tiles.candidates(shape) if t.fits(shape, SM_90)]
    return sorted(fitting, key=lambda t: float(t.cost(shape, SM_90)))


def cases(nets: Sequence[str], most: int, only: Sequence[str] = ()) -> Iterator[Case]:
    """Every shape of the nets once, of the families ``only`` if given; kernels that transform taps are ``taps``."""
    seen: set[str] = set()
    for net in nets:
        for function in lowered(net).graphs[1:]:
            for family, emit in FAMILIES.items():
                shapes: list[Any] = []
                if emit(function, SM_90, "k", choose=recorder(shapes)) is not None or len(set(shapes)) != 1:
                    continue
                variants = [(family, function, shapes[0], 0, 1)]
                if family == "winograd" and may_take_taps(function):
                    shape = replace(shapes[0], taps=True)
                    variants.append(
                        (shape.family, reading_taps(function), shape, shape.blocks * shape.units, shape.units)
                    )
                for name, read, shape, taps, units in variants:
                    key = key_of(name, shape.key)
                    if key in seen or (only and name not in only):
                        continue
                    seen.add(key)
                    kernels = {}
                    for n, tile in enumerate(spread(candidates(family, shape), most)):
                        kernel = emit(read, SM_90, f"k{len(seen)}_{n}", choose=lambda *_, tile=tile: tile)
                        if kernel is not None:
                            kernels[astuple(tile)] = kernel
                    yield Case(key, net, function, kernels, taps, units)


def recorder(into: list[Any]) -> Callable[[Any, Any], None]:
    """A chooser that notes the shape and takes no tile."""

    def note(shape: Any, gpu: Any) -> None:
        into.append(shape)

    return note


def spread(found: list[Any], most: int) -> list[Any]:
    """The best by estimate, and the best of every split and number of leaves."""
    chosen = found[: most * 2 // 3]
    kinds = {}
    for tile in found:
        kinds.setdefault(
            (
                tile.split,
                tile.leaves,
                getattr(tile, "outputs", 1),
                getattr(tile, "quads", 1),
                getattr(tile, "buffers", 1),
            ),
            tile,
        )
    return [*chosen, *[t for t in kinds.values() if t not in chosen][: most - len(chosen)]]


def size_of(ttype: TensorType) -> int:
    """Bytes in memory, a multiple of 64."""
    return -(-4 * max(1, ttype.physical.elements) // 64) * 64


def write(folder: Path, nets: Sequence[str], most: int, only: Sequence[str] = ()) -> int:
    """Write the sweep into ``folder``; the number of kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**runtime_sources(), **cuda_sources()}.items():
        if name.endswith(".h"):
            (folder / name).write_bytes(data)
    found = list(cases(nets, most, only))
    every = [(n, tile, kernel) for n, case in enumerate(found) for tile, kernel in case.kernels.items()]
    for unit in range(UNITS):
        mine = every[unit::UNITS]
        lines = [unit_text([k for _, _, k in mine]), '#include "gpu_tiles.h"']
        lines.append(f"extern const Kernel unit{unit}[] = {{")
        for n, tile, k in mine:
            entry = f'{n}, "{list(tile)}", (const void *){k.name}, {k.grid[0]}, {k.block}, {k.shared_bytes}'
            lines.append(f"    {{{entry}, {k.workspace_bytes}, {k.tickets}, {int(k.dependent)}}},")
        lines.append("    {-1}};")
        (folder / f"unit{unit}.cu").write_text("\n".join(lines) + "\n")
    reference = ["#define CA1_VL 1", '#include "ca1_math.h"', "#undef CA1_VL", "#define CA1_VL 8"]
    reference += [f'#include "{n}"' for n in ("ca1_math.h", "ca1_sum.h", "ca1_tile.h", "ca1_winograd.h")]
    table = ["extern const Case cases[] = {"]
    for n, case in enumerate(found):
        kernel = emit_for(case.function, AVX2, f"r{n}")
        arguments = [f"p[{i}]" for i in range(kernel.params)] + [f"(float *)p[{kernel.params}]"]
        arguments += ["scratch"] if kernel.scratch_floats else []
        reference += [kernel.text, f"void ref{n}(const float **p, float *scratch, int begin, int end)"]
        reference.append(f"{{ (void)scratch; r{n}({', '.join(arguments)}, begin, end); }}")
        sizes = [size_of(v.type) for v in case.function.inputs] + [size_of(case.function.ops[-1].out)]
        text = ", ".join(map(str, sizes))
        table.append(
            f'    {{"{case.key}", "{case.net} {case.function.name}", {len(sizes)}, {{{text}}}, ref{n}, '
            f"{kernel.items}, {kernel.scratch_floats}, {case.taps}, {case.units}}},"
        )
    table += ["    {nullptr}};", f"extern const int units = {UNITS};"]
    (folder / "reference.c").write_text("\n".join(reference) + "\n")
    head = [f'extern "C" void ref{n}(const float **, float *, int, int);' for n in range(len(found))]
    head += [f"extern const Kernel unit{u}[];" for u in range(UNITS)]
    units = ", ".join(f"unit{u}" for u in range(UNITS))
    text = "\n".join(['#include "gpu_tiles.h"', *head, *table, f"extern const Kernel *const tables[] = {{{units}}};"])
    (folder / "table.cu").write_text(text + "\n")
    own = Path(__file__).parent
    for name in ("gpu_tiles.h", "gpu_tiles_main.cu"):
        (folder / name).write_bytes((own / name).read_bytes())
    (folder / "run.sh").write_text(
        'set -e\ncd "$(dirname "$0")"\n'
        "gcc -std=gnu11 -O2 -march=x86-64-v3 -ffp-contract=off -fno-math-errno -w -c reference.c &\n"
        f"ls unit*.cu table.cu gpu_tiles_main.cu | xargs -P 16 -I{{}} nvcc {FLAGS} -c {{}} -o {{}}.o\n"
        "wait\nnvcc -arch=sm_90 *.cu.o reference.o -o sweep -lpthread\n./sweep\n"
    )
    return len(every)


def table(results: Sequence[str]) -> dict[str, list[int]]:
    """The fastest tile of every shape. ``ValueError`` when a kernel differed from the CPU in a bit."""
    best: dict[str, tuple[float, list[int]]] = {}
    for line in results:
        if not line.startswith("RESULT\t"):
            continue
        _, key, tile, time, bits = line.split("\t")
        if int(bits):
            raise ValueError(f"{key}, tile {tile}: {bits} values differ from the CPU's")
        if key not in best or float(time) < best[key][0]:
            best[key] = float(time), json.loads(tile)
    return {key: tile for key, (_, tile) in sorted(best.items())}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_tiles", description="Tiles of GPU convolutions.")
    commands = parser.add_subparsers(dest="command", required=True)
    writer = commands.add_parser("write", help="write the sweep")
    writer.add_argument("folder", type=Path)
    writer.add_argument("nets", nargs="*", metavar="NET", help=f"default: {', '.join(NETS)}")
    writer.add_argument("--only", nargs="+", default=(), choices=(*FAMILIES, "taps"), help="families (default: all)")
    writer.add_argument("--most", type=int, default=12, help="tiles of a shape (default: %(default)s)")
    reader = commands.add_parser("table", help="make the package's table of the results")
    reader.add_argument("results", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "write":
        for net in options.nets:
            if net.partition("@")[0] not in ZOO:
                print(f"error: there is no network {net!r}: choose from {', '.join(ZOO)}", file=sys.stderr)
                return 2
        print(f"{write(options.folder, options.nets or NETS, options.most, options.only)} kernels in {options.folder}")
        return 0
    try:
        rows = table(options.results.read_text().splitlines())
    except (OSError, ValueError) as error:
        print(f"error: {options.results}: {error}", file=sys.stderr)
        return 1 if isinstance(error, ValueError) else 2
    known = json.loads(table_file(SM_90).read_text()) if table_file(SM_90).is_file() else {}
    merged = dict(sorted({**known, **rows}.items()))
    text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in merged.items())
    table_file(SM_90).write_text("{\n" + text + "\n}\n")
    print(f"{len(rows)} rows, {len(merged)} in {table_file(SM_90).name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
