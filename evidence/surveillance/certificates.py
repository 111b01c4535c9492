"""Certificates, keys and revocation lists of a trust root: what has expired, and what will within so many days."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from evidence.surveillance.findings import Finding
from evidence.verifier.certificate import read_certificate
from evidence.verifier.crl import read_crl
from evidence.verifier.errors import CertificateFailure
from evidence.verifier.trust import TrustRoot

CRL_DAYS = 7
"""Revocation lists live for weeks: the days of certificates would always warn."""


def check_certificates(root: TrustRoot, now: datetime, days: int) -> Iterator[Finding]:
    """Findings at ``now`` (aware) about everything in ``root`` that ends within ``days``.

    An end that has passed is a ``failure``, one ahead a ``warning``. A key that was revoked or has a successor is
    nobody's to renew and is passed over.
    """
    for kind, ders in (("root certificate", root.roots), ("timestamping root certificate", root.tsa_roots)):
        for der in ders:
            found = read_certificate(der)
            subject = f"{kind} {found.common_name} ({found.verifier.algorithm})"
            yield from _ending("certificate-expiry", subject, found.not_after, now, days, "issue a new one")
    for der in root.crls:
        try:
            crl = read_crl(der)
        except CertificateFailure as error:
            yield Finding("failure", "revocation-list", "revocation list", f"{error}; run `cuvil keys crl`")
            continue
        subject = f"revocation list of {crl.issuer_name}"
        yield from _ending(
            "revocation-list", subject, crl.next_update, now, min(days, CRL_DAYS), "run `cuvil keys crl`"
        )
    for entry in root.keyring.entries if root.keyring is not None else ():
        if entry.revoked_at is None and entry.successor is None:
            subject = f"key {entry.key_id[:16]} of {entry.person} ({', '.join(entry.roles)})"
            yield from _ending("certificate-expiry", subject, entry.not_after, now, days, "run `cuvil keys rotate`")


def check_signers(root: TrustRoot, partition: str, key_ids: list[str]) -> Iterator[Finding]:
    """A key that signed for ``partition`` and is no longer trusted, or was revoked since."""
    ring = root.keyring
    for identifier in key_ids:
        entry = ring.entry(identifier) if ring is not None else None
        if entry is None and root.key(identifier) is None:
            yield Finding(
                "failure",
                "unknown-key",
                partition,
                f"it is signed with the key {identifier[:16]}, which this trust root does not hold; build it again "
                "with a trusted key, or restore the trust root",
            )
        elif entry is not None and entry.revoked_at is not None:
            yield Finding(
                "failure",
                "revoked-key",
                partition,
                f"the key {identifier[:16]} of {entry.person}, which signed it, was revoked ({entry.reason}); "
                "release it again with another key",
            )


def _ending(check: str, subject: str, end: datetime, now: datetime, days: int, remedy: str) -> Iterator[Finding]:
    if end <= now:
        yield Finding("failure", check, subject, f"ended on {end:%Y-%m-%d}; {remedy}")
    elif end <= now + timedelta(days=days):
        left = (end - now).days
        yield Finding("warning", check, subject, f"ends on {end:%Y-%m-%d}, in {left} days; {remedy}")
