"""Section ``gpu``: what GPU targets do and CPU targets do not ask for."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from compiler_kernels.policy.section import Section


class GpuSection(Section):
    """Read where the target is a GPU's; other targets have no use for it."""

    kernels: Literal["cuda", "triton"] = Field(
        default="cuda",
        description="Generator of the kernels: CUDA C++, or Triton for every function it has a kernel for. Same bits.",
    )
