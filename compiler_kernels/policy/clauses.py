"""Section ``clauses``: which clauses of laws, guidance and standards a release must answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from compiler_kernels.policy.section import Section

ClauseId = Annotated[str, Field(min_length=1, max_length=120)]


class Clauses(Section):
    """Ids as ``cuvil gap`` lists them; an older id (an alias) stands for the clauses behind it."""

    required: tuple[ClauseId, ...] = Field(
        default=(), description="Clauses without whose answer a release is refused; `cuvil gap` lists the ids."
    )

    @field_validator("required")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("must not name a clause twice")
        return value
