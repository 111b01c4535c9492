"""The stages an asset exists for, in build order, and what each takes from which."""

from __future__ import annotations

from compiler_kernels.stages.base import Stage, source_digest
from compiler_kernels.stages.order import COMPILE_STAGES
from evidence.budget import BUDGET
from evidence.equivalence import EQUIVALENCE

STAGES: tuple[Stage, ...] = (*COMPILE_STAGES, BUDGET, EQUIVALENCE)
BY_NAME = {stage.name: stage for stage in STAGES}
BUILD_PROOF = "build_proof"
NAMES = (*BY_NAME, BUILD_PROOF)
SBOM = "sbom"
DATASET = "dataset"
DECISIONS = "decisions"
COVERAGE = "coverage"
REPRODUCIBILITY = "reproducibility"
LATER = {
    SBOM: "The bill of materials of what was linked, of the model and of the tools, as CycloneDX 1.6.",
    COVERAGE: "Test vectors for the clinical logic, run through the engine, and what they cover.",
    DATASET: "Whether the training, tuning and test set that the policy names are pairwise disjoint.",
    DECISIONS: "What the engine decides on the frozen test set, compared with the engine before it.",
    REPRODUCIBILITY: "Varied rebuilds from the recorded inputs, and the same model through a second compiler.",
}
"""Assets a build does not need and a release may demand: they are made when somebody asks for them."""
RELEASE_PROOF = "release_proof"
MODEL_RESOURCE = "model_resource"
PROOF_DESCRIPTION = "The signed statement about the engine: what went in, what each stage did, what was compared."


def proof_code_version() -> str:
    """Code version of what ``evidence`` makes: the source code of that room takes part in it."""
    return f"1+{source_digest('evidence')[:16]}"


def code_version(name: str) -> str:
    return proof_code_version() if name == BUILD_PROOF or name in LATER else BY_NAME[name].code_version


def description(name: str) -> str:
    if name in LATER:
        return LATER[name]
    return PROOF_DESCRIPTION if name == BUILD_PROOF else BY_NAME[name].description


def upstream(name: str) -> tuple[str, ...]:
    """Stages that ``name`` reads, in build order."""
    if name == BUILD_PROOF:
        return tuple(BY_NAME)
    if name in LATER:
        return (BUILD_PROOF,)
    read = {artifact.partition("/")[0] for artifact in BY_NAME[name].reads}
    return tuple(other for other in NAMES if other in read)


def ancestors(name: str) -> tuple[str, ...]:
    """Stages ``name`` depends on directly or through others, in build order."""
    found: set[str] = set()
    waiting = list(upstream(name))
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting += upstream(other)
    return tuple(other for other in NAMES if other in found)
