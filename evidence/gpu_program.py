"""Many small GPU engines in one program, for the emulator or for a device: what the node tests on a GPU target share.

The kernels are those of an engine, joined launches and arena included; the host program around them is not. Every
buffer is memory of its own between guard pages (on a device an allocation of its own, so that compute-sanitizer sees
its end), is full of ones before the engine runs, and every engine runs several times: emulated with another order of
threads each time.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compiler_kernels.errors import CuvilError
from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.extents import extents_name
from compiler_kernels.ir.graph import Module, Op
from compiler_kernels.ir.weights import WeightStore, pack
from compiler_kernels.targets.c.writer import c_string
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.cuda.plan import Launch, Place, named_outputs, outputs_of, places_of
from compiler_kernels.targets.cuda.refusals import refusing
from compiler_kernels.targets.cuda.schedule import arranged
from compiler_kernels.targets.cuda.unit import unit_text
from compiler_kernels.toolchain.emulator import compile_emulated_program
from compiler_kernels.toolchain.nvcc import FLAGS, require_nvcc
from compiler_kernels.toolchain.sources import cuda_sources, runtime_sources

RUNS: Final = 3
"""Inferences of every engine; all must give the same bits."""
MAIN: Final = Path(__file__).with_name("data") / "gpu_program_main.h"


@dataclass(frozen=True)
class GpuText:
    """The kernels of one engine and C++ text of its tables; names at file scope start with ``prefix``."""

    prefix: str
    kernels: tuple[CudaKernel, ...]
    tables: str


def gpu_engine_text(module: Module, store: WeightStore, prefix: str, gpu: Gpu) -> GpuText:
    """Generate the L2 ``module``, which has no open sizes, for ``gpu``.

    ``UnsupportedError`` where an operation has no kernel. The weights become an array of bytes, which is fit for small
    models only.
    """
    arrangement = arranged(module, gpu, prefix)
    module, launches = arrangement.module, arrangement.launches
    main, weights = module.main, pack(module.main, store) or bytes(64)
    outputs, spaces = outputs_of(main), _Spaces(len(main.inputs))
    arena = max(64, int(dict(module.meta).get("arena_bytes", "0")))
    workspace = max((launch.kernel.workspace_bytes for launch in launches), default=0)
    tickets = 4 * max((launch.kernel.tickets for launch in launches), default=0)
    sentences = [s for launch in refusing(launches) for s in launch.kernel.refusals]
    sizes = [len(weights), arena, workspace, tickets, 4 * len(refusing(launches))]
    sizes += [v.type.nbytes for v in main.inputs] + [op.out.nbytes for op in outputs]
    places = [spaces.at(place) for group in places_of(main) for place in group]
    rows, arguments = _launches(launches, spaces)
    shapes, results = _results(named_outputs(main), outputs)
    firsts = [
        sum(len(other.kernel.refusals) for other in refusing(launches)[:n]) for n in range(len(refusing(launches)))
    ]
    tables = {
        "const unsigned char": ("weights", map(str, weights)),
        "const size_t": ("sizes", map(str, sizes)),
        "const Argument": ("arguments", arguments),
        "const Launch": ("launches", rows),
        "const long long": ("shapes", map(str, shapes)),
        "const Result": ("results", results),
        "const char *const": ("sentences", sentences),
        "const int": ("firsts", map(str, firsts)),
        "Argument": ("places", places),
    }
    text = [
        f"static {kind} {prefix}_{name}[] = {{{', '.join(rows) or '{}'}}};" for kind, (name, rows) in tables.items()
    ]
    text.append(
        f"static const Engine {prefix}_engine = {{{', '.join(f'{prefix}_{name}' for name, _ in tables.values())}, "
        f"{len(sizes)}, {len(rows)}, {len(results)}, {len(main.inputs)}, {len(firsts)}}};"
    )
    return GpuText(prefix, tuple({k.name: k for k in (launch.kernel for launch in launches)}.values()), "\n".join(text))


@dataclass(frozen=True)
class _Spaces:
    """Numbers of the buffers: weights, arena, workspace, tickets, refusals, inputs, outputs."""

    inputs: int

    def at(self, place: Place) -> str:
        first = {"weights": 0, "arena": 1, "input": 5, "output": 5 + self.inputs}[place.space]
        return f"{{{first + place.index}, {place.offset}}}"


def _launches(launches: Sequence[Launch], spaces: _Spaces) -> tuple[list[str], list[str]]:
    rows: list[str] = []
    arguments: list[str] = []
    for launch in launches:
        kernel, first = launch.kernel, len(arguments)
        arguments += [spaces.at(p) for p in launch.arguments]
        if kernel.workspace_bytes:
            arguments.append("{2, 0}" if launch.workspace is None else spaces.at(launch.workspace))
        arguments += ["{3, 0}"] if kernel.tickets else []
        arguments += [f"{{4, {4 * launch.refusal}}}"] if kernel.refusals else []
        grid = ", ".join(map(str, kernel.grid))
        rows.append(
            f"{{KERNEL({kernel.name}), {{{grid}}}, {kernel.block}, {kernel.shared_bytes}, {kernel.cluster}, "
            f"{int(kernel.independent)}, {int(kernel.dependent)}, {first}, {len(arguments) - first}}}"
        )
    return rows, arguments


def _results(named: Sequence[Op], outputs: Sequence[Op]) -> tuple[list[int], list[str]]:
    """Shapes one after another, and a row for every output of the model."""
    numbers = {op.str_("output"): n for n, op in enumerate(outputs)}
    shapes: list[int] = []
    rows = []
    for op in named:
        name, dims = op.str_("output"), op.out.dims
        extents = numbers.get(extents_name(name), -1)
        dtype = DTYPES[op.out.dtype]
        place = f"{len(shapes)}, {numbers[name]}, {extents}"
        rows.append(f"{{{c_string(name)}, {dtype.onnx}, {dtype.nbytes}, {len(dims)}, {place}}}")
        shapes += dims
    return shapes, rows


def program_text(engines: Sequence[GpuText]) -> str:
    """One C++ (or CUDA C++) file of all engines; its main reads and writes what evidence/conformance/build.py says."""
    kernels = [k for e in engines for k in e.kernels]
    table = ", ".join(f"&{e.prefix}_engine" for e in engines)
    return "\n".join(
        [
            unit_text(kernels),
            f"enum {{ RUNS = {RUNS} }};",
            MAIN.read_text("utf-8").partition("/* engines */")[0],
            *(e.tables for e in engines),
            f"static const Engine *const engines[] = {{{table}}};",
            f"enum {{ engine_count = {len(engines)} }};",
            MAIN.read_text("utf-8").partition("/* engines */")[2],
        ]
    )


def compile_program(engines: Sequence[GpuText], gpu: Gpu, directory: Path, emulated: bool) -> Path:
    """The program in ``directory``, which exists. ``CuvilError`` where the compiler refuses the text."""
    text = program_text(engines)
    if emulated:
        return compile_emulated_program(text, directory)
    for name, data in {**runtime_sources(), **cuda_sources()}.items():
        if name.endswith(".h"):
            (directory / name).write_bytes(data)
    (directory / "program.cu").write_text(text, "utf-8")
    words = [str(require_nvcc()), *FLAGS, f"-arch={gpu.name}", "program.cu", "-o", "program"]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False, env=dict(os.environ))
    if done.returncode:
        raise CuvilError(next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:]))
    return directory / "program"
