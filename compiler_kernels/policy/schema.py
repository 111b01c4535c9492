"""The policy as one schema, its canonical bytes, and the published JSON Schema.

``python -m compiler_kernels.policy`` prints docs/examples/policy.schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

import rfc8785
from pydantic import Field

from compiler_kernels.ir.symbols import Bound
from compiler_kernels.policy.approvals import Approvals
from compiler_kernels.policy.audit import Audit
from compiler_kernels.policy.budget import Budget
from compiler_kernels.policy.clauses import Clauses
from compiler_kernels.policy.clinical import Coverage, Decisions, Fallbacks, Quantities, Safety, Thresholds
from compiler_kernels.policy.dataset import Dataset
from compiler_kernels.policy.gpu import GpuSection
from compiler_kernels.policy.model import ModelIdentity
from compiler_kernels.policy.numerics import Numerics
from compiler_kernels.policy.recertification import Recertification
from compiler_kernels.policy.registry import RegistryStatements
from compiler_kernels.policy.release import Release
from compiler_kernels.policy.reproducibility import Reproducibility
from compiler_kernels.policy.sbom import Sbom
from compiler_kernels.policy.section import Section
from compiler_kernels.policy.shapes import SHAPES_DESCRIPTION, Shapes
from compiler_kernels.policy.signing import Signing
from compiler_kernels.policy.tensors import TensorGuard
from compiler_kernels.policy.timestamp import TimestampAuthority

SCHEMA_VERSION: Final = 1
LAST_EPOCH: Final = 253402300799
"""31 December 9999, 23:59:59 UTC."""

Tensors = dict[str, TensorGuard]


class Policy(Section):
    """A clinical policy: what is built, what the engine checks at run time, and who must sign."""

    version: Literal[1] = Field(description="Version of this schema.")
    model: ModelIdentity = Field(description="Identity of the model.")
    inputs: Tensors = Field(default_factory=dict, description="Guards of the model's inputs, by name.")
    outputs: Tensors = Field(default_factory=dict, description="Guards of the model's outputs, by name.")
    numerics: Numerics = Field(default_factory=Numerics, description="Choices of arithmetic before the freeze.")
    random_seed: Annotated[int, Field(ge=0, lt=1 << 53)] | None = Field(
        default=None,
        description="Seed of random operators that have none of their own; without it such operators are refused.",
    )
    shapes: Shapes = Field(default_factory=dict, description=SHAPES_DESCRIPTION)
    thresholds: Thresholds = Field(default_factory=dict, description="Named numbers of the clinical logic.")
    quantities: Quantities = Field(default_factory=dict, description="Named numbers computed from tensors.")
    decisions: Decisions = Field(default_factory=dict, description="Named conditions the engine answers.")
    safety: Safety | None = Field(default=None, description="Lockstep and conditions that must hold.")
    fallbacks: Fallbacks | None = Field(default=None, description="What the engine answers when it cannot decide.")
    coverage: Coverage | None = Field(default=None, description="Probes, and the structural coverage to reach.")
    dataset: Dataset | None = Field(
        default=None, description="Training, tuning and test set by digest, which must be disjoint."
    )
    recertification: Recertification | None = Field(
        default=None, description="The frozen test set, and what an engine must reach on it."
    )
    budget: Budget | None = Field(default=None, description="Limits of time and memory; a build over them fails.")
    gpu: GpuSection | None = Field(default=None, description="Choices for GPU targets.")
    signing: Signing = Field(default_factory=Signing, description="Required signatures.")
    release: Release | None = Field(default=None, description="What a release must hold; nothing if absent.")
    approvals: Approvals | None = Field(default=None, description="Who must approve a release; nobody if absent.")
    timestamp: TimestampAuthority | None = Field(
        default=None, description="The authority that stamps a release (RFC 3161)."
    )
    sbom: Sbom | None = Field(default=None, description="Statements in and gates over the bill of materials.")
    audit: Audit | None = Field(default=None, description="What the audit log must record.")
    clauses: Clauses | None = Field(default=None, description="Clauses that a release must answer.")
    registry: RegistryStatements | None = Field(
        default=None, description="What the manufacturer states of the device, for the registry to show."
    )
    reproducibility: Reproducibility | None = Field(
        default=None, description="Rebuilds and compilers that must agree before an engine counts as reproducible."
    )
    source_date_epoch: Annotated[int, Field(ge=0, le=LAST_EPOCH)] | None = Field(
        default=None,
        description="Seconds since 1970-01-01 UTC, the only time in any artefact; it overrides SOURCE_DATE_EPOCH.",
    )

    def canonical_json(self) -> bytes:
        """RFC 8785 form with defaults written out, so that equal policies have equal bytes."""
        return rfc8785.dumps(self.model_dump(mode="json", exclude_none=True))

    def input_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Pinned input shapes by input name, in the form the importer takes."""
        return {name: guard.shape for name, guard in self.inputs.items() if guard.shape is not None}

    def input_ranges(self) -> Mapping[str, tuple[float, float]]:
        """Guarded ranges by input name, in the form the importer takes."""
        return {name: guard.range for name, guard in self.inputs.items() if guard.range is not None}

    def bounds(self) -> dict[str, Bound]:
        """Bounds of the symbols that stay variable, in the order of their names, in the form the importer takes."""
        return {name: self.shapes[name].bound() for name in sorted(self.shapes)}


def contradictions(policy: Policy) -> Iterator[tuple[str, str]]:
    """Fields of the section ``recertification`` that other sections contradict, and why."""
    found = policy.recertification
    if found is None:
        return
    if found.decision is not None and found.decision not in policy.decisions:
        yield "decision", f"is no decision of the policy: they are {', '.join(policy.decisions) or 'none'}"
    split = policy.dataset.splits.get("test") if policy.dataset is not None else None
    if split is not None and split.sha256 != found.data:
        yield "data", "is not dataset.splits.test.sha256; an engine is judged on the test set, name it in both"


def published_schema() -> str:
    """JSON Schema (draft 2020-12) of the policy, as committed in docs/examples/policy.schema.json."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema()}
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
