"""RFC 3161 timestamp tokens: a CMS SignedData (RFC 5652) over a TSTInfo, checked without the request.

Stricter than the standards where they leave bytes free that no signature covers: the token must be DER and re-encode
identically, has exactly one signer, no unsigned attributes, no revocation lists, and no certificate outside the path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# tsp registers the content types and attributes of RFC 3161 with cms; without it TSTInfo stays opaque.
from asn1crypto import algos, cms, core, tsp

from evidence.verifier.canonical import MalformedError
from evidence.verifier.certificate import Certificate, read_certificate
from evidence.verifier.errors import CertificateFailure
from evidence.verifier.public_keys import SIGNATURE_OIDS
from evidence.verifier.signing import P384
from evidence.verifier.strict_der import check_sorted, native, parse
from evidence.verifier.x509 import TIME_STAMPING, Path, verify_chain

CHECK = "timestamp"
_SIGNED_DATA, _TST_INFO = "1.2.840.113549.1.7.2", "1.2.840.113549.1.9.16.1.4"
_CONTENT_TYPE, _MESSAGE_DIGEST = "1.2.840.113549.1.9.3", "1.2.840.113549.1.9.4"
_SIGNING_CERTIFICATE_V2 = "1.2.840.113549.1.9.16.2.47"
_SHA256, _SHA384, _SHA512 = "2.16.840.1.101.3.4.2.1", "2.16.840.1.101.3.4.2.2", "2.16.840.1.101.3.4.2.3"
_HASHES = {_SHA256: "sha256", _SHA384: "sha384", _SHA512: "sha512"}


@dataclass(frozen=True)
class Timestamp:
    """A verified token: ``gen_time`` (aware, UTC), ``policy`` (dotted OID), ``serial``, ``tsa`` (common name).

    ``certificates``: DER of the authority's path, leaf first. ``crls``: DER of the lists consulted; empty when the
    authority's revocation was not checked. ``nonce`` is that of the request, if any.
    """

    gen_time: datetime
    policy: str
    serial: int
    tsa: str
    certificates: tuple[bytes, ...]
    crls: tuple[bytes, ...]
    nonce: int | None = None


def imprint_of(signatures: Iterable[bytes]) -> bytes:
    """SHA-512 (64 bytes) over the concatenation of the raw signature values, in order."""
    return hashlib.sha512(b"".join(signatures)).digest()


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

    ``roots``: DER of the accepted authorities' roots. ``at``: when the authority's path is judged, genTime if ``None``.
    ``intermediates``: certificates of the authority's path that are not in the token. Lists in ``crls`` of the path's
    issuers are checked; a level without one is accepted and ``Timestamp.crls`` lacks it.

    Reasons: ``der``, ``signers``, ``unsigned``, ``content``, ``algorithm``, ``attributes``, ``signing-certificate``,
    ``certificates``, ``imprint``, ``signature``, ``tsa-name``, ``not-critical``, and those of ``verify_chain``.
    """
    try:
        return _read(token_der, imprint, roots, at, intermediates, crls)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError):
        # asn1crypto parses lazily; what it refuses below the top level surfaces here.
        raise _failure("der", "the timestamp token cannot be parsed") from None
    except MalformedError as error:
        raise _failure("der", str(error)) from None
    except CertificateFailure as error:
        message = str(error) if error.check == CHECK else f"the timestamp is not trusted: {error}"
        raise CertificateFailure(CHECK, error.reason, message) from None


def _failure(reason: str, message: str) -> CertificateFailure:
    return CertificateFailure(CHECK, reason, message)


