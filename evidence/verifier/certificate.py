"""One certificate (RFC 5280): read strictly into plain fields, and its signature checked.

Accepted are version 3 certificates with an SM2 or P-384 key, signed with SM2-with-SM3 (GM/T 0015, default identity) or
ecdsa-with-SHA384. A critical extension that is not understood here is refused, as RFC 5280 section 4.2 demands.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from asn1crypto import algos, core, x509

from evidence.verifier.canonical import MalformedError
from evidence.verifier.errors import CertificateFailure, UsageError
from evidence.verifier.public_keys import SIGNATURE_OIDS, verifier_of
from evidence.verifier.signing import SM2, Verifier
from evidence.verifier.sm2 import Sm2Verifier
from evidence.verifier.strict_der import native, parse

PATH = "certificate-path"
_BASIC_CONSTRAINTS, _KEY_USAGE, _EXTENDED_KEY_USAGE = "2.5.29.19", "2.5.29.15", "2.5.29.37"
_SUBJECT_KEY_IDENTIFIER, _AUTHORITY_KEY_IDENTIFIER = "2.5.29.14", "2.5.29.35"
_UNDERSTOOD: dict[str, type[core.Asn1Value]] = {
    _BASIC_CONSTRAINTS: x509.BasicConstraints,
    _KEY_USAGE: x509.KeyUsage,
    _EXTENDED_KEY_USAGE: x509.ExtKeyUsageSyntax,
    _SUBJECT_KEY_IDENTIFIER: core.OctetString,
    _AUTHORITY_KEY_IDENTIFIER: x509.AuthorityKeyIdentifier,
}
_MAX_SERIAL_OCTETS = 20


@dataclass(frozen=True)
class Certificate:
    """The fields that path validation needs; ``subject`` and ``issuer`` are the DER of the names.

    ``path_length``: ``None`` when not limited. ``usage``: names of RFC 5280 as in asn1crypto (``key_cert_sign``).
    ``purposes``: OIDs of extendedKeyUsage, ``None`` when the extension is absent.
    """

    der: bytes
    tbs: bytes
    signature: bytes
    signature_algorithm: str
    subject: bytes
    issuer: bytes
    common_name: str
    serial: int
    spki: bytes
    not_before: datetime
    not_after: datetime
    ca: bool
    path_length: int | None
    usage: frozenset[str]
    purposes: frozenset[str] | None
    purposes_critical: bool
    key_identifier: bytes | None
    authority_identifier: bytes | None

    @cached_property
    def verifier(self) -> Verifier:
        return verifier_of(self.spki)

    @property
    def self_issued(self) -> bool:
        return self.subject == self.issuer

    @property
    def label(self) -> str:
        """How sentences name it."""
        return f"certificate {self.common_name!r} (serial {self.serial:x})"

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the DER."""
        return hashlib.sha256(self.der).hexdigest()


@lru_cache(maxsize=256)
def read_certificate(der: bytes) -> Certificate:
    """Read one certificate; ``CertificateFailure`` (``certificate-path``) naming what is wrong with it."""
    try:
        return _read(der)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError):
        # asn1crypto parses lazily; what it refuses below the top level surfaces here.
        raise CertificateFailure(PATH, "der", "the certificate cannot be parsed") from None
    except MalformedError as error:
        raise CertificateFailure(PATH, "der", str(error)) from None


def _read(der: bytes) -> Certificate:
    parsed = parse(x509.Certificate, der, "the certificate")
    tbs = parsed["tbs_certificate"]
    if native(tbs["version"], "the certificate's version") != "v3":
        raise CertificateFailure(PATH, "version", "a certificate is not of version 3")
    serial = native(tbs["serial_number"], "the certificate's serial number")
    if serial <= 0 or len(tbs["serial_number"].contents) > _MAX_SERIAL_OCTETS:
        raise CertificateFailure(PATH, "serial", "a certificate's serial number is not positive or above 20 octets")
    name = _common_name(tbs["subject"])
    where = f"certificate {name!r}"
    algorithm = signature_algorithm(parsed["signature_algorithm"], tbs["signature"], where)
    values = read_extensions(tbs["extensions"], _UNDERSTOOD, where, PATH)
    constraints = values.get(_BASIC_CONSTRAINTS, (False, None))[1]
    purposes_critical, purposes = values.get(_EXTENDED_KEY_USAGE, (False, None))
    if purposes is not None and not len(purposes):
        raise CertificateFailure(PATH, "extension", f"{where} has an empty extendedKeyUsage")
    authority = values.get(_AUTHORITY_KEY_IDENTIFIER, (False, None))[1]
    spki = tbs["subject_public_key_info"].dump()
    certificate = Certificate(
        der=der,
        tbs=tbs.dump(),
        signature=signature_octets(parsed["signature_value"], where),
        signature_algorithm=algorithm,
        subject=tbs["subject"].dump(),
        issuer=tbs["issuer"].dump(),
        common_name=name,
        serial=serial,
        spki=spki,
        not_before=native(tbs["validity"]["not_before"], f"{where} validity"),
        not_after=native(tbs["validity"]["not_after"], f"{where} validity"),
        ca=constraints is not None and bool(constraints["ca"].native),
        path_length=None if constraints is None else constraints["path_len_constraint"].native,
        usage=frozenset(values[_KEY_USAGE][1].native) if _KEY_USAGE in values else frozenset(),
        purposes=None if purposes is None else frozenset(item.dotted for item in purposes),
        purposes_critical=purposes_critical,
        key_identifier=_octets(values.get(_SUBJECT_KEY_IDENTIFIER, (False, None))[1]),
        authority_identifier=None if authority is None else _octets(authority["key_identifier"]),
    )
    try:
        _ = certificate.verifier
    except UsageError as error:
        raise CertificateFailure(PATH, "key", f"{where}: {error}") from None
    return certificate


