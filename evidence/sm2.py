"""SM2 signatures with SM3 through the system's libcrypto.

Algorithm per GB/T 32918.2 with the recommended curve of GB/T 32918.5 and the default identity of GM/T 0009. A known
answer is checked once per process before the first use, and every signature is verified before it is returned.
"""

from __future__ import annotations

import platform
from functools import cache

from compiler_kernels.errors import UnsupportedError, UsageError
from evidence.canonical import MalformedError
from evidence.der import decode_signature, encode_signature
from evidence.libcrypto import LIBRARY, Libcrypto, LibcryptoError
from evidence.signing import SM2

# GM/T 0009: the identity both sides use when none is agreed. It is part of what is signed and is named in every proof.
SM2_ID = b"1234567812345678"
# GB/T 32918.5: the order n of the base point.
ORDER = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123
# The DER before the uncompressed point: id-ecPublicKey with the named curve 1.2.156.10197.1.301.
_SPKI_PREFIX = bytes.fromhex("3059301306072a8648ce3d020106082a811ccf5501822d034200") + b"\x04"
_SPKI_SIZE = len(_SPKI_PREFIX) + 64
_SIGNING_MACHINES = ("x86_64", "amd64")

# GB/T 32918.5 annex A: the example signature over the recommended curve.
KAT_MESSAGE = b"message digest"
KAT_POINT = bytes.fromhex(
    "09f9df311e5421a150dd7d161e4bc5c672179fad1833fc076bb08ff356f35020"
    "ccea490ce26775a52dc6ea718cc1aa600aed05fbf35e084a6632f6072da9ad13"
)
KAT_R = 0xF5A03B0648D2C4630EEAC513E1BB81A15944DA3827D5B74143AC7EACEEE720B3
KAT_S = 0xB1B6AA29DF212FD8763182BC0D421CA1BB9038FD1F7F42D4840B69C485BBC1AA


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


def check_signing_machine(machine: str) -> None:
    """Refuse private-key operations where OpenSSL's SM2 code is not known to run in constant time.

    CVE-2025-9231 and a later report on the optimised code for ARM64 and RISC-V; the generic x86-64 code is
    not affected. Verification uses no secret and is allowed everywhere.
    """
    if machine.lower() not in _SIGNING_MACHINES:
        raise UnsupportedError(
            f"SM2 signing is refused on {machine}: OpenSSL's SM2 code there can leak the private key through timing "
            "(CVE-2025-9231); sign on an x86-64 host, verify anywhere"
        )


class Sm2Verifier:
    """Verifier of one SM2 public key; ``UsageError`` when ``spki`` is anything but that."""

    algorithm = SM2

    def __init__(self, spki: bytes) -> None:
        if len(spki) != _SPKI_SIZE or not spki.startswith(_SPKI_PREFIX):
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


class Sm2Signer:
    """Signer with one SM2 private key (PKCS#8 DER).

    Raises ``UsageError`` for any other key and ``UnsupportedError`` on a machine where signing is refused.
    """

    algorithm = SM2

    def __init__(self, pkcs8: bytes) -> None:
        check_signing_machine(platform.machine())
        self._crypto, self._pkcs8 = load(), pkcs8
        try:
            self.spki = self._crypto.sm2_public(pkcs8)
        except LibcryptoError:
            raise UsageError("the key is not an SM2 private key; give PKCS#8 on curve SM2") from None
        self._verifier = Sm2Verifier(self.spki)

    def sign(self, message: bytes) -> bytes:
        """A verified DER signature; two calls differ, because SM2 takes a fresh random number for each."""
        try:
            signature = self._crypto.sm2_sign(self._pkcs8, SM2_ID, message)
        except LibcryptoError as error:
            raise UsageError(f"the SM2 key cannot sign ({error}); make a new key set") from None
        if not self._verifier.verify(message, signature):
            raise UsageError("the SM2 key's public half does not match its private half; make a new key set")
        return signature


def generate_private_key() -> bytes:
    """A new SM2 private key as PKCS#8 DER; refused where signing is."""
    check_signing_machine(platform.machine())
    return load().sm2_generate()