def _read(
    token_der: bytes,
    imprint: bytes,
    roots: Sequence[bytes],
    at: datetime | None,
    intermediates: Sequence[bytes],
    crls: Sequence[bytes],
) -> Timestamp:
    token = parse(cms.ContentInfo, token_der, "the timestamp token", again=False)
    if token["content_type"].dotted != _SIGNED_DATA:
        raise _failure("content", "the timestamp token is no CMS SignedData")
    data = token["content"]
    signer = _only_signer(data)
    content = data["encap_content_info"]
    if content["content_type"].dotted != _TST_INFO or isinstance(content["content"], core.Void):
        raise _failure("content", "the timestamp token does not hold a TSTInfo")
    octets = bytes(content["content"])
    info = parse(tsp.TSTInfo, octets, "the timestamp's TSTInfo")
    _check_info(info, imprint)
    embedded = _certificates(data)
    certificate = _certificate_of(signer, embedded)
    _check_attributes(signer, octets, certificate)
    message = signer["signed_attrs"].untag().dump()
    if not certificate.verifier.verify(message, bytes(signer["signature"])):
        raise _failure("signature", f"the timestamp is not signed by {certificate.label}")
    gen_time: datetime = native(info["gen_time"], "the timestamp's genTime")
    path = _path(certificate, [*(item.der for item in embedded), *intermediates], roots, crls, at or gen_time)
    unused = [item for item in embedded if item.der not in path.certificates]
    if unused:
        raise _failure("certificates", f"the timestamp carries {unused[0].label}, which its path does not use")
    _check_name(info["tsa"], certificate)
    nonce = info["nonce"]
    return Timestamp(
        gen_time,
        info["policy"].dotted,
        info["serial_number"].native,
        certificate.common_name,
        path.certificates,
        path.crls,
        None if isinstance(nonce, core.Void) else nonce.native,
    )


def _only_signer(data: Any) -> Any:
    """The one SignerInfo, after everything outside it that its signature does not cover was fixed to one value."""
    if native(data["version"], "the timestamp's version") != "v3":
        raise _failure("content", "the timestamp's SignedData is not of version 3")
    if not isinstance(data["crls"], core.Void):
        raise _failure("unsigned", "the timestamp carries revocation lists, which nothing signs; keep them outside")
    signers = data["signer_infos"]
    if len(signers) != 1:
        raise _failure("signers", f"the timestamp has {len(signers)} signers instead of one")
    signer = signers[0]
    if not isinstance(signer["unsigned_attrs"], core.Void):
        raise _failure("unsigned", "the timestamp has unsigned attributes, which anyone can add")
    if isinstance(signer["signed_attrs"], core.Void):
        raise _failure("attributes", "the timestamp has no signed attributes")
    if signer["version"].native != "v1" or signer["sid"].name != "issuer_and_serial_number":
        raise _failure("signers", "the timestamp's signer is not named by issuer and serial number")
    digest = signer["digest_algorithm"]
    if _hash_oid(digest, "the timestamp's digest") != _SHA384 or [a.dump() for a in data["digest_algorithms"]] != [
        digest.dump()
    ]:
        raise _failure("algorithm", "the timestamp's digest algorithm is not SHA-384 throughout; use a P-384 authority")
    algorithm = signer["signature_algorithm"]
    oid = algorithm["algorithm"].dotted
    if SIGNATURE_OIDS.get(oid) != P384 or algorithm.dump() != algos.SignedDigestAlgorithm({"algorithm": oid}).dump():
        raise _failure("algorithm", "the timestamp is not signed with ecdsa-with-SHA384; use a P-384 authority")
    return signer


def _hash_oid(algorithm: Any, what: str) -> str:
    """The dotted OID of a hash; parameters are absent or NULL (RFC 5754 section 2)."""
    oid: str = algorithm["algorithm"].dotted
    plain: dict[str, Any] = {"algorithm": oid}
    forms = [algos.DigestAlgorithm(plain).dump(), algos.DigestAlgorithm(plain | {"parameters": core.Null()}).dump()]
    if oid not in _HASHES or algorithm.copy().untag().dump() not in forms:
        raise _failure("algorithm", f"{what} algorithm is {oid} or has parameters")
    return oid


def _check_info(info: Any, imprint: bytes) -> None:
    if native(info["version"], "the TSTInfo's version") != "v1":
        raise _failure("content", "the timestamp's TSTInfo is not of version 1")
    claimed = info["message_imprint"]
    if _hash_oid(claimed["hash_algorithm"], "the timestamp's imprint") != _SHA512:
        raise _failure("imprint", "the timestamp's imprint is not a SHA-512")
    if bytes(claimed["hashed_message"]) != imprint:
        raise _failure("imprint", "the timestamp is for other signatures than these")
    extensions = info["extensions"]
    if not isinstance(extensions, core.Void) and any(item["critical"].native for item in extensions):
        raise _failure("critical-extension", "the timestamp has a critical extension, which is not understood here")


