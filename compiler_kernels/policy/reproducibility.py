"""Section ``reproducibility``: what `cuvil reproduce` must do before its report says ``passed``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from compiler_kernels.policy.section import Section

Compiler = Literal["gcc", "zig"]
REBUILDS = 20


class Reproducibility(Section):
    """Read after the build; a release demands the report with ``release.demand: [reproducibility]``."""

    rebuilds: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=REBUILDS, description="Varied rebuilds that must all give the recorded bytes."
    )
    compilers: tuple[Compiler, ...] = Field(
        default=("zig",),
        min_length=1,
        description="zig builds the engine; with gcc the same C, built by it, must give the same outputs to the bit.",
    )

    @field_validator("compilers")
    @classmethod
    def _with_the_first(cls, value: tuple[Compiler, ...]) -> tuple[Compiler, ...]:
        if len(set(value)) != len(value):
            raise ValueError("must not name a compiler twice")
        if "zig" not in value:
            raise ValueError("must hold zig, which builds every engine")
        return tuple(sorted(value))
