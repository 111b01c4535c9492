"""The report of a verification: named checks, each with a status and one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from evidence.verifier.canonical import Json, MalformedError
from evidence.verifier.errors import VerificationFailed

T = TypeVar("T")
OK, FAILED, SKIPPED = "ok", "failed", "not checked"
# Stable names, in the order of the report; docs/evidence.md says what each means. Those of a build proof:
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
# Those of a release folder:
RELEASE_CHECKS = (
    "release-readable",
    "release-encoding",
    "payload-type",
    "unknown-key",
    "self-embedded-key",
    "signature-sm2",
    "signature-p384",
    "statement",
    "timestamp",
    "clock-before-issue",
    "certificate-path",
    "certificate-expired",
    "certificate-revoked",
    "certificate-purpose",
    "files-complete",
    "replayed-bundle",
    "release-subject",
    "build-proof",
    "policy",
    "demanded-part",
    "approvals",
    "approval-separation",
    "rebuilds",
    "sbom",
    "intoto",
    "log-inclusion",
    "device",
)


@dataclass(frozen=True)
class Check:
    """One check: stable name, ``ok``/``failed``/``not checked``, one sentence."""

    name: str
    status: str
    sentence: str


@dataclass(frozen=True)
class VerifyReport:
    """All checks, in the order of ``names``: ``CHECKS`` for an engine, ``RELEASE_CHECKS`` for a release folder.

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
    names: tuple[str, ...] = CHECKS

    @property
    def ok(self) -> bool:
        """True only when every check was made and held."""
        return tuple(item.name for item in self.checks) == self.names and all(item.status == OK for item in self.checks)

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
            first = next(iter(self.failures), None) or next(item for item in self.checks if item.status != OK)
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


class Findings:
    """Collects the checks of a release, where one look at a key or certificate can fail any of several checks.

    The first fault of a name is its sentence; further ones are counted.
    """

    def __init__(self, names: tuple[str, ...] = RELEASE_CHECKS) -> None:
        self.names = names
        self._faults: dict[str, list[str]] = {}
        self._held: dict[str, str] = {}

    def fail(self, name: str, sentence: str) -> None:
        """Note a fault; ``KeyError`` for a name that is none of ``names``."""
        if name not in self.names:
            raise KeyError(name)
        self._faults.setdefault(name, []).append(sentence)

    def hold(self, name: str, sentence: str) -> None:
        """Note that a check was made; it holds unless a fault is noted too."""
        if name not in self.names:
            raise KeyError(name)
        self._held[name] = sentence

    def run(self, name: str, check: Callable[[], tuple[T, str]]) -> T | None:
        """The value of ``check``, or ``None`` when it raised; a ``VerificationFailed`` is noted under its own name."""
        try:
            value, sentence = check()
        except VerificationFailed as error:
            self.fail(error.check if error.check in self.names else name, str(error))
            return None
        except MalformedError as error:
            self.fail(name, str(error))
            return None
        self.hold(name, sentence)
        return value

    @property
    def failed(self) -> bool:
        return bool(self._faults)

    def checks(self, reason: str) -> tuple[Check, ...]:
        """All checks in order; one that was not reached is ``not checked`` because of ``reason``."""
        return tuple(self._one(name, reason) for name in self.names)

    def _one(self, name: str, reason: str) -> Check:
        faults = self._faults.get(name)
        if faults:
            more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
            return Check(name, FAILED, faults[0] + more)
        if name in self._held:
            return Check(name, OK, self._held[name])
        return Check(name, SKIPPED, f"not checked: {reason}")
