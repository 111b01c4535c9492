"""The asset ``coverage``: the report that ``cuvil coverage`` writes, made for the engine of a build."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from compiler_kernels.errors import RefusedError
from compiler_kernels.stage import Artifact, Json, StageResult
from cuvil_assets import chain
from cuvil_assets.execution import Build
from cuvil_assets.store import Action
from evidence.coverage.make import has_probes, make_coverage
from evidence.coverage.recount import missing_tools, version
from evidence.delivered import stem_of
from evidence.verifier.dsse import read_envelope
from evidence.verifier.statement import read_statement

REPORT, PAGE, VECTORS = "coverage.json", "coverage.html", "coverage.vectors.gz"
NOT_STATED: Final = "not stated"
"""Verdict where the policy asks for no coverage."""


def plan(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    """The action of the asset for ``build`` and its work, which raises as ``make_coverage`` does."""
    proof = build.records.consistent((chain.BUILD_PROOF,))[chain.BUILD_PROOF].result.principal
    statement = read_statement(read_envelope(proof.data).payload)
    inputs = {f"{chain.BUILD_PROOF}/{proof.name}": proof.sha3_512}
    # with another clang, or none, the report is another
    config: dict[str, Json] = {"recount": None if missing_tools() else version()}
    code = chain.code_version(chain.COVERAGE)

    def work() -> StageResult:
        if not has_probes(statement, build.store.find):
            nothing = json.dumps({"verdict": NOT_STATED}).encode() + b"\n"
            artifacts: tuple[Artifact, ...] = (Artifact(REPORT, nothing, "application/json"),)
            return StageResult(chain.COVERAGE, code, inputs, config, artifacts, {"verdict": NOT_STATED})
        engine = build.store.find(statement.subject_digests["sha3_512"])
        if engine is None:
            raise RefusedError("the engine of this build is gone from the store; build again")
        made = make_coverage(statement, build.store.find, engine, stem_of(statement.subject))
        artifacts = (
            Artifact(REPORT, made.data, "application/json"),
            Artifact(PAGE, made.page, "text/html"),
            Artifact(VECTORS, made.vectors, "application/gzip"),
        )
        facts: dict[str, Json] = {
            "verdict": made.report["verdict"],
            "sentence": made.report["sentence"],
            "vectors": len(made.report["vectors"]),
            **{name: total["percent"] for name, total in made.report["totals"].items()},
        }
        return StageResult(chain.COVERAGE, code, inputs, config, artifacts, facts)

    return Action(chain.COVERAGE, code, inputs, config), work
