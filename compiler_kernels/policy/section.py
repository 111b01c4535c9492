"""Base of every policy section: strict types, unknown keys refused, immutable once read."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Strict: ``"1"`` is no number and ``1`` no text. Field descriptions become the published JSON Schema."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
