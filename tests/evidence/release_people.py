"""An organisation for tests: roots, issuing authorities, people with certificates, a keyring, a timestamp authority."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from asn1crypto import core, crl, keys, pem, x509

from evidence import p384, sm2
from evidence.p384 import P384Signer
from evidence.signing_keys import SigningKeys
from evidence.sm2 import Sm2Signer
from evidence.timestamping import request_der, token_of
from evidence.verifier import dsse
from evidence.verifier.dsse import Envelope, Signature
from evidence.verifier.keyring import PAYLOAD_TYPE, KeyEntry, Keyring
from evidence.verifier.signing import Signer, key_id
from evidence.verifier.trust import TrustRoot
from evidence.verifier.x509 import CODE_SIGNING, DEPLOYMENT, DOCUMENT_SIGNING, TIME_STAMPING

OIDS = {"sm2-sm3": "1.2.156.10197.1.501", "ecdsa-p384-sha384": "1.2.840.10045.4.3.3"}
NOW = datetime.now(UTC).replace(microsecond=0)
EARLIER, LATER = NOW - timedelta(days=30), NOW + timedelta(days=300)
PURPOSES = {"builder": CODE_SIGNING, "device": DEPLOYMENT}
_serials = iter(range(1000, 1_000_000))


def new_signer(algorithm: str) -> tuple[Signer, bytes]:
    """A signer and its private key (PKCS#8 DER)."""
    if algorithm == "sm2-sm3":
        der = sm2.generate_private_key()
        return Sm2Signer(der), der
    der = p384.generate_private_key()
    return P384Signer(der), der


def name(text: str) -> x509.Name:
    return x509.Name.build({"common_name": text})


def _signed(kind: type[Any], field_name: str, tbs: Any, issuer: Signer, value_name: str) -> bytes:
    algorithm = {"algorithm": OIDS[issuer.algorithm]}
    signature = core.OctetBitString(issuer.sign(tbs.dump()))
    return bytes(kind({field_name: tbs, "signature_algorithm": algorithm, value_name: signature}).dump())


def identifier(spki: bytes) -> bytes:
    return hashlib.sha256(spki).digest()[:20]


@dataclass
class Authority:
    """One that issues: its name, signer and certificate, and what it has revoked."""

    title: str
    signer: Signer
    certificate: bytes = b""
    revoked: dict[int, tuple[datetime, str]] = field(default_factory=dict)

    def issue(
        self,
        title: str,
        spki: bytes,
        purpose: str | None,
        start: datetime = EARLIER,
        end: datetime = LATER,
        length: int | None = None,
    ) -> bytes:
        """A certificate; without ``purpose`` that of an authority."""
        ca = purpose is None
        extensions: list[dict[str, Any]] = [
            {
                "extn_id": "basic_constraints",
                "critical": True,
                "extn_value": x509.BasicConstraints(
                    {"ca": ca, **({} if length is None else {"path_len_constraint": length})}
                ),
            },
            {
                "extn_id": "key_usage",
                "critical": True,
                "extn_value": x509.KeyUsage({"key_cert_sign", "crl_sign"} if ca else {"digital_signature"}),
            },
            {"extn_id": "key_identifier", "extn_value": core.OctetString(identifier(spki))},
            {
                "extn_id": "authority_key_identifier",
                "extn_value": x509.AuthorityKeyIdentifier({"key_identifier": identifier(self.signer.spki)}),
            },
        ]
        if purpose is not None:
            critical = purpose == TIME_STAMPING
            usage = x509.ExtKeyUsageSyntax([purpose])
            extensions.append({"extn_id": "extended_key_usage", "critical": critical, "extn_value": usage})
        tbs = x509.TbsCertificate(
            {
                "version": "v3",
                "serial_number": next(_serials),
                "signature": {"algorithm": OIDS[self.signer.algorithm]},
                "issuer": name(self.title),
                "validity": {"not_before": _time(start), "not_after": _time(end)},
                "subject": name(title),
                "subject_public_key_info": keys.PublicKeyInfo.load(spki),
                "extensions": extensions,
            }
        )
        return _signed(x509.Certificate, "tbs_certificate", tbs, self.signer, "signature_value")

    def revocation_list(self) -> bytes:
        entries = [
            {
                "user_certificate": serial,
                "revocation_date": _time(when),
                "crl_entry_extensions": [{"extn_id": "crl_reason", "extn_value": crl.CRLReason(reason)}],
            }
            for serial, (when, reason) in self.revoked.items()
        ]
        tbs = crl.TbsCertList(
            {
                "version": "v2",
                "signature": {"algorithm": OIDS[self.signer.algorithm]},
                "issuer": name(self.title),
                "this_update": _time(EARLIER),
                "next_update": _time(LATER),
                **({"revoked_certificates": entries} if entries else {}),
                "crl_extensions": [
                    {
                        "extn_id": "authority_key_identifier",
                        "extn_value": x509.AuthorityKeyIdentifier({"key_identifier": identifier(self.signer.spki)}),
                    },
                    {"extn_id": "crl_number", "extn_value": core.Integer(1)},
                ],
            }
        )
        return _signed(crl.CertificateList, "tbs_cert_list", tbs, self.signer, "signature")


def _time(when: datetime) -> x509.Time:
    return x509.Time({"utc_time": core.UTCTime(when)})


@dataclass
class Person:
    """Somebody's signers and certificates, by algorithm."""

    title: str
    signers: tuple[Signer, ...]
    certificates: tuple[bytes, ...]
    entries: tuple[KeyEntry, ...]


class Organisation:
    """Roots and issuing authorities of both algorithms, and everybody they vouch for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.roots, self.authorities = [], []
        for algorithm in OIDS:
            root = Authority(f"Test Root {algorithm}", new_signer(algorithm)[0])
            root.certificate = root.issue(root.title, root.signer.spki, None)
            issuing = Authority(f"Test Issuing {algorithm}", new_signer(algorithm)[0])
            issuing.certificate = root.issue(issuing.title, issuing.signer.spki, None, length=0)
            self.roots.append(root)
            self.authorities.append(issuing)
        self.people: list[Person] = []
        self.tsa = TimestampAuthority(folder / "tsa", self.roots[1])

    def person(
        self,
        title: str,
        *roles: str,
        purpose: str | None = None,
        start: datetime = EARLIER,
        end: datetime = LATER,
        signers: tuple[Signer, ...] | None = None,
        entry: Mapping[str, Any] | None = None,
        in_keyring: bool = True,
    ) -> SigningKeys:
        """Keys with certificates for the purpose of the first role, entered in the keyring."""
        wanted = purpose or PURPOSES.get(roles[0], DOCUMENT_SIGNING)
        made = signers or tuple(new_signer(item.signer.algorithm)[0] for item in self.authorities)
        certificates = tuple(
            authority.issue(title, signer.spki, wanted, start, end)
            for authority, signer in zip(self.authorities, made, strict=False)
        )
        entries = tuple(
            KeyEntry(item.algorithm, item.spki, title, roles, EARLIER, LATER, **dict(entry or {})) for item in made
        )
        person = Person(title, made, certificates, entries)
        if in_keyring:
            self.people.append(person)
        return self.keys_of(person)

    def keys_of(self, person: Person) -> SigningKeys:
        """The signing keys of a person with the revocation lists of this moment."""
        issuers = tuple(item.certificate for item in self.authorities)
        lists = tuple(item.revocation_list() for item in (*self.roots, *self.authorities))
        return SigningKeys(person.signers, (*person.certificates, *issuers), lists)

    def trust_root(self, keyring: bool = True) -> Path:
        """Write the trust root with the keyring of this moment; a new file each time."""
        ring = Keyring(1, tuple(entry for person in self.people for entry in person.entries))
        unsigned = Envelope(PAYLOAD_TYPE, ring.payload(), ())
        signatures = tuple(
            Signature(key_id(root.signer.spki), root.signer.sign(unsigned.signed_bytes)) for root in self.roots
        )
        signed = Envelope(PAYLOAD_TYPE, ring.payload(), signatures)
        root = TrustRoot(
            "test",
            (),
            tuple(item.certificate for item in self.roots),
            (self.roots[1].certificate,),
            (),
            ring if keyring else None,
            signed.encode() if keyring else None,
        )
        path = self.folder / f"trust-{len(list(self.folder.glob('trust-*')))}.json"
        path.write_bytes(root.encode())
        return path

    def revoke(self, keys_: SigningKeys, when: datetime, reason: str = "superseded") -> None:
        """Revoke the leaf certificates of ``keys_`` at its authorities."""
        for der in keys_.certificates:
            parsed = x509.Certificate.load(der)
            for authority in self.authorities:
                if parsed.issuer.dump() == name(authority.title).dump():
                    authority.revoked[parsed.serial_number] = (when, reason)


class TimestampAuthority:
    """A P-384 timestamp authority run by ``openssl ts``."""

    def __init__(self, folder: Path, root: Authority) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        signer, pkcs8 = new_signer("ecdsa-p384-sha384")
        certificate = root.issue("Test TSA", signer.spki, TIME_STAMPING)
        (folder / "key.pem").write_bytes(pem.armor("PRIVATE KEY", pkcs8))
        (folder / "cert.pem").write_bytes(pem.armor("CERTIFICATE", certificate))
        (folder / "tsa.cnf").write_text(
            "[tsa]\ndefault_tsa = one\n[one]\nserial = serial\ncrypto_device = builtin\nsigner_cert = cert.pem\n"
            "signer_key = key.pem\nsigner_digest = sha384\ndefault_policy = 1.2.3.4\ndigests = sha512\n"
            "ordering = no\ntsa_name = no\ness_cert_id_chain = no\ness_cert_id_alg = sha256\n"
        )

    @property
    def command(self) -> list[str]:
        openssl = shutil.which("openssl") or "openssl"
        return [openssl, "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query.tsq"]

    def stamp(self, imprint: bytes) -> bytes:
        (self.folder / "query.tsq").write_bytes(request_der(imprint, 7))
        done = subprocess.run(
            [*self.command, "-out", "reply.tsr"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return token_of((self.folder / "reply.tsr").read_bytes())


def resigned(envelope: Envelope, keys_: SigningKeys, change: Callable[[bytes], bytes] = lambda p: p) -> Envelope:
    """``envelope`` with a changed payload, signed again."""
    return dsse.sign(change(envelope.payload), keys_.signers)
