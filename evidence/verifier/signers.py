"""Who signed an envelope: keys of the trust root, or certificates that lead to one of its roots.

A certificate that travels with an envelope is never trust by itself. All that travels must be needed: what no path
consults, and what is not in its one order, is a fault, so nothing can be added to an envelope unnoticed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from evidence.verifier.canonical import Json, MalformedError, canonical_bytes, expect_list, expect_object, strict_base64
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.certificate import read_certificate
from evidence.verifier.dsse import Envelope
from evidence.verifier.errors import CertificateFailure, UsageError, VerificationFailed
from evidence.verifier.public_keys import verifier_of
from evidence.verifier.signing import ML_DSA_65, P384, REQUIRED_ALGORITHMS, SM2, Verifier, key_id
from evidence.verifier.trust import TrustedKey, TrustRoot
from evidence.verifier.x509 import verify_chain

LABELS = {SM2: "SM2", P384: "P-384", ML_DSA_65: "ML-DSA-65"}
_MATERIAL = ("certificates", "crls", "timestamps")
_MAX_ENTRIES = 64


@dataclass(frozen=True)
class Material:
    """DER of certificates, CRLs and RFC 3161 tokens beside an envelope, each list sorted and without repetition."""

    certificates: tuple[bytes, ...] = ()
    crls: tuple[bytes, ...] = ()
    timestamps: tuple[bytes, ...] = ()

    def to_json(self) -> Json:
        """The field ``verificationMaterial``, or ``None`` when there is nothing."""
        if not (self.certificates or self.crls or self.timestamps):
            return None
        return {name: [base64.b64encode(der).decode() for der in getattr(self, name)] for name in _MATERIAL}

    @property
    def digest(self) -> str:
        """Hex SHA3-512 over the digests of certificates and CRLs: what a statement states before it is signed.

        Timestamps are made after the signatures and cannot be in it.
        """
        parts: list[Json] = [
            [hashlib.sha3_512(der).hexdigest() for der in entries] for entries in (self.certificates, self.crls)
        ]
        return hashlib.sha3_512(canonical_bytes(["cuvil-material/1", *parts])).hexdigest()


def sorted_material(
    certificates: Iterable[bytes] = (), crls: Iterable[bytes] = (), timestamps: Iterable[bytes] = ()
) -> Material:
    """Material in its one order."""
    return Material(tuple(sorted(set(certificates))), tuple(sorted(set(crls))), tuple(sorted(set(timestamps))))


def read_material(value: Json) -> Material:
    """Read ``verificationMaterial`` strictly (``None``: absent); ``MalformedError`` names the entry."""
    if value is None:
        return Material()
    item = expect_object(value, "verificationMaterial", _MATERIAL)
    lists = {}
    for name in _MATERIAL:
        where = f"verificationMaterial.{name}"
        entries = expect_list(item[name], where)
        if len(entries) > _MAX_ENTRIES:
            raise MalformedError(f"{where} holds more than {_MAX_ENTRIES} entries")
        lists[name] = tuple(
            strict_base64(text(entry, f"{where}[{index}]"), f"{where}[{index}]") for index, entry in enumerate(entries)
        )
        if list(lists[name]) != sorted(set(lists[name])):
            raise MalformedError(f"{where} is not sorted, or holds an entry twice")
    if not any(lists.values()):
        raise MalformedError("verificationMaterial is empty")
    return Material(**lists)


@dataclass(frozen=True)
class Moment:
    """When everything is judged: a verified timestamp's genTime (``stamped``) or a stated time."""

    at: datetime
    stamped: bool


@dataclass(frozen=True)
class SignerKey:
    """One signature with the key that fits its key id: of the trust root (``leaf`` is ``None``) or of a certificate."""

    algorithm: str
    key_id: str
    verifier: Verifier
    value: bytes
    leaf: bytes | None

    def holds(self, message: bytes) -> bool:
        return self.verifier.verify(message, self.value)


