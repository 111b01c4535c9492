"""The seam between statements and keys: what a signer and a verifier must offer.

A key held in a PKCS#11 token or a TPM becomes another class with these members; nothing above this module changes.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

SM2 = "sm2-sm3"
P384 = "ecdsa-p384-sha384"
ML_DSA_65 = "ml-dsa-65"
# Every proof carries exactly these signatures, in this order.
REQUIRED_ALGORITHMS = (SM2, P384)


class Verifier(Protocol):
    """Checks signatures of one public key."""

    @property
    def algorithm(self) -> str: ...

    @property
    def spki(self) -> bytes:
        """SubjectPublicKeyInfo, DER (RFC 5280)."""
        ...

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` (strict DER) belongs to ``message``; never raises for a wrong or malformed one."""
        ...


class Signer(Protocol):
    """Makes signatures with one private key."""

    @property
    def algorithm(self) -> str: ...

    @property
    def spki(self) -> bytes:
        """SubjectPublicKeyInfo of the public half, DER (RFC 5280)."""
        ...

    def sign(self, message: bytes) -> bytes:
        """A DER signature over ``message`` which the signer has itself verified before returning it."""
        ...


def key_id(spki: bytes) -> str:
    """Hex SHA-256 of the SubjectPublicKeyInfo DER."""
    return hashlib.sha256(spki).hexdigest()
