"""The digest of an input or output in a session record (docs/sessions.md, "Digest of a tensor")."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

TENSOR_FORMAT = "cuvil-tensor/1"
PIECE = 8192
"""Bytes hashed as one piece."""
SALT_BYTES = 32


def tensor_digest(dtype: str, shape: Sequence[int], data: bytes, salt: bytes | None = None) -> str:
    """Hex SHA3-512 over salt, description and the SHAKE256 (64 bytes) of every piece of ``data``.

    ``dtype`` is NumPy's name (``bfloat16`` included), ``data`` the elements in C order, little-endian, bool as one
    byte. ``salt``: ``SALT_BYTES`` bytes, or ``None``. Both functions: FIPS 202.

    >>> tensor_digest("float32", [], b"\\0\\0\\x80\\x3f")[:16]
    '67f52d4d3e7c21c9'
    """
    head = f"{TENSOR_FORMAT}\n{dtype}\n{','.join(map(str, shape))}\n".encode("ascii")
    digest = hashlib.sha3_512((salt or b"") + head)
    for start in range(0, len(data), PIECE):
        digest.update(hashlib.shake_256(data[start : start + PIECE]).digest(64))
    return digest.hexdigest()
