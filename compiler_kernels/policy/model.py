"""Section ``model``: how the engine and its evidence name the model."""

from __future__ import annotations

from pydantic import Field, field_validator

from compiler_kernels.policy.section import Section

NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"


class ModelIdentity(Section):
    """Name and version identify the engine; the purpose is quoted in reports and never interpreted."""

    name: str = Field(pattern=NAME, max_length=80, description="Short name: letters, digits and . _ + - only.")
    version: str = Field(
        pattern=NAME, max_length=40, description="Version as text (in quotes): letters, digits and . _ + - only."
    )
    purpose: str = Field(default="", max_length=4000, description="Intended use in prose, quoted in reports.")

    @field_validator("purpose")
    @classmethod
    def _printable(cls, value: str) -> str:
        if any(ord(c) < 32 and c not in "\n\t" for c in value):
            raise ValueError("must not hold control characters")
        return value
