"""The signed statement over a report on a test set: an in-toto test result (predicate test-result v0.1)."""

from __future__ import annotations

from collections.abc import Mapping

from evidence.signing_keys import SigningKeys, sign
from evidence.verifier.canonical import Json
from evidence.verifier.decisions import LIMITS, SECTION
from evidence.verifier.intoto import RESULTS, TEST_RESULT_TYPE
from evidence.verifier.subjects import Subject, encode_statement


def signed_result(report: Mapping[str, Json], engine: Subject, file: Subject, keys: SigningKeys) -> bytes:
    """The envelope's bytes. Subject: the engine; ``configuration`` names the report by digest."""
    section, broken = report[SECTION], report["findings"]
    assert isinstance(section, dict) and isinstance(broken, list)
    tests = ["flips", *(name for name, limit in LIMITS.items() if limit in section)]
    predicate: dict[str, Json] = {
        "result": RESULTS.get(str(report["verdict"]), "WARNED"),
        "configuration": [{"name": file.name, "digest": {**file.digest_set()}}],
        "passedTests": [name for name in tests if name not in broken],
        "warnedTests": [],
        "failedTests": [name for name in tests if name in broken],
    }
    return sign(encode_statement([engine], TEST_RESULT_TYPE, predicate), keys).encode()
