"""Sections ``inputs`` and ``outputs``: what the engine checks about each tensor at run time."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, FiniteFloat, field_validator

from compiler_kernels.policy.section import Section

FLOAT_MAX: Final = 3.4028234663852886e38
"""Largest finite binary32 number."""

Size = Annotated[int, Field(ge=1, le=2**31 - 1)]


class TensorGuard(Section):
    """Guards of one tensor. Shape and element type are always checked; the rest only where written here."""

    shape: tuple[Size, ...] | None = Field(
        default=None, max_length=8, description="Static shape; for an input it pins the model's symbolic dimensions."
    )
    dtype: Literal["float32"] | None = Field(default=None, description="Element type the model must declare.")
    finite: bool = Field(default=False, description="Refuse NaN and infinities (engine exit code 3).")
    range: tuple[FiniteFloat, FiniteFloat] | None = Field(
        default=None,
        description="Lowest and highest allowed value, both included, compared in binary32 after rounding to nearest; "
        "a NaN is outside every range.",
    )

    @field_validator("range")
    @classmethod
    def _ordered(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and (value[0] > value[1] or max(abs(v) for v in value) > FLOAT_MAX):
            raise ValueError("must be two binary32 numbers, the lower one first")
        return value
