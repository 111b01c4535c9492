"""The report of a verification: named checks, each with a status and one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from evidence.verifier.canonical import Json, MalformedError
from evidence.verifier.errors import VerificationFailed

T = TypeVar("T")
OK, FAILED, SKIPPED = "ok", "failed", "not checked"
# Stable names, in the order of the report; docs/evidence.md says what each means.
CHECKS = (
    "proof-readable",
    "payload-type",
    "signer-trusted",
    "signature-sm2",
    "signature-p384",
    "statement",
    "subject-digest",
    "chain",
    "records",
    "engine-digest-in-record",
    "compile-config",
    "frozen-graph",
    "policy",
    "equivalence",
)


@dataclass(frozen=True)
class Check:
    """One check: stable name, ``ok``/``failed``/``not checked``, one sentence."""

    name: str
    status: str
    sentence: str


@dataclass(frozen=True)
class VerifyReport:
    """All checks, in the order of ``CHECKS``.

    ``trust`` says where the trust root came from: ``development`` (the default one) or ``given``; ``trust_grade`` is
    the grade written in it. ``digests`` are the engine's. ``evidence`` quotes the statement, and is empty unless a
    trusted signature over it holds.
    """

    engine: str
    proof: str
    trust: str
    trust_grade: str
    checks: tuple[Check, ...]
    digests: Mapping[str, str]
    evidence: Mapping[str, Json] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True only when every check was made and held."""
        return tuple(item.name for item in self.checks) == CHECKS and all(item.status == OK for item in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(item for item in self.checks if item.status == FAILED)

    def to_json(self) -> dict[str, Json]:
        return {
            "ok": self.ok,
            "engine": self.engine,
            "proof": self.proof,
            "trust": self.trust,
            "trust_grade": self.trust_grade,
            "failed": [item.name for item in self.failures],
            "checks": [{"name": item.name, "status": item.status, "sentence": item.sentence} for item in self.checks],
            "digests": dict(self.digests),
            "evidence": dict(self.evidence),
        }

    def raise_if_failed(self) -> None:
        """Raise ``VerificationFailed`` (exit code 1) named after the first failed check."""
        if not self.ok:
            first = next(item for item in self.checks if item.status != OK)
            raise VerificationFailed(first.name, f"{self.engine}: {first.sentence}")


class Checks:
    """Collects checks while they are made."""

    def __init__(self) -> None:
        self.items: list[Check] = []

    def run(self, name: str, check: Callable[[], tuple[T, str]]) -> T | None:
        """The value of ``check``, or ``None`` when it raised ``MalformedError``; the outcome is noted."""
        try:
            value, sentence = check()
        except MalformedError as error:
            self.items.append(Check(name, FAILED, str(error)))
            return None
        self.items.append(Check(name, OK, sentence))
        return value

    def skip(self, reason: str) -> None:
        """Note every check that was not reached, and put all into the order of ``CHECKS``."""
        done = {item.name for item in self.items}
        self.items.extend(Check(name, SKIPPED, f"not checked: {reason}") for name in CHECKS if name not in done)
        self.items.sort(key=lambda item: CHECKS.index(item.name))
