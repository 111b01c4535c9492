"""The errors a verifier can meet, with the exit codes of the command line (docs/cli.md).

The same shape as the compiler's errors, which this room must not import: one sentence naming file or field and remedy.
"""

from __future__ import annotations

from typing import ClassVar


class VerifierError(Exception):
    """Base of all expected failures of a verification."""

    exit_code: ClassVar[int] = 1

    def details(self) -> dict[str, str]:
        """Machine-readable form for ``--json``: ``{"error": class name, "message": sentence}``."""
        return {"error": type(self).__name__, "message": str(self)}


class UsageError(VerifierError):
    """Unreadable file, wrong argument, invalid trust root."""

    exit_code = 2


class UnsupportedError(VerifierError):
    """This machine cannot do it: no SM2 in its libcrypto, say."""

    exit_code = 4


class VerificationFailed(VerifierError):
    """A check failed; ``check`` is its stable name (for example ``signature-sm2``)."""

    exit_code = 1

    def __init__(self, check: str, message: str) -> None:
        super().__init__(message)
        self.check = check

    def details(self) -> dict[str, str]:
        return {**super().details(), "check": self.check}


class CertificateFailure(VerificationFailed):
    """A failed check of a certificate path, CRL, timestamp or keyring.

    ``check`` is one of ``certificate-path``, ``certificate-expired``, ``clock-before-issue``, ``certificate-revoked``,
    ``certificate-purpose``, ``unknown-key``, ``self-embedded-key``, ``timestamp``; ``reason`` is a finer stable word,
    for example ``path-length`` or ``crl-stale`` (docs/evidence.md lists them).
    """

    def __init__(self, check: str, reason: str, message: str) -> None:
        super().__init__(check, message)
        self.reason = reason

    def details(self) -> dict[str, str]:
        return {**super().details(), "reason": self.reason}
