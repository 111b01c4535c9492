"""The targets an engine can be compiled for, and whether this machine can run what comes out."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

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
    if triple not in TARGETS:
        raise UnsupportedError(f"there is no target {name!r}: choose one of {', '.join(sorted(TARGETS))}")
    return TARGETS[triple]


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


def runs_natively(target: Target) -> bool:
    """Whether this machine executes the target's engines without an emulator."""
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


def grade(target: Target) -> Grade:
    """The grade of results for this target obtained on this machine; "not executed" is never reported as passed."""
    return "not executed" if runner(target) is None else "executed"
