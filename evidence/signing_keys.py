"""Signers with the certificates that go with them, and envelopes signed by both.

A key folder holds ``sm2.key.pem`` and ``p384.key.pem`` (``evidence.keys``). Certificates lie beside them as PEM,
``*.cert.pem`` or ``*.chain.pem``, CRLs as ``*.crl.pem``; a folder without them signs with keys that a trust root lists.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from asn1crypto.crl import CertificateList
from asn1crypto.x509 import Certificate

from evidence.build_proof import EPOCH_VARIABLE, created_from
from evidence.keys import read_private_key
from evidence.p384 import P384Signer
from evidence.sm2 import Sm2Signer
from evidence.verifier import dsse
from evidence.verifier.dsse import Envelope
from evidence.verifier.errors import UsageError
from evidence.verifier.signers import Material, certificate_key, sorted_material
from evidence.verifier.signing import Signer, key_id
from evidence.verifier.timestamp import imprint_of

_PEM = re.compile("-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \\1-----", re.DOTALL)
Stamper = Callable[[bytes], bytes]
"""From an imprint (SHA-512, 64 bytes) to an RFC 3161 token (DER)."""


@dataclass(frozen=True)
class SigningKeys:
    """Signers in order, and DER of their certificates (leaves and issuers, no roots) and CRLs."""

    signers: tuple[Signer, ...]
    certificates: tuple[bytes, ...] = ()
    crls: tuple[bytes, ...] = ()

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(key_id(item.spki) for item in self.signers)

    def only(self, algorithms: tuple[str, ...]) -> SigningKeys:
        """The signers of these algorithms."""
        return replace(self, signers=tuple(item for item in self.signers if item.algorithm in algorithms))


def load_signing_keys(folder: Path) -> SigningKeys:
    """The key set in ``folder`` with its certificates and CRLs; ``UsageError`` names what is missing or wrong.

    On aarch64 hosts only the P-384 key is loaded when there is no SM2 key (``evidence.sm2`` says why).
    """
    keys = folder / "keys" if (folder / "keys").is_dir() else folder
    if not keys.is_dir():
        raise UsageError(f"{folder}: no key folder; give the folder that holds sm2.key.pem and p384.key.pem")
    if not any((keys / f"{stem}.key.pem").exists() for stem in ("sm2", "p384")):
        raise UsageError(
            f"{folder}: holds no keys; run `cuvil keys init`, or give the folder that holds sm2.key.pem and "
            "p384.key.pem"
        )
    signers: list[Signer] = []
    if (keys / "sm2.key.pem").exists() or not (keys / "p384.key.pem").exists():
        signers.append(Sm2Signer(read_private_key(keys / "sm2.key.pem")[0]))
    signers.append(P384Signer(read_private_key(keys / "p384.key.pem")[0]))
    certificates, crls = set(), set()
    for path in sorted(keys.glob("*.pem")):
        if path.name.endswith((".key.pem", ".pub.pem")):
            continue
        for label, der in pem_blocks(path):
            if label == "CERTIFICATE":
                certificates.add(der)
            elif label == "X509 CRL":
                crls.add(der)
    return SigningKeys(tuple(signers), tuple(sorted(certificates)), tuple(sorted(crls)))


def pem_blocks(path: Path) -> list[tuple[str, bytes]]:
    """``(label, DER)`` of every PEM block of a file; ``UsageError`` naming the file when it cannot be read."""
    try:
        text = path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{path}: cannot be read as PEM; restore it or remove it") from None
    found = []
    for match in _PEM.finditer(text):
        try:
            found.append((match[1], base64.b64decode("".join(match[2].split()), validate=True)))
        except binascii.Error:
            raise UsageError(f"{path}: a {match[1]} block is not base64; restore it") from None
    return found


def sign(payload: bytes, keys: SigningKeys, stamp: Stamper | None = None) -> Envelope:
    """An envelope over ``payload`` with the certificates its keys need, and a timestamp over the signatures."""
    envelope = dsse.sign(payload, keys.signers)
    tokens = [stamp(imprint_of(item.value for item in envelope.signatures))] if stamp else []
    material = replace(material_of(keys), timestamps=tuple(tokens))
    return replace(envelope, verification_material=material.to_json())


def material_of(keys: SigningKeys) -> Material:
    """The certificates and CRLs that will lie beside the signatures of ``keys``."""
    return sorted_material(*needed(keys))


def needed(keys: SigningKeys) -> tuple[list[bytes], list[bytes]]:
    """Certificates and CRLs that belong to the signers: their own certificates and the issuers above them.

    A folder may hold more, those of a successor key for example; what no path needs must not travel.
    """
    parsed = {der: Certificate.load(der) for der in keys.certificates}
    subjects = {der: item.subject.dump() for der, item in parsed.items()}
    issuers = {der: item.issuer.dump() for der, item in parsed.items()}
    waiting = [der for der in parsed if key_id(certificate_key(der)) in keys.key_ids]
    chosen: list[bytes] = []
    while waiting:
        der = waiting.pop()
        if der in chosen or subjects[der] == issuers[der]:
            continue
        chosen.append(der)
        waiting += [other for other in parsed if subjects[other] == issuers[der]]
    names = {issuers[der] for der in chosen}
    crls = [der for der in keys.crls if CertificateList.load(der)["tbs_cert_list"]["issuer"].dump() in names]
    return chosen, crls


def created_now(environment: Mapping[str, str]) -> tuple[str, str]:
    """``(RFC 3339 time in UTC, where it comes from)``: ``SOURCE_DATE_EPOCH``, else this machine's clock.

    People approve and release at a time, so unlike a build these statements take the clock, and say so.
    """
    if environment.get(EPOCH_VARIABLE) is not None:
        return created_from(environment)
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "clock of the signing machine"
