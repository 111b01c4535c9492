"""The C runtime that is linked with a generated engine, and which processor each of its files is compiled for."""

from __future__ import annotations

from pathlib import Path

RUNTIME_DIRECTORY = Path(__file__).resolve().parent.parent / "runtime"

# Compiled for the oldest processor of the target: these must run before the processor has been checked.
BASELINE_UNITS = (
    "cuvil_answer.c",
    "cuvil_bench.c",
    "cuvil_cover.c",
    "cuvil_cpu.c",
    "cuvil_erase.c",
    "cuvil_exit.c",
    "cuvil_guard.c",
    "cuvil_inference.c",
    "cuvil_info.c",
    "cuvil_input.c",
    "cuvil_lockstep.c",
    "cuvil_main.c",
    "cuvil_npy.c",
    "cuvil_output.c",
    "cuvil_session.c",
    "cuvil_sha3.c",
    "cuvil_text.c",
    "cuvil_threads.c",
    "cuvil_types.c",
    "cuvil_vectors.c",
)
# Compiled like the generated code: one tests its floating-point unit, one needs its vectors.
ENGINE_CPU_UNITS = ("cuvil_digest.c", "cuvil_isa.c")
# Also part of an engine that is a library.
LIBRARY_UNITS = ("cuvil_erase.c", "cuvil_lockstep.c")
RUNTIME_UNITS = BASELINE_UNITS + ENGINE_CPU_UNITS
# The host side of an engine that computes on a GPU (runtime/cuda).
GPU_UNITS = ("cuvil_gpu.c",)
# The linker leaves them out where the policy has no audit.sessions.
SESSION_UNITS = ("cuvil_digest.c", "cuvil_session.c")


def library_sources(gpu: bool = False) -> dict[str, bytes]:
    """What an engine that is a library needs of the runtime: the headers, ``LIBRARY_UNITS`` and, with ``gpu``, the host
    library of the GPU."""
    wanted = (*LIBRARY_UNITS, *GPU_UNITS)
    return {n: data for n, data in host_sources(gpu).items() if n.endswith(".h") or n in wanted}


def host_sources(gpu: bool = False) -> dict[str, bytes]:
    """Every file of the runtime that the C compiler reads for an engine: with ``gpu``, one that computes on a GPU."""
    extra = {n: data for n, data in cuda_sources().items() if n.startswith("cuvil_gpu")} if gpu else {}
    return {**runtime_sources(), **extra}


def runtime_sources() -> dict[str, bytes]:
    """Every file of the runtime by name: C units, and the headers generated code includes."""
    names = sorted(p.name for p in RUNTIME_DIRECTORY.iterdir() if p.suffix in {".c", ".h"})
    return {name: (RUNTIME_DIRECTORY / name).read_bytes() for name in names}


def cuda_sources() -> dict[str, bytes]:
    """What GPU kernels are compiled with, on nvcc's side and the emulator's, and the host library, by name."""
    return {p.name: p.read_bytes() for p in sorted((RUNTIME_DIRECTORY / "cuda").iterdir()) if p.is_file()}
