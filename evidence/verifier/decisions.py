"""The report of two engines on a frozen test set in a release: that it is about this engine and its policy's limits.

Whether the limits hold is decided here, from the counts of the report, when it is made and again when it is verified.
"""

from __future__ import annotations

from collections.abc import Mapping

from evidence.verifier.canonical import Json, MalformedError, expect_hex, expect_map
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.trust import TrustRoot
from evidence.verifier.waiver import FAILED, PASSED, read_embedded, read_report

FORMAT = "cuvil-decisions/1"
GATE = "decisions"
SECTION = "recertification"
LIMITS = {"auc": "min_auc", "sensitivity": "min_sensitivity", "specificity": "min_specificity"}


def findings(report: Mapping[str, Json]) -> list[str]:
    """Which limits of the report's section its counts break: ``flips``, ``auc``, ``sensitivity``, ``specificity``."""
    section, after = _map(report, SECTION), _map(report, "after")
    broken = ["flips"] if _count(_map(report, "flips"), "items") > _count(section, "max_flips") else []
    counts = {name: _count(after, name) for name in ("true_positive", "false_negative", "true_negative")}
    counts["false_positive"] = _count(after, "false_positive")
    auc = _map(after, "auc")
    shares = {
        "auc": (_count(auc, "twice_wins"), 2 * _count(auc, "pairs")),
        "sensitivity": (counts["true_positive"], counts["true_positive"] + counts["false_negative"]),
        "specificity": (counts["true_negative"], counts["true_negative"] + counts["false_positive"]),
    }
    for name, limit in LIMITS.items():
        if limit not in section:
            continue
        least = _number(section, limit)
        hits, of = shares[name]
        reached = hits / of if of else -1.0
        if section.get("judge") == "lower_bound":
            reached = min(reached, _number(_map(after, name), "low"))
        if not reached >= least:
            broken.append(name)
    return broken


def read_decisions(data: bytes, policy: Mapping[str, Json], engine_sha3_512: str) -> dict[str, Json]:
    """A report for this engine and its policy's section, whose verdict follows from its counts; it may have failed.

    Raises ``VerificationFailed`` or ``MalformedError``.
    """
    report = read_report(data, GATE)
    section = policy.get(SECTION)
    if section is None or report.get(SECTION) != section_json(expect_map(section, SECTION)):
        raise VerificationFailed("decisions-policy", f"its limits are not those of the policy's section {SECTION}")
    subject = expect_hex(_map(report, "after").get("sha3_512"), "after.sha3_512", 128)
    if subject != engine_sha3_512:
        raise VerificationFailed("decisions-engine", "the report on the test set is about another engine")
    wanted, before = _map(report, SECTION), _map(report, "before")
    measured = _map(report, "data")
    stated = {"data": measured.get("manifest_sha256"), "labels": measured.get("labels_sha256")}
    stated |= {"before": before.get("sha3_512")} if "before" in wanted else {}
    for key, found in stated.items():
        if found != wanted.get(key):
            raise VerificationFailed("decisions-data", f"its {key} is not the one that the policy names")
    broken = findings(report)
    if report.get("findings") != broken or (report["verdict"] == PASSED) != (not broken):
        raise MalformedError(f"its verdict {report['verdict']} does not follow from its counts")
    return report


def check_decisions(data: bytes, policy: Mapping[str, Json], engine_sha3_512: str, root: TrustRoot) -> str:
    """A sentence about a report that passed or was waived, for this engine and its policy's section.

    Raises ``VerificationFailed`` or ``MalformedError``.
    """
    report = read_decisions(data, policy, engine_sha3_512)
    broken = findings(report)
    if report["verdict"] == FAILED:
        raise VerificationFailed(
            "decisions", f"the test set breaks limits ({', '.join(broken)}), and nobody waived that"
        )
    if report["verdict"] == PASSED:
        return "the decisions on the test set keep the policy's limits"
    waiver = read_embedded(report, root)
    return f"{waiver.person} waived limits on the test set ({', '.join(broken)}): {waiver.reason}; {waiver.signer}"


def section_json(section: Mapping[str, Json]) -> dict[str, Json]:
    """The section as the report holds it: numbers that are no whole numbers as text."""
    return {key: repr(float(value)) if isinstance(value, float) else value for key, value in section.items()}


def _map(item: Mapping[str, Json], key: str) -> dict[str, Json]:
    return expect_map(item.get(key), key)


def _count(item: Mapping[str, Json], key: str) -> int:
    value = item.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise MalformedError(f"{key} is not a whole number from 0")
    return value


def _number(item: Mapping[str, Json], key: str) -> float:
    value = item.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)  # RFC 8785 writes 1.0 as 1
    try:
        return float(text(value, key))
    except ValueError:
        raise MalformedError(f"{key} is not a number") from None
