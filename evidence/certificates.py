"""Certificates and revocation lists made from public keys by any ``Signer`` (RFC 5280, GM/T 0015).

The private key stays behind the ``Signer``: a module that holds it (PKCS#11, TPM) only has to sign the bytes.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from asn1crypto import crl, keys, x509

from evidence.verifier.certificate import Certificate, read_certificate
from evidence.verifier.crl import Revocation, read_crl
from evidence.verifier.public_keys import SIGNATURE_OIDS
from evidence.verifier.signing import Signer
from evidence.verifier.x509 import TIME_STAMPING

_OIDS = {algorithm: oid for oid, algorithm in SIGNATURE_OIDS.items()}
_LAST_UTC_TIME = datetime(2050, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Profile:
    """What a certificate says: subject (common name), validity (aware), and what its key may do.

    An authority has ``path_length`` (authorities allowed below it) and no purpose; a leaf has one purpose (OID).
    """

    common_name: str
    not_before: datetime
    not_after: datetime
    path_length: int | None = None
    purpose: str | None = None

    @property
    def authority(self) -> bool:
        return self.purpose is None


def issue_certificate(
    profile: Profile, spki: bytes, signer: Signer, issuer: Certificate | None, serial: int | None = None
) -> bytes:
    """DER of a certificate for public key ``spki`` (DER), signed by ``signer``; ``issuer`` is ``None`` for a root.

    ``serial``: a positive number below 2**159; random (127 bits) when ``None``. The result has been read back strictly.
    """
    name = x509.Name.build({"common_name": profile.common_name})
    identifier = key_identifier(spki)
    above = identifier if issuer is None else issuer.key_identifier
    extensions: list[dict[str, Any]] = [
        {"extn_id": "basic_constraints", "critical": True, "extn_value": _constraints(profile)},
        {"extn_id": "key_usage", "critical": True, "extn_value": _usage(profile)},
        {"extn_id": "key_identifier", "extn_value": identifier},
        {"extn_id": "authority_key_identifier", "extn_value": {"key_identifier": above}},
    ]
    if profile.purpose is not None:
        # RFC 3161 section 2.3 demands criticality for time stamping; elsewhere older readers may skip the extension.
        extensions.append(
            {
                "extn_id": "extended_key_usage",
                "critical": profile.purpose == TIME_STAMPING,
                "extn_value": [profile.purpose],
            }
        )
    algorithm = {"algorithm": _OIDS[signer.algorithm]}
    tbs = x509.TbsCertificate(
        {
            "version": "v3",
            "serial_number": secrets.randbits(126) | 1 << 126 if serial is None else serial,
            "signature": algorithm,
            "issuer": name if issuer is None else x509.Name.load(issuer.subject),
            "validity": {"not_before": _time(profile.not_before), "not_after": _time(profile.not_after)},
            "subject": name,
            "subject_public_key_info": keys.PublicKeyInfo.load(spki),
            "extensions": extensions,
        }
    )
    signed = {"tbs_certificate": tbs, "signature_algorithm": algorithm, "signature_value": signer.sign(tbs.dump())}
    return read_certificate(x509.Certificate(signed).dump()).der


def issue_crl(
    issuer: Certificate,
    signer: Signer,
    number: int,
    this_update: datetime,
    next_update: datetime,
    entries: Sequence[Revocation],
) -> bytes:
    """DER of a version 2 revocation list with ``number``; times are aware. The result has been read back strictly."""
    algorithm = {"algorithm": _OIDS[signer.algorithm]}
    body: dict[str, Any] = {
        "version": "v2",
        "signature": algorithm,
        "issuer": x509.Name.load(issuer.subject),
        "this_update": _time(this_update),
        "next_update": _time(next_update),
        "crl_extensions": [
            {"extn_id": "authority_key_identifier", "extn_value": {"key_identifier": issuer.key_identifier}},
            {"extn_id": "crl_number", "extn_value": number},
        ],
    }
    if entries:
        body["revoked_certificates"] = [_entry(item) for item in entries]
    tbs = crl.TbsCertList(body)
    signed = {"tbs_cert_list": tbs, "signature_algorithm": algorithm, "signature": signer.sign(tbs.dump())}
    return read_crl(crl.CertificateList(signed).dump()).der


def key_identifier(spki: bytes) -> bytes:
    """20 octets: the leading 160 bits of SHA-256 over the key's bit string (RFC 7093 section 2, method 1)."""
    point: bytes = keys.PublicKeyInfo.load(spki)["public_key"].contents
    return hashlib.sha256(point[1:]).digest()[:20]


def _constraints(profile: Profile) -> dict[str, Any]:
    if not profile.authority:
        return {"ca": False}
    limit = {} if profile.path_length is None else {"path_len_constraint": profile.path_length}
    return {"ca": True, **limit}


def _usage(profile: Profile) -> set[str]:
    return {"key_cert_sign", "crl_sign"} if profile.authority else {"digital_signature"}


def _time(moment: datetime) -> x509.Time:
    """RFC 5280 section 4.1.2.5: UTCTime through 2049, GeneralizedTime after it; whole seconds."""
    whole = moment.astimezone(UTC).replace(microsecond=0)
    return x509.Time({"utc_time" if whole < _LAST_UTC_TIME else "general_time": whole})


def _entry(item: Revocation) -> dict[str, Any]:
    extensions: list[dict[str, Any]] = []
    if item.reason is not None:
        extensions.append({"extn_id": "crl_reason", "extn_value": item.reason})
    if item.invalidity_date is not None:
        extensions.append({"extn_id": "invalidity_date", "extn_value": item.invalidity_date.replace(microsecond=0)})
    entry: dict[str, Any] = {"user_certificate": item.serial, "revocation_date": _time(item.revoked_at)}
    return entry | ({"crl_entry_extensions": extensions} if extensions else {})
