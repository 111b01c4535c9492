"""Signs a waiver: one person's reason why a report that failed shall not block a release.

Statement v1 with predicate type ``https://cuvil.dev/waiver/v1``; its subject is the report. It covers exactly what that
report lists: with another finding the report has other bytes, and the waiver does not hold.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from evidence.signed_word import check_keys, person_name
from evidence.signing_keys import SigningKeys, created_now, sign
from evidence.verifier.subjects import encode_statement
from evidence.verifier.waiver import FAILED, WAIVER_TYPE, gate_of, read_report, report_subject


def waive(
    report: bytes, person: str, reason: str, keys: SigningKeys, environment: Mapping[str, str] | None = None
) -> bytes:
    """The signed waiver of ``report``. Raises ``UsageError`` when it did not fail, or person, reason or keys are
    missing, and ``MalformedError`` for what is no report."""
    found = read_report(report)
    if found["verdict"] != FAILED:
        raise UsageError("the report did not fail; there is nothing to waive")
    person, reason = person_name(person), reason.strip()
    if not reason:
        raise UsageError("--reason is empty; say why what the report lists does no harm")
    check_keys(keys)
    created, source = created_now(os.environ if environment is None else environment)
    predicate: dict[str, Json] = {
        "gate": gate_of(found), "reason": reason, "person": person, "created": created, "created_source": source,
    }  # fmt: skip
    return sign(encode_statement([report_subject(found)], WAIVER_TYPE, predicate), keys).encode()
