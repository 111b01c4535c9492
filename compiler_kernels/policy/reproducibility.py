"""Section ``reproducibility``: what `cuvil reproduce` must do before its report says ``passed``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from compiler_kernels.policy.section import Section

Compiler = Literal["gcc", "triton", "zig"]
REBUILDS = 20


class Rebuilders(Section):
    """Independent rebuilders: people with keys of their own, in the role ``rebuilder`` of the keyring."""

    required: Annotated[int, Field(ge=1, le=20)] = Field(
        description="How many must attest that they rebuilt the engine before it is released."
    )
    of: tuple[Annotated[str, Field(min_length=1, max_length=80)], ...] = Field(
        default=(), description="Who counts: names as the keyring has them, or key ids; every rebuilder if empty."
    )

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if len(set(self.of)) != len(self.of):
            raise ValueError("of must not name anyone twice")
        if self.of and len(self.of) < self.required:
            raise ValueError(f"required is {self.required}, but of names {len(self.of)}")
        return self


class Reproducibility(Section):
    """Read after the build; a release demands the report with ``release.demand: [reproducibility]``."""

    rebuilds: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=REBUILDS, description="Varied rebuilds that must all give the recorded bytes."
    )
    compilers: tuple[Compiler, ...] = Field(
        default=("zig",),
        min_length=1,
        description="zig builds the engine. With gcc the same C, built by it, must give the same outputs to the bit; "
        "with triton a GPU engine with kernels of the other generator must.",
    )

    rebuilders: Rebuilders | None = Field(
        default=None, description="Who must have rebuilt the engine elsewhere; nobody if absent."
    )

    @field_validator("compilers")
    @classmethod
    def _with_the_first(cls, value: tuple[Compiler, ...]) -> tuple[Compiler, ...]:
        if len(set(value)) != len(value):
            raise ValueError("must not name a compiler twice")
        if "zig" not in value:
            raise ValueError("must hold zig, which builds every engine")
        return tuple(sorted(value))