def signature_algorithm(outer: Any, inner: Any, where: str) -> str:
    """The one algorithm that both fields name, without parameters; ``CertificateFailure`` otherwise."""
    oid = outer["algorithm"].dotted
    if outer.dump() != inner.dump():
        raise CertificateFailure(PATH, "signature-algorithm", f"{where} names two signature algorithms")
    if oid not in SIGNATURE_OIDS:
        raise CertificateFailure(
            PATH,
            "signature-algorithm",
            f"{where} is signed with {oid}; accepted are SM2-with-SM3 and ecdsa-with-SHA384",
        )
    # GM/T allows an explicit NULL where OpenSSL writes nothing.
    if outer.dump() not in [algos.SignedDigestAlgorithm({"algorithm": oid, **p}).dump() for p in _parameters(oid)]:
        raise CertificateFailure(PATH, "signature-algorithm", f"{where} gives its signature algorithm parameters")
    return SIGNATURE_OIDS[oid]


def _parameters(oid: str) -> tuple[dict[str, core.Null], ...]:
    return ({}, {"parameters": core.Null()}) if SIGNATURE_OIDS[oid] == SM2 else ({},)


def signature_octets(value: Any, where: str) -> bytes:
    """The octets of a signature BIT STRING; ``MalformedError`` when its last octet is not whole."""
    contents: bytes = value.contents
    if not contents or contents[0] != 0:
        raise MalformedError(f"{where} has a signature that is no whole number of octets")
    return contents[1:]


def check_signature(signer: Certificate, algorithm: str, message: bytes, signature: bytes, where: str) -> None:
    """``CertificateFailure`` unless ``signature`` over ``message`` is ``signer``'s; names an SM2 one without Z."""
    verifier = signer.verifier
    if verifier.algorithm != algorithm:
        raise CertificateFailure(
            PATH, "signature-algorithm", f"{where} is signed with {algorithm}, its issuer's key is {verifier.algorithm}"
        )
    if verifier.verify(message, signature):
        return
    if isinstance(verifier, Sm2Verifier) and verifier.verifies_without_identity(message, signature):
        raise CertificateFailure(
            PATH,
            "sm2-without-identity",
            f"{where} is signed without the signer's SM2 identity (OpenSSL without distid); "
            "issue it again with the identity 1234567812345678",
        )
    raise CertificateFailure(PATH, "signature", f"{where} is not signed by the key of {signer.label}")


def read_extensions(
    extensions: Any, understood: dict[str, type[core.Asn1Value]], where: str, check: str
) -> dict[str, tuple[bool, Any]]:
    """OID to ``(critical, parsed value)`` of the extensions in ``understood``.

    ``CertificateFailure`` under the name ``check`` for a critical one that is not understood, and for one given twice.
    """
    found: dict[str, tuple[bool, Any]] = {}
    seen: set[str] = set()
    for item in [] if isinstance(extensions, core.Void) else extensions:
        oid, critical = item["extn_id"].dotted, bool(item["critical"].native)
        if oid in seen:
            raise CertificateFailure(check, "extension", f"{where} has the extension {oid} twice")
        seen.add(oid)
        if oid in understood:
            found[oid] = (critical, parse(understood[oid], item["extn_value"].contents, f"{where} extension {oid}"))
        elif critical:
            raise CertificateFailure(
                check, "critical-extension", f"{where} has the critical extension {oid}, which is not understood here"
            )
    return found


def _octets(value: Any) -> bytes | None:
    return None if value is None or isinstance(value, core.Void) else bytes(value.native)


def _common_name(name: Any) -> str:
    found = native(name, "the certificate's subject").get("common_name", "")
    return found if isinstance(found, str) and found.isprintable() else ""
