"""Section ``budget``: how much time and memory an engine may take; a build that exceeds it fails."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, FiniteFloat, model_validator

from compiler_kernels.policy.section import Section

Limit = Annotated[FiniteFloat, Field(gt=0)]


class Budget(Section):
    """Latency is measured where the engine is built; memory is known from the generated program."""

    latency_ms: Limit | None = Field(
        default=None,
        description="Most milliseconds of wall time one inference may take: the median of repeated runs of the engine "
        "on the machine that builds it.",
    )
    memory_mb: Limit | None = Field(
        default=None,
        description="Most memory in megabytes of 1,000,000 bytes: weights, arena, inputs, outputs, and scratch of all "
        "threads.",
    )
    threads: Annotated[int, Field(ge=1, le=16)] = Field(
        default=1, description="Threads with which latency is measured and for which scratch memory is counted."
    )
    machine: str = Field(
        default="",
        max_length=100,
        description="Text that must be part of the processor's name where latency is measured; any processor if empty.",
    )

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.latency_ms is None and self.memory_mb is None:
            raise ValueError("must hold latency_ms or memory_mb")
        return self
