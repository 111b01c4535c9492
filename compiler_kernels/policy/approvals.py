"""Section ``approvals``: who must approve a release, and how many people at least."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from compiler_kernels.policy.section import Section

Role = Literal["developer", "quality", "tester"]


class Approvals(Section):
    """Whatever this says, nobody may be developer and tester of one release."""

    roles: tuple[Role, ...] = Field(
        default=("developer", "quality", "tester"), min_length=1, description="Roles that must each have approved."
    )
    threshold: Annotated[int, Field(ge=1, le=20)] = Field(
        default=2, description="Different people who must have approved, counted over all roles."
    )

    @field_validator("roles")
    @classmethod
    def _distinct(cls, value: tuple[Role, ...]) -> tuple[Role, ...]:
        if len(set(value)) != len(value):
            raise ValueError("must not name a role twice")
        return tuple(sorted(value))

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if {"developer", "tester"} <= set(self.roles) and self.threshold < 2:
            raise ValueError("threshold must be at least 2 where developer and tester are required")
        return self
