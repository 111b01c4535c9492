"""Section ``audit``: what the audit log of builds must record, and what an engine records of its inferences."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from compiler_kernels.policy.section import Section


class Sessions(Section):
    """Compiles the session hook into the engine (docs/sessions.md); without the section there is none."""

    inputs: Literal["digest", "keep"] = Field(
        default="digest",
        description="digest: records hold digests of inputs; keep: `cuvil run` also keeps the inputs, encrypted.",
    )
    required: bool = Field(
        default=True,
        description="Refuse an inference that is not recorded: the engine's program ends with exit code 3.",
    )
    sync: bool = Field(
        default=True, description="Sync every record to the disk before the outputs of its inference appear."
    )


class Audit(Section):
    """Without the section an event that cannot be recorded is a warning."""

    required: bool = Field(
        default=True, description="Refuse a build, before anything is delivered, that the audit log cannot record."
    )
    sessions: Sessions | None = Field(
        default=None, description="Records of inferences; the engine keeps none if absent."
    )
