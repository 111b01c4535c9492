"""Waivers: one person's signed reason why a report that failed shall not block.

A waived report is the failed one with another verdict and the field ``waiver``, which holds the signed statement;
taking both back gives the bytes that were waived. So a waiver covers one finding and no later one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from evidence.verifier.canonical import Json, MalformedError, canonical_bytes, expect_map, expect_object, strict_json
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.digests import digest_bytes
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.subjects import Subject, subject_of
from evidence.verifier.trust import TrustRoot
from evidence.verifier.word import read_word

WAIVER_TYPE = "https://cuvil.dev/waiver/v1"
PASSED, FAILED, WAIVED = "passed", "failed", "waived"
GATES = {"cuvil-dataset-check/1": "dataset", "cuvil-decisions/1": "decisions"}
"""Reports that can be waived: their format, and the part of a release that they are."""
_KEYS = ("gate", "reason", "person", "created", "created_source")


@dataclass(frozen=True)
class Waiver:
    """Who waived, why and when; ``signer`` is a sentence about whose keys these are."""

    person: str
    reason: str
    created: str
    signer: str


def read_report(data: bytes, wanted: str | None = None) -> dict[str, Json]:
    """A report in its one form, of the gate ``wanted`` or any; ``MalformedError`` otherwise."""
    report = expect_map(strict_json(data), "the report")
    formats = [name for name, gate in GATES.items() if wanted in (None, gate)]
    if report.get("format") not in formats or report.get("verdict") not in (PASSED, FAILED, WAIVED):
        raise MalformedError(f"it is no {' or '.join(formats)} with a verdict")
    if canonical_bytes(report) != data:
        raise MalformedError("it is not in its RFC 8785 form")
    return report


def gate_of(report: Mapping[str, Json]) -> str:
    """The part of a release that ``report`` is."""
    return GATES[text(report["format"], "format")]


def report_subject(report: Mapping[str, Json]) -> Subject:
    """What a waiver is about: the failed report."""
    failed: dict[str, Json] = {key: value for key, value in report.items() if key != "waiver"}
    return subject_of(f"{gate_of(report)}.json", digest_bytes(canonical_bytes({**failed, "verdict": FAILED})))


def with_waiver(report: Mapping[str, Json], waiver: bytes) -> bytes:
    """The waived report; what ``waiver`` says is checked when it is read."""
    return canonical_bytes({**report, "verdict": WAIVED, "waiver": strict_json(waiver)})


def read_waiver(data: bytes, report: Mapping[str, Json], root: TrustRoot) -> Waiver:
    """Verify a waiver of exactly this ``report``. Raises ``VerificationFailed`` or ``MalformedError``."""
    word = read_word(data, WAIVER_TYPE, root)
    item = expect_object(word.predicate, "predicate", _KEYS)
    gate = gate_of(report)
    if item["gate"] != gate:
        raise MalformedError(f"it waives the gate {item['gate']!r}, not {gate!r}")
    subject = report_subject(report)
    if dict(word.subjects) != {subject.name: subject}:
        raise VerificationFailed("waiver", "it waives another finding than this one; look at both and sign anew")
    person, reason = text(item["person"], "predicate.person"), text(item["reason"], "predicate.reason")
    return Waiver(person, reason, text(item["created"], "predicate.created"), word.owner(person, root))


def read_embedded(report: Mapping[str, Json], root: TrustRoot) -> Waiver:
    """The waiver inside a waived report, verified."""
    return read_waiver((json.dumps(report.get("waiver"), indent=2) + "\n").encode(), report, root)
