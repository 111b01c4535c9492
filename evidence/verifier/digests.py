"""SHA-256, SHA3-512 and SM3 of bytes and of files.

Sources: FIPS 180-4 (SHA-256), FIPS 202 (SHA3-512), GB/T 32905 (SM3). All digests are lower-case hex.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from evidence.verifier.errors import UsageError
from evidence.verifier.sm2 import load

_BLOCK = 1 << 20


class _Hash(Protocol):
    def update(self, data: bytes, /) -> object: ...
    def hexdigest(self) -> str: ...


class _LibcryptoSm3:
    """SM3 of the system's libcrypto behind hashlib's interface, for a Python whose hashlib lacks it."""

    def __init__(self) -> None:
        self._data = bytearray()

    def update(self, data: bytes, /) -> None:
        self._data += data

    def hexdigest(self) -> str:
        return load().sm3(bytes(self._data)).hex()


@cache
def hashlib_has_sm3() -> bool:
    """Whether this Python's hashlib offers SM3, which is optional and depends on the OpenSSL it was built with."""
    try:
        hashlib.new("sm3", b"")
    except ValueError:
        return False
    return True


def _new_sm3() -> _Hash:
    return hashlib.new("sm3") if hashlib_has_sm3() else _LibcryptoSm3()


@dataclass(frozen=True)
class Digests:
    """Size in bytes and the three digests (hex) of one byte string."""

    size: int
    sha256: str
    sha3_512: str
    sm3: str

    def digest_set(self) -> dict[str, str]:
        """The in-toto DigestSet with the standard names ``sha256``, ``sha3_512`` and ``sm3``."""
        return {"sha256": self.sha256, "sha3_512": self.sha3_512, "sm3": self.sm3}


def digest_blocks(blocks: Iterable[bytes]) -> Digests:
    """Digests of the concatenation of ``blocks``."""
    size = 0
    sha256, sha3_512, sm3 = hashlib.sha256(), hashlib.sha3_512(), _new_sm3()
    for block in blocks:
        size += len(block)
        sha256.update(block)
        sha3_512.update(block)
        sm3.update(block)
    return Digests(size, sha256.hexdigest(), sha3_512.hexdigest(), sm3.hexdigest())


def digest_bytes(data: bytes) -> Digests:
    """Digests of ``data``."""
    return digest_blocks([data])


_KNOWN: dict[str, Digests] = {}


def digest_known(data: bytes, sha3_512: str) -> Digests:
    """Digests of ``data`` whose SHA3-512 the caller has verified; the others are computed once per content."""
    if sha3_512 not in _KNOWN:
        sha256 = hashlib.sha256(data).hexdigest()
        _KNOWN[sha3_512] = Digests(len(data), sha256, sha3_512, sm3_hex(data))
    return _KNOWN[sha3_512]


def digest_file(path: Path) -> Digests:
    """Digests of the file at ``path``, read in blocks; raises ``UsageError`` when it cannot be read."""
    try:
        with path.open("rb") as stream:
            return digest_blocks(iter(lambda: stream.read(_BLOCK), b""))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give an existing, readable file") from None


def sm3_hex(data: bytes) -> str:
    """Hex SM3 (GB/T 32905) of ``data``."""
    digest = _new_sm3()
    digest.update(data)
    return digest.hexdigest()
