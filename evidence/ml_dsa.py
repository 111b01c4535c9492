"""ML-DSA-65 (FIPS 204) signing through the cryptography package: the optional third signature."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import mldsa

from evidence.verifier.errors import UsageError
from evidence.verifier.signing import ML_DSA_65


class MlDsaSigner:
    """Signer with one ML-DSA-65 private key (PKCS#8 DER) and an empty context; ``UsageError`` for any other key."""

    algorithm = ML_DSA_65

    def __init__(self, pkcs8: bytes) -> None:
        try:
            key = serialization.load_der_private_key(pkcs8, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, mldsa.MLDSA65PrivateKey):
            raise UsageError("the key is not an ML-DSA-65 private key; give PKCS#8 of that algorithm")
        self._key, self._public = key, key.public_key()
        self.spki = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    def sign(self, message: bytes) -> bytes:
        """A signature of 3309 bytes that has been verified; two calls differ (hedged signing)."""
        signature = self._key.sign(message)
        if not verify_here(self.spki, message, signature):
            raise UsageError("the ML-DSA-65 key's public half does not match its private half; make a new one")
        return signature


def verify_here(spki: bytes, message: bytes, signature: bytes) -> bool:
    """Verification on the signing side, by the cryptography package; a verifier uses libcrypto."""
    key = serialization.load_der_public_key(spki)
    if not isinstance(key, mldsa.MLDSA65PublicKey):
        return False
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def generate_private_key() -> bytes:
    """A new ML-DSA-65 private key as PKCS#8 DER."""
    key = mldsa.MLDSA65PrivateKey.generate()
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
