"""RFC 3161 tokens: skeleton of the interface; the bodies follow in the next commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Timestamp:
    """A verified token: ``gen_time`` (aware, UTC), ``policy`` (dotted OID), ``serial``, ``tsa`` (common name),
    ``certificates``: DER of the path (leaf first), ``crls``: DER of the CRLs consulted (empty: revocation of the TSA
    not checked)."""

    gen_time: datetime
    policy: str
    serial: int
    tsa: str
    certificates: tuple[bytes, ...]
    crls: tuple[bytes, ...]


def imprint_of(signatures: Iterable[bytes]) -> bytes:
    """SHA-512 (64 bytes) over the concatenation of the raw signature values, in order."""
    raise NotImplementedError


def read_timestamp(
    token_der: bytes,
    imprint: bytes,
    roots: Sequence[bytes],
    at: datetime | None = None,
    *,
    intermediates: Sequence[bytes] = (),
    crls: Sequence[bytes] = (),
) -> Timestamp:
    """The verified token over ``imprint`` (64 bytes); raises ``CertificateFailure`` with check ``timestamp``.

    ``roots``: DER of the accepted TSA roots. ``at``: when the TSA's path is judged, genTime if ``None``.
    ``intermediates``: further certificates of the TSA's path that are not in the token.
    """
    raise NotImplementedError
