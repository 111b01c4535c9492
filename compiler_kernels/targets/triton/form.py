"""What a family of Triton kernels makes of a function."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_kernels.targets.triton.text import Lines


@dataclass(frozen=True)
class Form:
    """The statements of a kernel, the programs of its grid, and how many warps and pipeline stages each has."""

    body: Lines
    programs: int
    warps: int
    stages: int = 3
