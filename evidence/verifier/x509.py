"""Certificate paths (RFC 5280 section 6, the part that three levels need): found, and validated at a stated moment.

Root, issuing authority and leaf, each with an SM2 or P-384 key. Names are compared as DER, not by the folding rules of
RFC 5280 section 7.1: an authority that spells its name in two ways does not chain here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from evidence.verifier.certificate import PATH, Certificate, check_signature, read_certificate
from evidence.verifier.crl import check_revocation, read_crl
from evidence.verifier.errors import CertificateFailure

__all__ = [
    "CODE_SIGNING",
    "DEPLOYMENT",
    "DOCUMENT_SIGNING",
    "PURPOSES",
    "TIME_STAMPING",
    "CertificateFailure",
    "Path",
    "check_root",
    "verify_chain",
]

# RFC 5280 section 4.2.1.12, RFC 9336 (document signing), and an OID of our own under ITU-T X.667's 2.25 arc.
CODE_SIGNING = "1.3.6.1.5.5.7.3.3"
DOCUMENT_SIGNING = "1.3.6.1.5.5.7.3.36"
TIME_STAMPING = "1.3.6.1.5.5.7.3.8"
DEPLOYMENT = "2.25.246294243461731093860248976461443487932"
PURPOSES = {
    CODE_SIGNING: "code signing",
    DOCUMENT_SIGNING: "document signing",
    TIME_STAMPING: "time stamping",
    DEPLOYMENT: "deployment",
}
MAX_LEVELS = 3


@dataclass(frozen=True)
class Path:
    """A verified path. ``certificates``: DER, leaf first, root last. ``crls``: DER of every list consulted.

    ``spki``: the leaf's public key (DER), ``algorithm`` its signature algorithm, ``common_name`` that of its subject.
    """

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

    ``at``: aware datetime at which everything is judged. ``purpose``: the OID the leaf must be issued for, and for
    nothing else. ``stamped``: whether ``at`` is the genTime of a verified timestamp; without one every revoked
    certificate is refused whenever it was revoked. ``require_crls=False``: a level without any list of its issuer is
    accepted; a list that is there is checked all the same.

    Checks and reasons: ``certificate-path`` (``der``, ``version``, ``serial``, ``key``, ``extension``,
    ``critical-extension``, ``signature-algorithm``, ``signature``, ``sm2-without-identity``, ``key-identifier``,
    ``not-a-ca``, ``path-length``, ``depth``, ``issuer-missing``); ``unknown-key`` (``unknown-root``);
    ``self-embedded-key`` (``self-signed-leaf``, ``embedded-root``); ``certificate-expired`` (``expired``);
    ``clock-before-issue`` (``not-yet-valid``); ``certificate-purpose`` (``purpose``, ``key-usage``);
    ``certificate-revoked`` (see ``check_revocation``).
    """
    trusted = [check_root(der) for der in roots]
    path = _build(read_certificate(leaf_der), [read_certificate(der) for der in intermediates], trusted)
    _check_purpose(path, purpose)
    for depth, certificate in enumerate(path):
        if depth:
            _check_authority(certificate, depth)
        _check_validity(certificate, at)
    consulted: list[bytes] = []
    for subject, issuer in pairwise(path):
        if require_crls or any(_is_list_of(der, issuer) for der in crls):
            consulted += check_revocation(
                subject, issuer, crls, at, stamped=stamped, self_timed=purpose == TIME_STAMPING
            )
    leaf = path[0]
    return Path(
        tuple(item.der for item in path), tuple(consulted), leaf.spki, leaf.verifier.algorithm, leaf.common_name
    )


def check_root(der: bytes) -> Certificate:
    """A root certificate: an authority that signed itself; ``CertificateFailure`` otherwise."""
    root = read_certificate(der)
    if not root.self_issued:
        raise CertificateFailure(PATH, "root", f"{root.label} is given as a root but was issued by another authority")
    check_signature(root, root.signature_algorithm, root.tbs, root.signature, root.label)
    _check_authority(root, None)
    return root


def _build(leaf: Certificate, others: Sequence[Certificate], roots: Sequence[Certificate]) -> list[Certificate]:
    """Leaf to root by names, key identifiers and signatures."""
    if leaf.der not in [root.der for root in roots] and _signs_itself(leaf):
        raise CertificateFailure(
            "self-embedded-key", "self-signed-leaf", f"{leaf.label} is signed by itself, which proves nothing"
        )
    path = [leaf]
    while True:
        last = path[-1]
        root = _issuer_among(last, roots)
        if root is not None:
            path.append(root)
            break
        issuer = _issuer_among(last, [item for item in others if item not in path])
        if issuer is None:
            raise CertificateFailure(
                "unknown-key",
                "unknown-root",
                f"{last.label} was issued by an authority that the trust root does not have",
            )
        path.append(issuer)
        if issuer.self_issued:
            raise CertificateFailure(
                "self-embedded-key",
                "embedded-root",
                f"the path ends in {issuer.label}, which travels with the signature and is no root of the verifier",
            )
        if len(path) > MAX_LEVELS:
            break
    if len(path) > MAX_LEVELS:
        raise CertificateFailure(PATH, "depth", f"the path of {leaf.label} has more than {MAX_LEVELS} levels")
    return path