def stated_time(value: str) -> datetime:
    """``YYYY-MM-DDTHH:MM:SSZ`` as an aware time; ``MalformedError`` for any other spelling."""
    try:
        return datetime.strptime(value, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise MalformedError(f"created {value!r} is not a time like 2026-01-31T08:00:00Z") from None


def certificate_key(der: bytes) -> bytes:
    """SubjectPublicKeyInfo DER of a certificate; ``CertificateFailure`` when it breaks a rule."""
    return read_certificate(der).spki


def find_keys(envelope: Envelope, root: TrustRoot, certificates: Sequence[bytes]) -> list[SignerKey]:
    """The key of every signature, in order. ``VerificationFailed`` ``unknown-key`` when one has none that is known.

    Finding is not trusting: ``judge`` decides about certificates.
    """
    by_key = {key_id(certificate_key(der)): der for der in certificates}
    found = []
    for signature in envelope.signatures:
        trusted, leaf = root.key(signature.key_id), by_key.get(signature.key_id)
        try:
            if trusted is not None:
                verifier, leaf = trusted.verifier(), None
            elif leaf is not None:
                verifier = verifier_of(certificate_key(leaf))
            else:
                raise VerificationFailed(
                    "unknown-key",
                    f"the key {signature.key_id[:16]}... is neither in the trust root nor in a certificate beside the "
                    "signature",
                )
        except UsageError as error:
            raise VerificationFailed("unknown-key", f"the key {signature.key_id[:16]}... {error}") from None
        found.append(SignerKey(verifier.algorithm, signature.key_id, verifier, signature.value, leaf))
    return found


def check_algorithms(keys: Sequence[SignerKey], required: tuple[str, ...] = REQUIRED_ALGORITHMS) -> None:
    """That the signatures are the ``required`` ones in order, and at most ML-DSA-65 after them."""
    found = tuple(item.algorithm for item in keys)
    if found not in (required, (*required, ML_DSA_65)):
        wanted = " and ".join(LABELS[item] for item in required)
        raise VerificationFailed(
            "unknown-key", f"the signatures are {', '.join(LABELS[item] for item in found)}, not {wanted} in this order"
        )


@dataclass(frozen=True)
class Used:
    """Certificates below the roots and CRLs that paths consulted."""

    certificates: frozenset[bytes] = frozenset()
    crls: frozenset[bytes] = frozenset()

    def __or__(self, other: Used) -> Used:
        return Used(self.certificates | other.certificates, self.crls | other.crls)


def judge(
    keys: Iterable[SignerKey],
    root: TrustRoot,
    material: Material,
    moment: Moment,
    purpose: str,
) -> Used:
    """That every key may sign for ``purpose`` (an extended key usage) at ``moment``; ``CertificateFailure`` if not.

    A key of the trust root has the owner's word; one of a certificate needs its path, CRLs included.
    """
    used = Used()
    for item in keys:
        if item.leaf is None:
            continue
        others = [der for der in material.certificates if der != item.leaf]
        crls = (*material.crls, *root.crls)
        path = verify_chain(
            item.leaf, others, root.roots, crls, moment.at, purpose, stamped=moment.stamped, require_crls=True
        )
        used |= Used(frozenset(path.certificates) - frozenset(root.roots), frozenset(path.crls))
    return used


def check_used(material: Material, used: Used) -> None:
    """That nothing travels which nothing consults; ``CertificateFailure`` ``certificate-path`` otherwise."""
    idle = len(set(material.certificates) - used.certificates), len(set(material.crls) - used.crls)
    if any(idle):
        raise CertificateFailure(
            "certificate-path",
            "unused-material",
            f"{idle[0]} certificates and {idle[1]} CRLs beside the signatures are needed by no path; remove them",
        )


def trusted_keys(keys: Iterable[SignerKey]) -> tuple[TrustedKey, ...]:
    """The keys as entries of a trust root, once ``judge`` accepted them."""
    return tuple(TrustedKey(item.algorithm, item.verifier.spki) for item in keys)


def check_role(keys: Iterable[SignerKey], root: TrustRoot, moment: Moment, role: str) -> None:
    """That the keyring, where the trust root has one, gives every key the ``role`` at ``moment``.

    A bare key of the trust root which the keyring does not mention has its owner's word and needs no entry.
    """
    for item in keys:
        if root.keyring is None or (item.leaf is None and root.keyring.entry(item.key_id) is None):
            continue
        root.keyring.check(item.key_id, role, moment.at, stamped=moment.stamped)


def check_persons(keys: Iterable[SignerKey], root: TrustRoot, moment: Moment, person: str, role: str) -> None:
    """That the keyring says every key is ``person``'s and has the ``role`` at ``moment``."""
    if root.keyring is None:
        raise MalformedError("the trust root has no keyring, so it does not say whose key this is")
    for item in keys:
        owner = root.keyring.check(item.key_id, role, moment.at, stamped=moment.stamped).person
        if owner != person:
            raise MalformedError(f"the key {item.key_id[:16]}... is {owner}'s, not {person}'s")
