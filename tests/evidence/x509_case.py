"""Chains of three levels made by ``evidence.certificates``, with every part replaceable, and ``openssl`` as a peer."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from asn1crypto import x509 as asn1

from evidence import p384, sm2
from evidence.certificates import Profile, issue_certificate, issue_crl
from evidence.p384 import P384Signer
from evidence.sm2 import Sm2Signer
from evidence.verifier.certificate import read_certificate
from evidence.verifier.crl import Revocation
from evidence.verifier.signing import P384, SM2, Signer
from evidence.verifier.x509 import CODE_SIGNING, verify_chain
from evidence.verifier.x509 import Path as CertificatePath

T0 = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
DISTID = "distid:1234567812345678"


def pkcs8(algorithm: str) -> bytes:
    return sm2.generate_private_key() if algorithm == SM2 else p384.generate_private_key()


@cache
def signer(algorithm: str, name: str) -> Signer:
    """One key per name in a test run."""
    del name
    key = pkcs8(algorithm)
    return Sm2Signer(key) if algorithm == SM2 else P384Signer(key)


@dataclass(frozen=True)
class Chain:
    """DER of the three levels and of both lists, and how to verify them."""

    algorithm: str
    root: bytes
    issuing: bytes
    leaf: bytes
    crls: tuple[bytes, ...]
    extra: tuple[bytes, ...] = field(default=())

    def verify(self, at: datetime = T0 + DAY, purpose: str = CODE_SIGNING, **options: Any) -> CertificatePath:
        return verify_chain(self.leaf, [self.issuing, *self.extra], [self.root], self.crls, at, purpose, **options)


def make(
    algorithm: str = SM2,
    *,
    root: dict[str, Any] | None = None,
    issuing: dict[str, Any] | None = None,
    leaf: dict[str, Any] | None = None,
    revoked: Sequence[Revocation] = (),
    lists: dict[str, Any] | None = None,
) -> Chain:
    """A good chain from T0 on; the dictionaries change fields of the profiles, ``lists`` those of the lists."""
    top, middle, low = (signer(algorithm, name) for name in ("root", "issuing", "leaf"))
    base = Profile("", T0, T0 + 1000 * DAY)
    profiles = [
        replace(base, **{"common_name": "Root", "path_length": 1, **(root or {})}),
        replace(base, **{"common_name": "Issuing", "path_length": 0, **(issuing or {})}),
        replace(base, **{"common_name": "Leaf", "purpose": CODE_SIGNING, **(leaf or {})}),
    ]
    root_der = issue_certificate(profiles[0], top.spki, top, None)
    issuing_der = issue_certificate(profiles[1], middle.spki, top, read_certificate(root_der))
    leaf_der = issue_certificate(profiles[2], low.spki, middle, read_certificate(issuing_der), serial=77)
    dates = {"this_update": T0, "next_update": T0 + 30 * DAY, **(lists or {})}
    crls = (
        issue_crl(read_certificate(root_der), top, 1, entries=(), **dates),
        issue_crl(read_certificate(issuing_der), middle, 1, entries=revoked, **dates),
    )
    return Chain(algorithm, root_der, issuing_der, leaf_der, crls)


def resign(der: bytes, by: Signer, /, **changes: Any) -> bytes:
    """The certificate with fields of its TBS changed, signed again by ``by``; nothing checks the result."""
    certificate = asn1.Certificate.load(der)
    tbs = certificate["tbs_certificate"]
    for name, value in changes.items():
        if name == "add_extension":
            tbs["extensions"].append(value)
        elif name == "drop_extension":
            tbs["extensions"] = [item for item in tbs["extensions"] if item["extn_id"].dotted != value]
        else:
            tbs[name] = value
    body = tbs.dump(force=True)
    certificate["signature_value"] = by.sign(body)
    return certificate.dump(force=True)


def openssl(*arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["openssl", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"openssl {' '.join(arguments)}: {done.stderr}{done.stdout}"
    return done


ALGORITHMS = (SM2, P384)
