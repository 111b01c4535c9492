"""ECDSA on P-384 with SHA-384: verification through the system's libcrypto (FIPS 186-5)."""

from __future__ import annotations

from evidence.verifier.canonical import MalformedError
from evidence.verifier.der import decode_signature
from evidence.verifier.errors import UsageError
from evidence.verifier.libcrypto import LibcryptoError
from evidence.verifier.signing import P384
from evidence.verifier.sm2 import load

# FIPS 186-5 / SP 800-186: the order n of P-384's base point.
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973
# The DER before the uncompressed point: id-ecPublicKey with the named curve secp384r1 (RFC 5480).
_SPKI_PREFIX = bytes.fromhex("3076301006072a8648ce3d020106052b81040022036200") + b"\x04"
_SPKI_SIZE = len(_SPKI_PREFIX) + 96


def is_p384(spki: bytes) -> bool:
    """Whether ``spki`` has the form of an uncompressed P-384 public key."""
    return len(spki) == _SPKI_SIZE and spki.startswith(_SPKI_PREFIX)


class P384Verifier:
    """Verifier of one P-384 public key; ``UsageError`` when ``spki`` is anything but that in its canonical DER."""

    algorithm = P384

    def __init__(self, spki: bytes) -> None:
        if not is_p384(spki):
            raise UsageError(
                "the key is not an uncompressed P-384 public key; give a SubjectPublicKeyInfo on curve P-384"
            )
        self.spki, self._crypto = spki, load()
        try:
            # Any message will do: this makes libcrypto read the key, which checks that the point is on the curve.
            self._crypto.ecdsa_verify(spki, "SHA384", b"", b"0")
        except LibcryptoError:
            raise UsageError("the P-384 public key is not on the curve; give the key its owner published") from None

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is strict DER of an ECDSA-SHA-384 signature over ``message``."""
        try:
            decode_signature(signature, ORDER)
        except MalformedError:
            return False
        return self._crypto.ecdsa_verify(self.spki, "SHA384", message, signature)
