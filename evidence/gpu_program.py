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
from compiler_kernels.targets.cuda.plan import Launch, Place, named_outputs, outputs_of
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

    ``UnsupportedError`` where an operation has no kernel or may refuse run-time values. The weights become an array of
    bytes, which is fit for small models only.
    """
    arrangement = arranged(module, gpu, prefix, apart=True)
    module, launches = arrangement.module, arrangement.launches
    main, weights = module.main, pack(module.main, store) or bytes(64)
    outputs = outputs_of(main)
    arena = max(64, int(dict(module.meta).get("arena_bytes", "0")))
    workspace = max((launch.kernel.workspace_bytes for launch in launches), default=0)
    tickets = 4 * max((launch.kernel.tickets for launch in launches), default=0)
    first_output = 4 + len(main.inputs)
    sizes = [len(weights), arena, workspace, tickets]
    sizes += [v.type.nbytes for v in main.inputs] + [op.out.nbytes for op in outputs]
    rows, arguments = _launches(launches, first_output)
    shapes, results = _results(named_outputs(main), outputs, first_output)
    text = [
        f"static const unsigned char {prefix}_weights[] = {{{','.join(map(str, weights))}}};",
        f"static const size_t {prefix}_sizes[] = {{{', '.join(map(str, sizes))}}};",
        f"static const Argument {prefix}_arguments[] = {{{', '.join(arguments) or '{0, 0}'}}};",
        f"static const Launch {prefix}_launches[] = {{{', '.join(rows) or '{0}'}}};",
        f"static const long long {prefix}_shapes[] = {{{', '.join(map(str, shapes)) or '0'}}};",
        f"static const Result {prefix}_results[] = {{{', '.join(results) or '{0}'}}};",
        f"static const Engine {prefix}_engine = {{{prefix}_weights, {prefix}_sizes, {len(sizes)}, {prefix}_launches, "
        f"{len(rows)}, {prefix}_arguments, {prefix}_shapes, {prefix}_results, {len(results)}, {len(main.inputs)}}};",
    ]
    return GpuText(prefix, tuple({k.name: k for k in (launch.kernel for launch in launches)}.values()), "\n".join(text))


def _launches(launches: Sequence[Launch], first_output: int) -> tuple[list[str], list[str]]:
    rows: list[str] = []
    arguments: list[str] = []

    def space(place: Place) -> int:
        return {"weights": 0, "arena": 1, "input": 4 + place.index, "output": first_output + place.index}[place.space]

    for launch in launches:
        kernel, first = launch.kernel, len(arguments)
        arguments += [f"{{{space(p)}, {p.offset}}}" for p in launch.arguments]
        arguments += ["{2, 0}"] if kernel.workspace_bytes else []
        arguments += ["{3, 0}"] if kernel.tickets else []
        grid = ", ".join(map(str, kernel.grid))
        rows.append(
            f"{{KERNEL({kernel.name}), {{{grid}}}, {kernel.block}, {kernel.shared_bytes}, {kernel.cluster}, "
            f"{int(kernel.independent)}, {int(kernel.dependent)}, {first}, {len(arguments) - first}}}"
        )
    return rows, arguments


def _results(named: Sequence[Op], outputs: Sequence[Op], first_output: int) -> tuple[list[int], list[str]]:
    """Shapes one after another, and a row for every output of the model."""
    places = {op.str_("output"): first_output + n for n, op in enumerate(outputs)}
    shapes: list[int] = []
    rows = []
    for op in named:
        name, dims = op.str_("output"), op.out.dims
        extents = places.get(extents_name(name), -1)
        dtype = DTYPES[op.out.dtype]
        rows.append(
            f"{{{c_string(name)}, {dtype.onnx}, {dtype.nbytes}, {len(dims)}, {len(shapes)}, {places[name]}, {extents}}}"
        )
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
