"""ML-DSA-65 (FIPS 204), the optional third signature: verified where libcrypto has it (OpenSSL 3.5 or later)."""

from __future__ import annotations

from evidence.verifier.errors import UnsupportedError, UsageError
from evidence.verifier.libcrypto import LibcryptoError
from evidence.verifier.signing import ML_DSA_65
from evidence.verifier.sm2 import load

NOT_CHECKED = "not checked: this libcrypto has no ML-DSA"
# RFC 9881: SubjectPublicKeyInfo { id-ml-dsa-65 without parameters }, 1952 bytes of key.
_SPKI_PREFIX = bytes.fromhex("308207b2300b0609608648016503040312038207a100")
_SPKI_SIZE = len(_SPKI_PREFIX) + 1952
_SIGNATURE_SIZE = 3309


def is_ml_dsa(spki: bytes) -> bool:
    """Whether ``spki`` has the form of an ML-DSA-65 public key."""
    return len(spki) == _SPKI_SIZE and spki.startswith(_SPKI_PREFIX)


def ml_dsa_available() -> bool:
    """Whether the system's libcrypto verifies ML-DSA-65."""
    return load().has_signature("ML-DSA-65")


class MlDsaVerifier:
    """Verifier of one ML-DSA-65 public key with an empty context; ``UsageError`` when ``spki`` is anything but that."""

    algorithm = ML_DSA_65

    def __init__(self, spki: bytes) -> None:
        if not is_ml_dsa(spki):
            raise UsageError("the key is not an ML-DSA-65 public key; give its SubjectPublicKeyInfo")
        self.spki = spki

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is that of ``message``; ``UnsupportedError`` (``NOT_CHECKED``) without ML-DSA here."""
        if not ml_dsa_available():
            raise UnsupportedError(NOT_CHECKED)
        if len(signature) != _SIGNATURE_SIZE:
            return False
        try:
            return load().one_shot_verify(self.spki, "ML-DSA-65", message, signature)
        except LibcryptoError:
            return False
