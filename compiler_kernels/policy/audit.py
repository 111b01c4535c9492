"""Section ``audit``: whether a build may go on when the audit log cannot record it."""

from __future__ import annotations

from pydantic import Field

from compiler_kernels.policy.section import Section


class Audit(Section):
    """Without the section an event that cannot be recorded is a warning."""

    required: bool = Field(
        default=True, description="Refuse a build, before anything is delivered, that the audit log cannot record."
    )
