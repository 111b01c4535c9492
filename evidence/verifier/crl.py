"""Certificate revocation lists (RFC 5280 section 5) and the rule that judges a revoked certificate at a moment T.

A list counts when its issuer signed it, and when T lies between thisUpdate and nextUpdate or before thisUpdate: later
lists know more about T. A revoked certificate is judged as RFC 3161 section 4 judges a time-stamping authority's: for
``unspecified``, ``affiliationChanged``, ``superseded``, ``cessationOfOperation``, ``certificateHold`` and
``privilegeWithdrawn`` what was signed before the revocation stays good; for a compromise what was signed before the
invalidityDate. Without a reason, without invalidityDate after a compromise, or without a timestamp nothing stays good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from asn1crypto import core, crl, x509

from evidence.verifier.canonical import MalformedError
from evidence.verifier.certificate import (
    Certificate,
    check_signature,
    read_extensions,
    signature_algorithm,
    signature_octets,
)
from evidence.verifier.errors import CertificateFailure
from evidence.verifier.strict_der import native, parse

CHECK = "certificate-revoked"
COMPROMISE = ("key_compromise", "ca_compromise", "aa_compromise")
_REASON, _INVALIDITY_DATE, _CRL_NUMBER, _AUTHORITY = "2.5.29.21", "2.5.29.24", "2.5.29.20", "2.5.29.35"
_LIST_EXTENSIONS: dict[str, type[core.Asn1Value]] = {_CRL_NUMBER: core.Integer, _AUTHORITY: x509.AuthorityKeyIdentifier}
_ENTRY_EXTENSIONS: dict[str, type[core.Asn1Value]] = {_REASON: crl.CRLReason, _INVALIDITY_DATE: core.GeneralizedTime}


@dataclass(frozen=True)
class Revocation:
    """One entry: when, why (``None``: no reason given), since when the key is not to be trusted."""

    serial: int
    revoked_at: datetime
    reason: str | None
    invalidity_date: datetime | None


@dataclass(frozen=True)
class RevocationList:
    """A parsed list; ``issuer`` is the DER of the name. Nothing is trusted before ``check_revocation``."""

    der: bytes
    tbs: bytes
    signature: bytes
    signature_algorithm: str
    issuer: bytes
    issuer_name: str
    authority_identifier: bytes | None
    this_update: datetime
    next_update: datetime
    entries: tuple[Revocation, ...]

    def entry(self, serial: int) -> Revocation | None:
        return next((item for item in self.entries if item.serial == serial), None)


@lru_cache(maxsize=64)
def read_crl(der: bytes) -> RevocationList:
    """Read one list; ``CertificateFailure`` (``certificate-revoked``, ``crl-malformed``) when it breaks a rule."""
    try:
        return _read(der)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError):
        raise CertificateFailure(CHECK, "crl-malformed", "the revocation list cannot be parsed") from None
    except MalformedError as error:
        raise CertificateFailure(CHECK, "crl-malformed", str(error)) from None
    except CertificateFailure as error:
        raise CertificateFailure(CHECK, "crl-malformed", str(error)) from None


def _read(der: bytes) -> RevocationList:
    parsed = parse(crl.CertificateList, der, "the revocation list")
    tbs = parsed["tbs_cert_list"]
    issuer_name = str(native(tbs["issuer"], "the revocation list's issuer").get("common_name", ""))
    where = f"the revocation list of {issuer_name!r}"
    if native(tbs["version"], where) != "v2":
        raise MalformedError(f"{where} is not of version 2")
    if isinstance(tbs["next_update"], core.Void):
        raise MalformedError(f"{where} has no nextUpdate")
    values = read_extensions(tbs["crl_extensions"], _LIST_EXTENSIONS, where, CHECK)
    authority = values.get(_AUTHORITY, (False, None))[1]
    identifier = None if authority is None else authority["key_identifier"]
    revoked = tbs["revoked_certificates"]
    entries = () if isinstance(revoked, core.Void) else tuple(_entry(item, where) for item in revoked)
    if len({item.serial for item in entries}) != len(entries):
        raise MalformedError(f"{where} names a serial number twice")
    return RevocationList(
        der,
        tbs.dump(),
        signature_octets(parsed["signature"], where),
        signature_algorithm(parsed["signature_algorithm"], tbs["signature"], where),
        tbs["issuer"].dump(),
        issuer_name,
        None if identifier is None or isinstance(identifier, core.Void) else bytes(identifier.native),
        native(tbs["this_update"], where),
        native(tbs["next_update"], where),
        entries,
    )


def _entry(item: core.Sequence, where: str) -> Revocation:
    values = read_extensions(item["crl_entry_extensions"], _ENTRY_EXTENSIONS, f"an entry of {where}", CHECK)
    reason = values.get(_REASON, (False, None))[1]
    invalidity = values.get(_INVALIDITY_DATE, (False, None))[1]
    return Revocation(
        native(item["user_certificate"], where),
        native(item["revocation_date"], where),
        None if reason is None else str(native(reason, where)),
        None if invalidity is None else native(invalidity, where),
    )


def check_revocation(
    subject: Certificate,
    issuer: Certificate,
    lists: Sequence[bytes],
    at: datetime,
    *,
    stamped: bool,
    self_timed: bool = False,
) -> tuple[bytes, ...]:
    """DER of every list of ``issuer`` consulted; ``CertificateFailure`` when ``subject`` is not good at ``at``.

    Reasons: ``crl-absent``, ``crl-stale``, ``crl-wrong-issuer`` (right name, other key), ``crl-malformed``, or that of
    the revocation.
    """
    candidates = [item for item in map(read_crl, lists) if item.issuer == issuer.subject]
    if not candidates:
        others = ", ".join(sorted({repr(read_crl(der).issuer_name) for der in lists})) or "none"
        raise CertificateFailure(
            CHECK, "crl-absent", f"there is no revocation list of {issuer.common_name!r} (those given: {others})"
        )
    for item in candidates:
        _check_list(item, issuer)
    current = [item for item in candidates if item.next_update >= at]
    if not current:
        raise CertificateFailure(
            CHECK,
            "crl-stale",
            f"the revocation list of {issuer.common_name!r} ended on {candidates[-1].next_update:%Y-%m-%dT%H:%M:%SZ}, "
            f"before {at:%Y-%m-%dT%H:%M:%SZ}; add a later one",
        )
    for item in current:
        entry = item.entry(subject.serial)
        if entry is not None:
            judge_revocation(
                subject.label,
                entry.revoked_at,
                entry.reason,
                # Whoever has a time-stamping authority's key also chooses the time that its tokens state.
                None if self_timed else entry.invalidity_date,
                at,
                stamped=stamped,
            )
    return tuple(item.der for item in candidates)


def _check_list(item: RevocationList, issuer: Certificate) -> None:
    where = f"the revocation list of {item.issuer_name!r}"
    if "crl_sign" not in issuer.usage:
        raise CertificateFailure(CHECK, "crl-wrong-issuer", f"{issuer.label} may not sign revocation lists")
    if item.authority_identifier not in (None, issuer.key_identifier):
        raise CertificateFailure(CHECK, "crl-wrong-issuer", f"{where} names another key than that of {issuer.label}")
    try:
        check_signature(issuer, item.signature_algorithm, item.tbs, item.signature, where)
    except CertificateFailure as error:
        raise CertificateFailure(CHECK, "crl-wrong-issuer", str(error)) from None


def judge_revocation(
    what: str,
    revoked_at: datetime,
    reason: str | None,
    invalidity_date: datetime | None,
    at: datetime,
    *,
    stamped: bool,
) -> None:
    """``CertificateFailure`` (reason: that of the revocation, with ``-`` for ``_``) unless ``at`` is early enough.

    ``what``: a noun for the sentence. ``reason``: RFC 5280 CRLReason as asn1crypto writes it, or ``None``.
    """
    slug = (reason or "no-reason").replace("_", "-")
    said = f"{what} was revoked on {revoked_at:%Y-%m-%dT%H:%M:%SZ} ({slug})"
    if not stamped:
        raise CertificateFailure(CHECK, slug, f"{said}, and no timestamp proves that the signature is older")
    if reason is None:
        raise CertificateFailure(CHECK, slug, f"{said}; without a reason nothing it signed is accepted")
    limit = invalidity_date if reason in COMPROMISE else revoked_at
    if limit is None:
        raise CertificateFailure(CHECK, slug, f"{said}; without an invalidity date nothing it signed is accepted")
    if at >= limit:
        raise CertificateFailure(
            CHECK, slug, f"{said}; the signature of {at:%Y-%m-%dT%H:%M:%SZ} is not before {limit:%Y-%m-%dT%H:%M:%SZ}"
        )
