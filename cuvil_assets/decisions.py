"""The asset ``decisions``: the report on the frozen test set that this home keeps of an engine.

The data stays with whoever runs `cuvil decisions`; the asset holds the report, checked against engine and policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from compiler_kernels.errors import RefusedError, UsageError
from compiler_kernels.stage import Artifact, Json, StageResult, sha3_512_hex
from cuvil_assets import chain
from cuvil_assets.datasets import NOT_STATED
from cuvil_assets.execution import Build
from cuvil_assets.files import write_atomic
from cuvil_assets.home import Home
from cuvil_assets.store import Action
from evidence.verifier.canonical import MalformedError, canonical_bytes, expect_map, strict_json
from evidence.verifier.decisions import SECTION, check_decisions, read_decisions
from evidence.verifier.dsse import read_envelope
from evidence.verifier.files import read_small
from evidence.verifier.statement import read_statement
from evidence.verifier.trust import load_trust_root
from evidence.verifier.waiver import WAIVED

REPORT: Final = "decisions.json"


def keep_report(home: Home, engine_sha3_512: str, report: bytes) -> Path:
    """Keep the newest report of an engine; ``UsageError`` when the home cannot be written."""
    path = home.ensure(home.datasets) / f"{engine_sha3_512}.decisions.json"
    try:
        write_atomic(path, report, 0o600)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); set CUVIL_HOME to a writable directory"
        ) from None
    return path


def plan(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    """The action of one build, and its work: take the kept report, if it is of this engine and policy."""
    proof = build.records.consistent((chain.BUILD_PROOF,))[chain.BUILD_PROOF].result.principal
    statement = read_statement(read_envelope(proof.data).payload)
    stored = build.store.find(statement.policy)
    if stored is None:
        raise UsageError("the policy of this build is gone from the store; run `cuvil build` again")
    policy = expect_map(strict_json(stored), "the policy")
    engine, version = statement.subject_digests["sha3_512"], chain.code_version(chain.DECISIONS)
    inputs = {f"{chain.BUILD_PROOF}/{proof.name}": proof.sha3_512}
    data = canonical_bytes({"verdict": NOT_STATED})
    if SECTION in policy:
        path = build.home.datasets / f"{engine}.decisions.json"
        if not path.is_file():
            raise RefusedError(
                "this home keeps no report on the test set for this engine; run `cuvil decisions` with the engine "
                "before it and the data"
            )
        data = read_small(path, "report", "run `cuvil decisions` again")
        inputs["report/decisions"] = sha3_512_hex(data)

    def work() -> StageResult:
        facts: Mapping[str, Json] = {"verdict": NOT_STATED}
        if SECTION in policy:
            facts = _facts(data, policy, engine, build.home)
        return StageResult(chain.DECISIONS, version, inputs, {}, (Artifact(REPORT, data, "application/json"),), facts)

    return Action(chain.DECISIONS, version, inputs, {}), work


def _facts(data: bytes, policy: Mapping[str, Json], engine: str, home: Home) -> dict[str, Json]:
    try:
        report: Any = read_decisions(data, policy, engine)
        facts: dict[str, Json] = {
            "verdict": report["verdict"],
            "items": report["data"]["items"],
            "flips": report["flips"]["items"],
            "findings": report["findings"],
            "before_sha3_512": report["before"]["sha3_512"],
            **{name: report["after"][name]["estimate"] for name in ("auc", "sensitivity", "specificity")},
        }
        if report["verdict"] == WAIVED:
            root = load_trust_root(home.root / "keys" / "trust-root.json")
            facts["waived"] = check_decisions(data, policy, engine, root)
    except MalformedError as error:
        raise UsageError(f"the kept report on the test set is damaged ({error}); run `cuvil decisions` again") from None
    return facts
