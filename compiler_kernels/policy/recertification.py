"""Section ``recertification``: the frozen test set and what an engine must reach on it (docs/test-set.md)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from compiler_kernels.policy.section import Section

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Share = Annotated[float, Field(ge=0, le=1)]
Layout = Literal["as_stored", "channels_last"]
Judge = Literal["estimate", "lower_bound"]


class Recertification(Section):
    """What `cuvil decisions` compares and demands; nothing of it enters the engine."""

    data: Sha256 = Field(description="SHA-256 of the test set's manifest, as `cuvil dataset manifest` prints it.")
    labels: Sha256 = Field(description="SHA-256 of its labels, as `cuvil decisions` prints it.")
    before: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")] | None = Field(
        default=None, description="SHA3-512 of the engine, or model file, to compare with; any if absent."
    )
    divide_by: Annotated[float, Field(gt=0, le=3.4e38)] = Field(
        default=1.0, description="Every stored number is divided by it, in the input's element type."
    )
    layout: Layout = Field(
        default="as_stored",
        description="Where an item has its channels; channels_last moves the last axis to the front.",
    )
    score: str = Field(min_length=1, max_length=1000, description="The output that holds the score.")
    positive: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=1, description="Label of a positive item, and the element of the score output where that has several."
    )
    threshold: float | None = Field(default=None, description="Smallest score that counts as positive.")
    decision: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="The decision of the policy that counts as positive, instead of a threshold."
    )
    max_flips: Annotated[int, Field(ge=0)] = Field(default=0, description="Most items whose decisions may differ.")
    min_auc: Share | None = Field(default=None, description="Least area under the ROC curve.")
    min_sensitivity: Share | None = Field(default=None, description="Least sensitivity.")
    min_specificity: Share | None = Field(default=None, description="Least specificity.")
    judge: Judge = Field(
        default="estimate", description="Whether estimates or lower 95 % confidence bounds must reach the three."
    )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.threshold is None) == (self.decision is None):
            raise ValueError("must have either threshold or decision, which says what counts as positive")
        return self
