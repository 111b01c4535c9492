"""ECDSA on P-384 with SHA-384 through the cryptography package (FIPS 186-5, deterministic form of RFC 6979)."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from compiler_kernels.errors import UsageError
from evidence.canonical import MalformedError
from evidence.der import decode_signature
from evidence.signing import P384

# FIPS 186-5 / SP 800-186: the order n of P-384's base point.
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973


class P384Verifier:
    """Verifier of one P-384 public key; ``UsageError`` when ``spki`` is anything but that in its canonical DER."""

    algorithm = P384

    def __init__(self, spki: bytes) -> None:
        try:
            key = serialization.load_der_public_key(spki)
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
            raise UsageError("the key is not a P-384 public key; give a SubjectPublicKeyInfo on curve P-384")
        if _spki(key) != spki:
            raise UsageError("the P-384 public key is not canonical DER; export it again with an uncompressed point")
        self.spki, self._key = spki, key

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is strict DER of an ECDSA-SHA-384 signature over ``message``."""
        try:
            decode_signature(signature, ORDER)
            self._key.verify(signature, message, ec.ECDSA(hashes.SHA384()))
        except (MalformedError, InvalidSignature):
            return False
        return True


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
