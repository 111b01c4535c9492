"""The targets an engine can be compiled for, and whether this machine can run what comes out."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from compiler_kernels.errors import UnsupportedError

Grade = Literal["executed", "not executed"]


@dataclass(frozen=True)
class Target:
    """One target triple with the names each tool has for it.

    ``cpu`` is the instruction-set level of the generated code, ``baseline`` that of the runtime and libc, which must be
    able to say on an older processor that the generated code cannot run there.
    """

    triple: str
    machine: str
    cpu: str
    baseline: str
    zig_triple: str
    zig_cpu: str
    zig_baseline: str
    gcc_arch: str
    gcc_baseline: str
    gcc_name: str
    elf_machine: int
    qemu_programs: tuple[str, ...]
    qemu_cpu: str
    note: str = ""
    gpu: str = ""
    """The chip that computes, such as ``sm_90``; empty where the processor does. The rest describes the host then."""


X86_64_LINUX_MUSL = Target(
    triple="x86_64-linux-musl",
    machine="x86_64",
    cpu="x86-64-v3",
    baseline="x86-64",
    zig_triple="x86_64-linux-musl",
    zig_cpu="x86_64_v3",
    zig_baseline="x86_64",
    gcc_arch="x86-64-v3",
    gcc_baseline="x86-64",
    gcc_name="x86_64-linux-gnu-gcc",
    elf_machine=62,
    qemu_programs=("qemu-x86_64-static", "qemu-x86_64"),
    qemu_cpu="max",
)

# cortex-a53 is plain ARMv8.0-A: an instruction from a later extension would stop the emulated engine.
AARCH64_LINUX_MUSL = Target(
    triple="aarch64-linux-musl",
    machine="aarch64",
    cpu="armv8-a",
    baseline="armv8-a",
    zig_triple="aarch64-linux-musl",
    zig_cpu="generic",
    zig_baseline="generic",
    gcc_arch="armv8-a",
    gcc_baseline="armv8-a",
    gcc_name="aarch64-linux-gnu-gcc",
    elf_machine=183,
    qemu_programs=("qemu-aarch64-static", "qemu-aarch64"),
    qemu_cpu="cortex-a53",
)

TARGETS: dict[str, Target] = {t.triple: t for t in (X86_64_LINUX_MUSL, AARCH64_LINUX_MUSL)}
"""Targets on which the processor computes."""

# The driver's library is the GNU system's, so a static musl program cannot load it; 2.28 is that of the oldest systems
# CUDA 13 supports.
_GPU_HOST: Final = replace(
    X86_64_LINUX_MUSL, zig_triple="x86_64-linux-gnu.2.28", qemu_programs=(), note="host program for glibc 2.28 or later"
)
GPU_TARGETS: dict[str, Target] = {
    t.triple: t for t in (replace(_GPU_HOST, triple=f"cuda-{chip}", gpu=chip) for chip in ("sm_90", "sm_80"))
}
"""Targets on which an NVIDIA GPU computes (docs/gpu.md)."""
ALL_TARGETS: dict[str, Target] = {**TARGETS, **GPU_TARGETS}

# Older documents name a triple that does not exist (gnueabihf is the 32-bit ARM ABI).
ALIASES: dict[str, tuple[str, str]] = {
    "aarch64-linux-gnueabihf": (
        "aarch64-linux-musl",
        "aarch64-linux-gnueabihf is read as aarch64-linux-musl: gnueabihf names the 32-bit ARM ABI",
    ),
}


def alias_note(name: str) -> str:
    """The sentence to show when ``name`` is an alias of another target, else the empty string."""
    return ALIASES[name][1] if name in ALIASES else ""


def resolve_target(name: str) -> Target:
    """The target called ``name`` (a triple or an alias, see ``alias_note``).

    Raises ``UnsupportedError`` naming the targets that exist.
    """
    triple = ALIASES[name][0] if name in ALIASES else name
    if triple not in ALL_TARGETS:
        raise UnsupportedError(f"there is no target {name!r}: choose one of {', '.join(sorted(ALL_TARGETS))}")
    return ALL_TARGETS[triple]


@lru_cache(maxsize=1)
def _cpu_flags() -> frozenset[str]:
    """Processor features Linux reports for this x86-64 machine (empty where it reports none)."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


@lru_cache(maxsize=1)
def gpus_here() -> tuple[tuple[str, str], ...]:
    """Name and compute capability of every NVIDIA GPU the driver of this machine reports; empty without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    words = [program, "--query-gpu=compute_cap,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = (line.partition(",") for line in done.stdout.splitlines() if "," in line)
    return tuple((name.strip(), capability.strip()) for capability, _, name in rows)


def gpu_for(target: Target) -> str:
    """The name of the first GPU here that runs the target's engines; empty without one, and for CPU targets."""
    wanted = target.gpu.removeprefix("sm_")
    for name, capability in gpus_here() if wanted else ():
        major, _, minor = capability.partition(".")
        exact = target.gpu == "sm_90"  # later chips run the PTX of sm_80 engines, and no code of sm_90 ones
        if major.isdigit() and minor.isdigit() and int(major + minor) >= int(wanted) and (not exact or major == "9"):
            return name
    return ""


def runs_natively(target: Target) -> bool:
    """Whether this machine executes the target's engines without an emulator: of GPU targets, on its GPU."""
    return host_runs(target) and (not target.gpu or bool(gpu_for(target)))


def host_runs(target: Target) -> bool:
    """Whether this machine's processor runs the target's programs, whether or not the GPU they need is here."""
    if platform.system() != "Linux" or platform.machine() != target.machine:
        return False
    return target.machine != "x86_64" or {"fma", "avx2", "bmi2", "movbe", "f16c"} <= _cpu_flags()


def runner(target: Target) -> tuple[str, ...] | None:
    """Words to put before an engine's path to run it here: ``()`` natively, an emulator on PATH, else ``None``."""
    if runs_natively(target):
        return ()
    for program in target.qemu_programs:
        path = shutil.which(program)
        if path is not None:
            return (path, "-cpu", target.qemu_cpu)
    return None


def host_runner(target: Target) -> tuple[str, ...] | None:
    """:func:`runner` for what an engine does without its GPU: ``--version``, ``--self-test``, ``--decide``."""
    return () if target.gpu and host_runs(target) else runner(target)


def why_not_here(target: Target) -> str:
    """What to do where :func:`runner` is ``None``."""
    if target.gpu:
        return f"there is no NVIDIA GPU for {target.triple} here; run the engine where nvidia-smi lists one"
    return f"install {' or '.join(target.qemu_programs)}"


def grade(target: Target) -> Grade:
    """The grade of results for this target obtained on this machine; "not executed" is never reported as passed."""
    return "not executed" if runner(target) is None else "executed"
