"""ECDSA on P-384 with SHA-384: signing through the cryptography package (FIPS 186-5, deterministic as in RFC 6979)."""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from evidence.verifier.errors import UsageError
from evidence.verifier.p384 import P384Verifier
from evidence.verifier.signing import P384


class P384Signer:
    """Signer with one P-384 private key (PKCS#8 DER); ``UsageError`` for any other key."""

    algorithm = P384

    def __init__(self, pkcs8: bytes) -> None:
        try:
            key = serialization.load_der_private_key(pkcs8, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
            raise UsageError("the key is not a P-384 private key; give PKCS#8 on curve P-384")
        self._key, self.spki = key, _spki(key.public_key())
        self._verifier = P384Verifier(self.spki)

    def sign(self, message: bytes) -> bytes:
        """A verified DER signature; the same message gives the same bytes (RFC 6979)."""
        signature = self._key.sign(message, ec.ECDSA(hashes.SHA384(), deterministic_signing=True))
        if not self._verifier.verify(message, signature):
            raise UsageError("the P-384 key's public half does not match its private half; make a new key set")
        return signature


def generate_private_key() -> bytes:
    """A new P-384 private key as PKCS#8 DER."""
    key = ec.generate_private_key(ec.SECP384R1())
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _spki(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
