"""The signed statement over a reproducibility report: an in-toto test result (predicate test-result v0.1)."""

from __future__ import annotations

from evidence.reproducibility.report import Outcome
from evidence.reproducibility.second import NOT_EXECUTED, PASSED
from evidence.signing_keys import SigningKeys, sign
from evidence.verifier.canonical import Json
from evidence.verifier.intoto import RESULTS, TEST_RESULT_TYPE
from evidence.verifier.subjects import Subject, encode_statement


def test_names(outcome: Outcome) -> dict[str, list[str]]:
    """``passed``, ``failed`` and ``warned`` tests by name: every rebuild and the second compiler."""
    differing = {item.rebuild for item in outcome.differences}
    numbers = [item.variation.number for item in outcome.rebuilds]
    found = {
        "passed": [f"rebuild {n}" for n in numbers if n not in differing],
        "failed": [f"rebuild {n}" for n in numbers if n in differing],
        "warned": [],
    }
    if outcome.second is not None:
        kind = {PASSED: "passed", NOT_EXECUTED: "warned"}.get(outcome.second.verdict, "failed")
        found[kind].append(f"second compiler {outcome.second.name}")
    return found


def signed_result(outcome: Outcome, report: Subject, log: Subject, keys: SigningKeys) -> bytes:
    """The envelope's bytes. Subject: the engine; ``configuration`` names report, log and build proof by digest."""
    names = test_names(outcome)
    predicate: dict[str, Json] = {
        "result": RESULTS.get(outcome.verdict, "WARNED"),
        "configuration": [
            {"name": item.name, "digest": {**item.digest_set()}} for item in (report, log, outcome.proof)
        ],
        "passedTests": [*names["passed"]],
        "warnedTests": [*names["warned"]],
        "failedTests": [*names["failed"]],
    }
    return sign(encode_statement([outcome.engine], TEST_RESULT_TYPE, predicate), keys).encode()
