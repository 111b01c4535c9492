"""The report of a comparison of data sets in a release: that it is about the policy's splits, and its waiver holds.

A waived report is the failed one with another verdict and the field ``waiver``, which holds the signed statement;
taking both back gives the bytes that were waived.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_map,
    expect_object,
    strict_json,
)
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.digests import digest_bytes
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.subjects import Subject, subject_of
from evidence.verifier.trust import TrustRoot
from evidence.verifier.word import read_word

FORMAT = "cuvil-dataset-check/1"
WAIVER_TYPE = "https://cuvil.dev/waiver/v1"
PASSED, FAILED, WAIVED = "passed", "failed", "waived"
GATE = "dataset"
_SUBJECT = "dataset.json"
_KEYS = ("gate", "reason", "person", "created", "created_source")


@dataclass(frozen=True)
class Waiver:
    """Who waived, why and when; ``signer`` is a sentence about whose keys these are."""

    person: str
    reason: str
    created: str
    signer: str


def read_report(data: bytes) -> dict[str, Json]:
    """A report in its one form; ``MalformedError`` otherwise."""
    report = expect_map(strict_json(data), "the report")
    if report.get("format") != FORMAT or report.get("verdict") not in (PASSED, FAILED, WAIVED):
        raise MalformedError(f"it is no {FORMAT} with a verdict")
    if canonical_bytes(report) != data:
        raise MalformedError("it is not in its RFC 8785 form")
    return report


def report_subject(report: Mapping[str, Json]) -> Subject:
    """What a waiver is about: the failed report."""
    failed: dict[str, Json] = {key: value for key, value in report.items() if key != "waiver"}
    return subject_of(_SUBJECT, digest_bytes(canonical_bytes({**failed, "verdict": FAILED})))


def with_waiver(report: Mapping[str, Json], waiver: bytes) -> bytes:
    """The waived report; what ``waiver`` says is checked when it is read."""
    return canonical_bytes({**report, "verdict": WAIVED, "waiver": strict_json(waiver)})


def read_waiver(data: bytes, report: Mapping[str, Json], root: TrustRoot) -> Waiver:
    """Verify a waiver of exactly this ``report``. Raises ``VerificationFailed`` or ``MalformedError``."""
    word = read_word(data, WAIVER_TYPE, root)
    item = expect_object(word.predicate, "predicate", _KEYS)
    if item["gate"] != GATE:
        raise MalformedError(f"it waives the gate {item['gate']!r}, not {GATE!r}")
    subject = report_subject(report)
    if dict(word.subjects) != {subject.name: subject}:
        raise VerificationFailed("waiver", "it waives another finding than this one; look at both and sign anew")
    person, reason = text(item["person"], "predicate.person"), text(item["reason"], "predicate.reason")
    return Waiver(person, reason, text(item["created"], "predicate.created"), word.owner(person, root))


def check_dataset(data: bytes, policy: Mapping[str, Json], root: TrustRoot) -> str:
    """A sentence about a report that passed or was waived, for the splits of this policy.

    Raises ``VerificationFailed`` or ``MalformedError``.
    """
    report = read_report(data)
    wanted = expect_map(expect_map(policy.get("dataset") or {}, "dataset").get("splits") or {}, "dataset.splits")
    digests = {name: expect_map(item, name)["sha256"] for name, item in wanted.items()}
    splits = expect_map(report.get("splits"), "splits")
    found = {name: expect_map(item, name).get("manifest_sha256") for name, item in splits.items()}
    if digests != found:
        raise VerificationFailed("dataset-digest", "it is about other data than the policy's section dataset")
    if report["verdict"] == FAILED:
        raise VerificationFailed("dataset-overlap", "the data sets are not disjoint, and nobody waived that")
    if report["verdict"] == PASSED:
        return "the data sets of the policy are disjoint"
    waiver = read_waiver(encoded(report.get("waiver")), report, root)
    return f"{waiver.person} waived what the data sets share: {waiver.reason}; {waiver.signer}"


def encoded(envelope: Json) -> bytes:
    """The file form of an envelope that was embedded as JSON."""
    return (json.dumps(envelope, indent=2) + "\n").encode()
