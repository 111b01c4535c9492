"""Trust roots: the public keys a verifier accepts, given by the verifier and never taken from a proof.

Two file forms, both JSON. Version 1: ``{"format": "cuvil-trust-root/1", "grade": ..., "keys": [{"algorithm",
"key_id", "public_key"}]}``; ``public_key`` is a SubjectPublicKeyInfo in PEM and ``key_id`` the SHA-256 of its DER.
Version 2 adds ``roots`` and ``tsa_roots``: ``[{"algorithm", "certificate"}]`` with the root certificate in PEM;
``crls``: revocation lists in PEM that the verifier has fetched itself; ``keyring``: an embedded signed keyring, or the
name of its file relative to the trust root.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evidence.verifier.canonical import Json, MalformedError, expect_list, expect_object, expect_text, strict_json
from evidence.verifier.crl import read_crl
from evidence.verifier.der import decode_pem, encode_pem
from evidence.verifier.errors import CertificateFailure, UsageError
from evidence.verifier.files import read_small
from evidence.verifier.keyring import Keyring, read_keyring
from evidence.verifier.p384 import P384Verifier
from evidence.verifier.signing import P384, SM2, Verifier, key_id
from evidence.verifier.sm2 import Sm2Verifier
from evidence.verifier.x509 import check_root

FORMAT, FORMAT_2 = "cuvil-trust-root/1", "cuvil-trust-root/2"
TRUST_ROOT_FILE = "trust-root.json"
DEVELOPMENT = "development"
_VERIFIERS: dict[str, Callable[[bytes], Verifier]] = {SM2: Sm2Verifier, P384: P384Verifier}
_REMEDY = "run `cuvil keys init` or give --trust-root"


def default_home() -> Path:
    """``$CUVIL_HOME``, or ``~/.cuvil``."""
    return Path(os.environ.get("CUVIL_HOME") or Path.home() / ".cuvil")


def default_trust_root(home: Path | None = None) -> Path:
    """Path of the development trust root; it need not exist."""
    return (home or default_home()) / "keys" / TRUST_ROOT_FILE


@dataclass(frozen=True)
class TrustedKey:
    """One accepted public key: algorithm, SubjectPublicKeyInfo DER, key id (hex SHA-256 of that DER)."""

    algorithm: str
    spki: bytes

    @property
    def key_id(self) -> str:
        return key_id(self.spki)

    @property
    def pem(self) -> str:
        return encode_pem("PUBLIC KEY", self.spki)

    def verifier(self) -> Verifier:
        """A verifier for this key; raises ``UsageError`` when the bytes are not a key of the stated algorithm."""
        return _VERIFIERS[self.algorithm](self.spki)


@dataclass(frozen=True)
class TrustRoot:
    """What a verifier accepts, and the grade its owner gives it, for example ``development``.

    ``keys``: bare public keys. ``roots`` and ``tsa_roots``: DER of root certificates, for signers and for timestamping
    authorities. ``crls``: DER of revocation lists. ``keyring``: verified, or ``None``; ``keyring_file``: its envelope.
    """

    grade: str
    keys: tuple[TrustedKey, ...]
    roots: tuple[bytes, ...] = ()
    tsa_roots: tuple[bytes, ...] = ()
    crls: tuple[bytes, ...] = ()
    keyring: Keyring | None = None
    keyring_file: bytes | None = None

    def key(self, identifier: str) -> TrustedKey | None:
        """The key with that key id, or ``None``."""
        return next((item for item in self.keys if item.key_id == identifier), None)

    def encode(self) -> bytes:
        """The file form, UTF-8, two-space indent, ending in a newline."""
        keys: list[Json] = [
            {"algorithm": item.algorithm, "key_id": item.key_id, "public_key": item.pem} for item in self.keys
        ]
        body: dict[str, Json] = {"format": FORMAT, "grade": self.grade, "keys": keys}
        if self.roots or self.tsa_roots or self.crls or self.keyring_file:
            body["format"] = FORMAT_2
            body["roots"] = [_root_entry(der) for der in self.roots]
            body["tsa_roots"] = [_root_entry(der) for der in self.tsa_roots]
            body["crls"] = [encode_pem("X509 CRL", der) for der in self.crls]
        if self.keyring_file is not None:
            body["keyring"] = strict_json(self.keyring_file)
        return (json.dumps(body, indent=2) + "\n").encode()


def load_trust_root(path: Path) -> TrustRoot:
    """Read a trust root of either version strictly, and verify its keyring with its root keys.

    ``UsageError`` naming file, entry and remedy for anything wrong in it.
    """
    data = read_small(path, "trust root", _REMEDY, 4 << 20)
    try:
        return _parse(strict_json(data), path)
    except UsageError as error:
        raise UsageError(f"{path}: the trust root {error}; restore it from its owner or give another") from None
    except CertificateFailure as error:
        raise UsageError(f"{path}: the trust root is not valid: {error}; restore it from its owner") from None


def _root_entry(der: bytes) -> Json:
    return {"algorithm": check_root(der).verifier.algorithm, "certificate": encode_pem("CERTIFICATE", der)}


def _parse(value: Json, path: Path) -> TrustRoot:
    root = expect_object(
        value,
        "object",
        ("format", "grade", "keys"),
        ("roots", "tsa_roots", "crls", "keyring") if _second(value) else (),
    )
    if root["format"] not in (FORMAT, FORMAT_2):
        raise MalformedError(f"format is not {FORMAT!r} or {FORMAT_2!r}")
    keys = tuple(_parse_key(item, f"keys[{index}]") for index, item in enumerate(expect_list(root["keys"], "keys")))
    roots, tsa_roots = _parse_roots(root, "roots"), _parse_roots(root, "tsa_roots")
    if not keys and not roots:
        raise MalformedError("keys is empty")
    if len({item.spki for item in keys}) != len(keys):
        raise MalformedError("keys holds one key twice")
    crls = tuple(_parse_pem(item, f"crls[{i}]", "X509 CRL") for i, item in enumerate(_list(root, "crls")))
    for der in crls:
        read_crl(der)
    envelope = _keyring_bytes(root.get("keyring"), path)
    root_keys = [check_root(der).spki for der in roots] or [item.spki for item in keys]
    keyring = None if envelope is None else read_keyring(envelope, root_keys)
    return TrustRoot(expect_text(root["grade"], "grade"), keys, roots, tsa_roots, crls, keyring, envelope)


def _second(value: Json) -> bool:
    return isinstance(value, dict) and value.get("format") == FORMAT_2


def _list(root: dict[str, Json], name: str) -> list[Json]:
    return expect_list(root[name], name) if name in root else []


def _parse_roots(root: dict[str, Json], name: str) -> tuple[bytes, ...]:
    found = []
    for index, value in enumerate(_list(root, name)):
        where = f"{name}[{index}]"
        item = expect_object(value, where, ("algorithm", "certificate"))
        der = _parse_pem(item["certificate"], f"{where}.certificate", "CERTIFICATE")
        if check_root(der).verifier.algorithm != item["algorithm"]:
            raise MalformedError(f"{where}.algorithm is not that of its certificate")
        found.append(der)
    if len(set(found)) != len(found):
        raise MalformedError(f"{name} holds one certificate twice")
    return tuple(found)


def _parse_pem(value: Json, where: str, wanted: str) -> bytes:
    label, der = decode_pem(expect_text(value, where))
    if label != wanted:
        raise MalformedError(f"{where} is a {label} block, not a {wanted} one")
    return der


def _keyring_bytes(value: Json, path: Path) -> bytes | None:
    """The keyring's envelope: embedded, or read from the named file beside the trust root."""
    if value is None:
        return None
    if isinstance(value, dict):
        return (json.dumps(value, indent=2, ensure_ascii=True) + "\n").encode("ascii")
    return read_small(path.parent / expect_text(value, "keyring"), "keyring", "restore it from its owner", 4 << 20)


def _parse_key(value: Json, where: str) -> TrustedKey:
    item = expect_object(value, where, ("algorithm", "key_id", "public_key"))
    algorithm = expect_text(item["algorithm"], f"{where}.algorithm")
    if algorithm not in _VERIFIERS:
        raise MalformedError(f"{where}.algorithm {algorithm!r} is not one of {', '.join(_VERIFIERS)}")
    label, spki = decode_pem(expect_text(item["public_key"], f"{where}.public_key"))
    if label != "PUBLIC KEY":
        raise MalformedError(f"{where}.public_key is a {label} block, not a PUBLIC KEY one")
    key = TrustedKey(algorithm, spki)
    key.verifier()
    if item["key_id"] != key.key_id:
        raise MalformedError(f"{where}.key_id is not the SHA-256 of its public key ({key.key_id})")
    return key
