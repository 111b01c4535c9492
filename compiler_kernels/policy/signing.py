"""Section ``signing``: which signatures each level of proof must carry."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from compiler_kernels.policy.section import Section

Algorithm = Literal["sm2", "p384"]


class Signing(Section):
    """Required signatures. ``sm2``: SM2 with SM3 (GB/T 32918); ``p384``: ECDSA on P-384 (FIPS 186-5)."""

    build: tuple[Algorithm, ...] = Field(
        default=("p384", "sm2"), min_length=1, description="Algorithms that must sign the build proof."
    )

    @field_validator("build")
    @classmethod
    def _distinct(cls, value: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
        if len(set(value)) != len(value):
            raise ValueError("must not name an algorithm twice")
        return tuple(sorted(value))
