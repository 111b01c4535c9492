"""SM2 signatures with SM3 through the system's libcrypto.

Algorithm per GB/T 32918.2 with the recommended curve of GB/T 32918.5 and the default identity of GM/T 0009. A known
answer is checked once per process before the first use, and again whenever another library is loaded.
"""

from __future__ import annotations

from functools import cache

from evidence.verifier.canonical import MalformedError
from evidence.verifier.der import decode_signature, encode_signature
from evidence.verifier.errors import UnsupportedError, UsageError
from evidence.verifier.libcrypto import LIBRARY, Libcrypto, LibcryptoError
from evidence.verifier.signing import SM2

# GM/T 0009: the identity both sides use when none is agreed. It is part of what is signed and is named in every proof.
SM2_ID = b"1234567812345678"
# GB/T 32918.5: the order n of the base point.
ORDER = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123
# The DER before the uncompressed point: id-ecPublicKey with the named curve 1.2.156.10197.1.301.
_SPKI_PREFIX = bytes.fromhex("3059301306072a8648ce3d020106082a811ccf5501822d034200") + b"\x04"
_SPKI_SIZE = len(_SPKI_PREFIX) + 64

# GB/T 32918.5 annex A: the example signature over the recommended curve.
KAT_MESSAGE = b"message digest"
KAT_POINT = bytes.fromhex(
    "09f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020"
    "ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13"
)
KAT_R = 0xF5A03B0648D2C4630EEAC513E1BB81A15944DA3827D5B74143AC7EACEEE720B3
KAT_S = 0xB1B6AA29DF212FD8763182BC0D421CA1BB9038FD1F7F42D4840B69C485BBC1AA


def is_sm2(spki: bytes) -> bool:
    """Whether ``spki`` has the form of an uncompressed SM2 public key."""
    return len(spki) == _SPKI_SIZE and spki.startswith(_SPKI_PREFIX)


def spki_of_point(point: bytes) -> bytes:
    """SubjectPublicKeyInfo DER of an SM2 public key given as x || y (64 bytes)."""
    return _SPKI_PREFIX + point


@cache
def load(library: str = LIBRARY) -> Libcrypto:
    """The libcrypto at ``library`` after its known-answer test; ``UnsupportedError`` when it has no correct SM2."""
    crypto = Libcrypto(library)
    spki = spki_of_point(KAT_POINT)
    try:
        right = crypto.sm2_verify(spki, SM2_ID, KAT_MESSAGE, encode_signature(KAT_R, KAT_S))
        wrong = crypto.sm2_verify(spki, SM2_ID, KAT_MESSAGE, encode_signature(KAT_R, KAT_S ^ 1))
    except LibcryptoError:
        raise UnsupportedError(
            f"{crypto.version} ({library}) has no SM2; use OpenSSL 3.0 or later, built and configured with SM2 and SM3"
        ) from None
    if not right or wrong:
        raise UnsupportedError(
            f"{crypto.version} ({library}) fails the known-answer test of GB/T 32918.5; use another OpenSSL"
        )
    return crypto


class Sm2Verifier:
    """Verifier of one SM2 public key; ``UsageError`` when ``spki`` is anything but that."""

    algorithm = SM2

    def __init__(self, spki: bytes) -> None:
        if not is_sm2(spki):
            raise UsageError("the key is not an uncompressed SM2 public key; give a SubjectPublicKeyInfo on curve SM2")
        self.spki = spki
        self._crypto = load()
        try:
            # Any message will do: this makes libcrypto read the key, which checks that the point is on the curve.
            self._crypto.sm2_verify(spki, SM2_ID, b"", encode_signature(1, 1))
        except LibcryptoError:
            raise UsageError("the SM2 public key is not on the curve; give the key its owner published") from None

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is strict DER of an SM2-with-SM3 signature over ``message``, default identity."""
        try:
            decode_signature(signature, ORDER)
        except MalformedError:
            return False
        return self._crypto.sm2_verify(self.spki, SM2_ID, message, signature)

    def verifies_without_identity(self, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` was made without an identity: a common mistake, never accepted.

        OpenSSL without distid does it in two ways: SM3(message) alone, and with the hash Z of an empty identity.
        """
        try:
            decode_signature(signature, ORDER)
        except MalformedError:
            return False
        if self._crypto.sm2_verify(self.spki, b"", message, signature):
            return True
        return self._crypto.sm2_verify_digest(self.spki, self._crypto.sm3(message), signature)
