"""Section ``dataset``: the splits of the model's data by digest, which must be pairwise disjoint (docs/dataset.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from compiler_kernels.policy.section import Section


class Split(Section):
    """One split. Only its digest enters the evidence, never data or names of files."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the split's manifest, as `cuvil dataset manifest` prints it."
    )
    description: str = Field(default="", max_length=2000, description="Where it comes from; no personal data.")


class Dataset(Section):
    """What `cuvil dataset check --policy` compares the data with."""

    splits: Annotated[dict[Literal["train", "tune", "test"], Split], Field(min_length=2)] = Field(
        description="Training, tuning and test set, at least two of them."
    )
    duplicates: Literal["list", "refuse"] = Field(
        default="list", description="Whether items that are twice in one split are listed or fail the check."
    )
