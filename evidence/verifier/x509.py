"""Certificate paths: skeleton of the interface; the bodies follow in the next commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evidence.verifier.errors import VerificationFailed

CODE_SIGNING = "1.3.6.1.5.5.7.3.3"  # build and release keys
DOCUMENT_SIGNING = "1.3.6.1.5.5.7.3.36"  # approvals
TIME_STAMPING = "1.3.6.1.5.5.7.3.8"
DEPLOYMENT = "2.25.294327712373093217353171013131526083071"  # device keys


class CertificateFailure(VerificationFailed):
    """A failed path, CRL, timestamp or keyring check: ``check`` is the stable check name of the report
    (``certificate-path``, ``certificate-expired``, ``clock-before-issue``, ``certificate-revoked``,
    ``certificate-purpose``, ``unknown-key``, ``self-embedded-key``, ``timestamp``), ``reason`` a finer stable slug."""

    def __init__(self, check: str, reason: str, message: str) -> None:
        super().__init__(check, message)
        self.reason = reason


@dataclass(frozen=True)
class Path:
    """A verified path. ``certificates``: DER, leaf first, root last. ``crls``: DER of every CRL consulted.
    ``spki``: DER of the leaf's public key. ``common_name``: of the leaf's subject."""

    certificates: tuple[bytes, ...]
    crls: tuple[bytes, ...]
    spki: bytes
    algorithm: str
    common_name: str


def verify_chain(
    leaf_der: bytes,
    intermediates: Sequence[bytes],
    roots: Sequence[bytes],
    crls: Sequence[bytes],
    at: datetime,
    purpose: str,
    *,
    stamped: bool = False,
    require_crls: bool = True,
) -> Path:
    """The path from ``leaf_der`` to one of ``roots``, all DER; raises ``CertificateFailure``.

    ``at``: aware datetime at which everything is judged. ``stamped``: whether ``at`` is the genTime of a verified
    timestamp; without one every revoked certificate is refused whenever it was revoked.
    """
    raise NotImplementedError