def _signs_itself(certificate: Certificate) -> bool:
    if not certificate.self_issued:
        return False
    try:
        check_signature(
            certificate, certificate.signature_algorithm, certificate.tbs, certificate.signature, certificate.label
        )
    except CertificateFailure:
        return False
    return True


def _issuer_among(subject: Certificate, candidates: Sequence[Certificate]) -> Certificate | None:
    """The candidate that issued ``subject``; ``None`` when no name matches; raises when only names do."""
    named = [item for item in candidates if item.subject == subject.issuer]
    if not named:
        return None
    if subject.authority_identifier is None:
        raise CertificateFailure(PATH, "key-identifier", f"{subject.label} does not identify its issuer's key")
    keyed = [item for item in named if item.key_identifier == subject.authority_identifier]
    if not keyed:
        raise CertificateFailure(
            PATH, "key-identifier", f"{subject.label} names another key than that of {named[0].label}"
        )
    # Two certificates of one authority (renewed, same key) both verify; the first one is as good as the second.
    failure: CertificateFailure | None = None
    for item in keyed:
        try:
            check_signature(item, subject.signature_algorithm, subject.tbs, subject.signature, subject.label)
        except CertificateFailure as error:
            failure = failure or error
        else:
            return item
    assert failure is not None
    raise failure


def _check_authority(certificate: Certificate, depth: int | None) -> None:
    """``depth``: certificates below it in the path, the leaf included; ``None``: not yet in a path."""
    if not certificate.ca:
        raise CertificateFailure(PATH, "not-a-ca", f"{certificate.label} issued a certificate but is no authority")
    if "key_cert_sign" not in certificate.usage:
        raise CertificateFailure(PATH, "not-a-ca", f"{certificate.label} may not sign certificates (keyUsage)")
    if certificate.key_identifier is None:
        raise CertificateFailure(PATH, "key-identifier", f"{certificate.label} has no subjectKeyIdentifier")
    limit = certificate.path_length
    if depth is not None and limit is not None and depth - 1 > limit:
        raise CertificateFailure(
            PATH, "path-length", f"{certificate.label} allows {limit} authorities below it, the path has {depth - 1}"
        )


def _check_validity(certificate: Certificate, at: datetime) -> None:
    if at < certificate.not_before:
        raise CertificateFailure(
            "clock-before-issue",
            "not-yet-valid",
            f"{certificate.label} is valid from {certificate.not_before:%Y-%m-%dT%H:%M:%SZ}, "
            f"after the time of signing {at:%Y-%m-%dT%H:%M:%SZ}",
        )
    if at > certificate.not_after:
        raise CertificateFailure(
            "certificate-expired",
            "expired",
            f"{certificate.label} expired on {certificate.not_after:%Y-%m-%dT%H:%M:%SZ}, "
            f"before the time of signing {at:%Y-%m-%dT%H:%M:%SZ}",
        )


def _check_purpose(path: Sequence[Certificate], purpose: str) -> None:
    leaf, wanted = path[0], PURPOSES.get(purpose, purpose)
    if leaf.ca or "key_cert_sign" in leaf.usage:
        raise CertificateFailure("certificate-purpose", "key-usage", f"{leaf.label} is an authority, not a signer")
    if "digital_signature" not in leaf.usage:
        raise CertificateFailure("certificate-purpose", "key-usage", f"{leaf.label} is not for digital signatures")
    if leaf.purposes != frozenset((purpose,)):
        issued = ", ".join(sorted(PURPOSES.get(oid, oid) for oid in leaf.purposes or ())) or "no stated purpose"
        raise CertificateFailure(
            "certificate-purpose", "purpose", f"{leaf.label} is issued for {issued}, not for {wanted} alone"
        )
    for authority in path[1:]:
        if authority.purposes is not None and purpose not in authority.purposes:
            raise CertificateFailure(
                "certificate-purpose", "purpose", f"{authority.label} may not issue certificates for {wanted}"
            )


def _is_list_of(der: bytes, issuer: Certificate) -> bool:
    return read_crl(der).issuer == issuer.subject
