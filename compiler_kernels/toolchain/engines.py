"""From the generated files of an engine to the engine: the C compiler and, for a GPU target, nvcc before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.targets.cuda.gpu import BY_NAME
from compiler_kernels.targets.registry import Target
from compiler_kernels.toolchain.driver import BuildKind, BuildOutput, Driver
from compiler_kernels.toolchain.nvcc import compile_cuda
from compiler_kernels.toolchain.sources import cuda_sources, host_sources, library_sources, runtime_sources
from compiler_kernels.toolchain.triton import TRITON_FILE, compile_triton
from compiler_kernels.toolchain.zig import ZigDriver

CUDA_FILE = "kernels.cu"
"""What the generated files of a GPU engine have beside those of every engine."""
DEVICE_FILES = (CUDA_FILE, TRITON_FILE)
"""Files that compilers of GPU code read; the second is there where the policy asks for it."""


def build_engine(
    generated: Mapping[str, bytes], target: Target, kind: BuildKind = "bin", driver: Driver | None = None
) -> BuildOutput:
    """Compile the ``generated`` files with the runtime. Raises what ``Driver.build`` and ``compile_cuda`` raise."""
    chosen = driver or ZigDriver()
    gpu = bool(target.gpu)
    runtime = host_sources(gpu) if kind == "bin" else library_sources(gpu)
    if not gpu:
        return chosen.build({**runtime, **generated}, target, kind)
    host = {name: data for name, data in generated.items() if name not in DEVICE_FILES}
    device = {**runtime_sources(), **cuda_sources(), CUDA_FILE: generated[CUDA_FILE]}
    chip = BY_NAME[target.gpu]
    second = compile_triton(generated[TRITON_FILE], chip) if TRITON_FILE in generated else None
    images, report = compile_cuda(device, chip, more=second.text if second else "")
    if second:
        report["triton"] = second.facts
        read = report["files"]
        assert isinstance(read, dict)
        read[TRITON_FILE] = {"sha3_512": sha3_512_hex(generated[TRITON_FILE])}
    built = chosen.build({**runtime, **host, **images}, target, kind)
    built.report["cuda"] = report
    return replace(built, images=images)
