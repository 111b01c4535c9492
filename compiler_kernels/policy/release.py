"""Section ``release``: what `cuvil release` must find before it signs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from compiler_kernels.policy.section import Section

Demand = Literal[
    "approvals", "coverage", "dataset", "decisions", "equivalence", "intoto", "reproducibility", "sbom", "timestamp"
]


class Release(Section):
    """A part that is demanded and missing, or whose verdict is not ``passed``, ends a release with exit code 3.

    Of ``dataset`` and ``decisions`` the verdict ``waived`` will do.
    """

    demand: tuple[Demand, ...] = Field(default=(), description="Parts without which nothing is released.")

    @field_validator("demand")
    @classmethod
    def _distinct(cls, value: tuple[Demand, ...]) -> tuple[Demand, ...]:
        if len(set(value)) != len(value):
            raise ValueError("must not name a part twice")
        return tuple(sorted(value))
