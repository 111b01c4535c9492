"""The report of a comparison of data sets in a release: that it is about the policy's splits, and its waiver holds."""

from __future__ import annotations

from collections.abc import Mapping

from evidence.verifier.canonical import Json, expect_map
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.trust import TrustRoot
from evidence.verifier.waiver import FAILED, PASSED, read_embedded, read_report

FORMAT = "cuvil-dataset-check/1"
GATE = "dataset"


def check_dataset(data: bytes, policy: Mapping[str, Json], root: TrustRoot) -> str:
    """A sentence about a report that passed or was waived, for the splits of this policy.

    Raises ``VerificationFailed`` or ``MalformedError``.
    """
    report = read_report(data, GATE)
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
    waiver = read_embedded(report, root)
    return f"{waiver.person} waived what the data sets share: {waiver.reason}; {waiver.signer}"
