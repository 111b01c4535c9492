"""Trust roots: the public keys a verifier accepts, given by the verifier and never taken from a proof.

File form, JSON: ``{"format": "cuvil-trust-root/1", "grade": ..., "keys": [{"algorithm", "key_id", "public_key"}]}``,
where ``public_key`` is a SubjectPublicKeyInfo in PEM and ``key_id`` the SHA-256 of its DER.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evidence.verifier.canonical import Json, MalformedError, expect_list, expect_object, expect_text, strict_json
from evidence.verifier.der import decode_pem, encode_pem
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small
from evidence.verifier.p384 import P384Verifier
from evidence.verifier.signing import P384, SM2, Verifier, key_id
from evidence.verifier.sm2 import Sm2Verifier

FORMAT = "cuvil-trust-root/1"
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
    """Accepted keys and the grade their owner gives them, for example ``development``."""

    grade: str
    keys: tuple[TrustedKey, ...]

    def key(self, identifier: str) -> TrustedKey | None:
        """The key with that key id, or ``None``."""
        return next((item for item in self.keys if item.key_id == identifier), None)

    def encode(self) -> bytes:
        """The file form, UTF-8, two-space indent, ending in a newline."""
        keys: list[Json] = [
            {"algorithm": item.algorithm, "key_id": item.key_id, "public_key": item.pem} for item in self.keys
        ]
        return (json.dumps({"format": FORMAT, "grade": self.grade, "keys": keys}, indent=2) + "\n").encode()


def load_trust_root(path: Path) -> TrustRoot:
    """Read a trust root strictly; ``UsageError`` naming file, entry and remedy for anything wrong in it."""
    data = read_small(path, "trust root", _REMEDY, 1 << 20)
    try:
        return _parse(strict_json(data))
    except UsageError as error:
        raise UsageError(f"{path}: the trust root {error}; restore it from its owner or give another") from None


def _parse(value: Json) -> TrustRoot:
    root = expect_object(value, "object", ("format", "grade", "keys"))
    if root["format"] != FORMAT:
        raise MalformedError(f"format is not {FORMAT!r}")
    keys = tuple(_parse_key(item, f"keys[{index}]") for index, item in enumerate(expect_list(root["keys"], "keys")))
    if not keys:
        raise MalformedError("keys is empty")
    if len({item.spki for item in keys}) != len(keys):
        raise MalformedError("keys holds one key twice")
    return TrustRoot(expect_text(root["grade"], "grade"), keys)


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
