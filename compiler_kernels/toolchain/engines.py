"""From the generated files of an engine to the engine: the C compiler and, for a GPU target, nvcc before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler_kernels.targets.cuda.gpu import BY_NAME
from compiler_kernels.targets.registry import Target
from compiler_kernels.toolchain.driver import BuildKind, BuildOutput, Driver
from compiler_kernels.toolchain.nvcc import compile_cuda
from compiler_kernels.toolchain.sources import cuda_sources, host_sources, library_sources, runtime_sources
from compiler_kernels.toolchain.zig import ZigDriver

CUDA_FILE = "kernels.cu"
"""What the generated files of a GPU engine have beside those of every engine."""


def build_engine(
    generated: Mapping[str, bytes], target: Target, kind: BuildKind = "bin", driver: Driver | None = None
) -> BuildOutput:
    """Compile the ``generated`` files with the runtime. Raises what ``Driver.build`` and ``compile_cuda`` raise."""
    chosen = driver or ZigDriver()
    gpu = bool(target.gpu)
    runtime = host_sources(gpu) if kind == "bin" else library_sources(gpu)
    if not gpu:
        return chosen.build({**runtime, **generated}, target, kind)
    host = {name: data for name, data in generated.items() if name != CUDA_FILE}
    device = {**runtime_sources(), **cuda_sources(), CUDA_FILE: generated[CUDA_FILE]}
    images, report = compile_cuda(device, BY_NAME[target.gpu])
    built = chosen.build({**runtime, **host, **images}, target, kind)
    built.report["cuda"] = report
    return replace(built, images=images)
