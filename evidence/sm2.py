"""SM2-with-SM3 signing through the system's libcrypto; verification is in evidence/verifier/sm2.py.

Every signature is verified before it is returned.
"""

from __future__ import annotations

import platform
from typing import Final

from evidence.verifier.errors import UnsupportedError, UsageError
from evidence.verifier.libcrypto import LibcryptoError
from evidence.verifier.signing import SM2
from evidence.verifier.sm2 import SM2_ID, Sm2Verifier, load

_SIGNING_MACHINES: Final = ("x86_64", "amd64")


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
