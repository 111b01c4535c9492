"""Instruction sets a target's engine carries kernels for; the engine picks the first one the processor supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Isa:
    """One instruction set. ``lanes`` binary32 lanes per vector (``CA1_VL``); ``registers`` vector registers."""

    name: str
    lanes: int
    registers: int
    zig_cpu: str
    gcc_arch: str

    @property
    def macro(self) -> str:
        """Preprocessor symbol that selects this instruction set's section of ``kernels.c``."""
        return f"CUVIL_ISA_{self.name.upper()}"


AVX512: Final = Isa("avx512", 16, 32, "x86_64_v4", "x86-64-v4")
AVX2: Final = Isa("avx2", 8, 16, "x86_64_v3", "x86-64-v3")
NEON: Final = Isa("neon", 4, 32, "generic", "armv8-a")
SCALAR: Final = Isa("scalar", 1, 16, "", "")
"""Plain C for any processor; built on request, as the yardstick the others are compared with."""

CHECKER: Final = Isa("checker", 1, 16, "", "")
"""The section of a lockstep engine's second run: plain C, like ``SCALAR``, beside any other section."""

BY_NAME: Final = {isa.name: isa for isa in (AVX512, AVX2, NEON, SCALAR)}
VARIANTS: Final[dict[str, tuple[Isa, ...]]] = {"x86_64": (AVX512, AVX2), "aarch64": (NEON,)}
"""Per processor family, best first."""


def sections(kernels: str) -> tuple[Isa, ...]:
    """The instruction sets that ``kernels.c`` has sections for, in the order of its text."""
    found = {isa: kernels.find(f"\n#ifdef {isa.macro}\n") for isa in (*BY_NAME.values(), CHECKER)}
    return tuple(sorted((isa for isa, at in found.items() if at >= 0), key=found.__getitem__))