def _certificates(data: Any) -> list[Certificate]:
    found = data["certificates"]
    if isinstance(found, core.Void) or not len(found):
        raise _failure("certificates", "the timestamp does not carry its authority's certificate; request it")
    if any(item.name != "certificate" for item in found):
        raise _failure("certificates", "the timestamp carries a certificate of an obsolete kind")
    parts = [item.chosen.dump() for item in found]
    check_sorted(parts, "the timestamp's set of certificates")
    return [read_certificate(der) for der in parts]


def _certificate_of(signer: Any, embedded: Sequence[Certificate]) -> Certificate:
    identifier = signer["sid"].chosen
    issuer, serial = identifier["issuer"].dump(), identifier["serial_number"].native
    for item in embedded:
        if item.issuer == issuer and item.serial == serial:
            if item.verifier.algorithm != P384:
                raise _failure("algorithm", f"the timestamp's {item.label} does not hold a P-384 key")
            return item
    raise _failure("signers", "the timestamp does not carry the certificate that its signer names")


def _check_attributes(signer: Any, octets: bytes, certificate: Certificate) -> None:
    values: dict[str, Any] = {}
    check_sorted([item.dump() for item in signer["signed_attrs"]], "the timestamp's set of signed attributes")
    for item in signer["signed_attrs"]:
        oid = item["type"].dotted
        if oid in values or len(item["values"]) != 1:
            raise _failure("attributes", f"the timestamp's signed attribute {oid} does not have exactly one value")
        values[oid] = item["values"][0]
    if _CONTENT_TYPE not in values or values[_CONTENT_TYPE].dotted != _TST_INFO:
        raise _failure("attributes", "the timestamp's content-type attribute is not that of a TSTInfo")
    if _MESSAGE_DIGEST not in values or bytes(values[_MESSAGE_DIGEST]) != hashlib.sha384(octets).digest():
        raise _failure("attributes", "the timestamp's TSTInfo is not the one that was signed")
    if _SIGNING_CERTIFICATE_V2 not in values:
        raise _failure("signing-certificate", "the timestamp lacks the signing-certificate attribute (ESSCertIDv2)")
    named = values[_SIGNING_CERTIFICATE_V2]["certs"]
    if not len(named):
        raise _failure("signing-certificate", "the timestamp's signing-certificate attribute is empty")
    first = named[0]
    algorithm = _HASHES[_hash_oid(first["hash_algorithm"], "the signing-certificate attribute's hash")]
    if bytes(first["cert_hash"]) != hashlib.new(algorithm, certificate.der).digest():
        raise _failure("signing-certificate", "the timestamp's signing-certificate attribute names another certificate")
    stated = first["issuer_serial"]
    if not isinstance(stated, core.Void):
        names = [name.chosen.untag().dump() for name in stated["issuer"] if name.name == "directory_name"]
        if names != [certificate.issuer] or stated["serial_number"].native != certificate.serial:
            raise _failure("signing-certificate", "the signing-certificate attribute names another issuer or serial")


def _path(
    certificate: Certificate, others: Sequence[bytes], roots: Sequence[bytes], crls: Sequence[bytes], at: datetime
) -> Path:
    if certificate.purposes is not None and not certificate.purposes_critical:
        raise _failure("not-critical", f"{certificate.label} has an extendedKeyUsage that is not critical")
    rest = [der for der in others if der != certificate.der]
    return verify_chain(certificate.der, rest, roots, crls, at, TIME_STAMPING, stamped=True, require_crls=False)


def _check_name(stated: Any, certificate: Certificate) -> None:
    if isinstance(stated, core.Void):
        return
    # A GeneralName holds its Name under an explicit tag (RFC 3161 section 2.4.2).
    name = stated.chosen.untag().dump() if stated.name == "directory_name" else b""
    if name != certificate.subject:
        raise _failure("tsa-name", f"the timestamp names another authority than {certificate.label}")
