"""ctypes binding to the system's libcrypto 3: SM2 keys and signatures, and PKCS#8 encryption.

The cryptography package bundles an OpenSSL without SM2, so the system library is used: it is maintained by the
distribution and adds no package. Every OpenSSL object is freed when the call that made it returns, and the thread's
error queue is cleared, because Python's own ssl and hashlib share it. Key parameters are DER, never text.
Sources: OpenSSL 3.0 manual pages EVP_PKEY-SM2(7), EVP_DigestSignInit(3), PKCS8_encrypt(3), d2i_PKCS8_PRIV_KEY_INFO(3).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_size_t, c_ulong, c_void_p
from typing import Any

from evidence.verifier.errors import UnsupportedError

LIBRARY = "libcrypto.so.3"
_PBKDF2_ROUNDS = 600_000
_PBES2 = -1
_POINTER_TO_POINTER = POINTER(c_void_p)
_P = c_void_p

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "OpenSSL_version_num": (c_ulong, []),
    "OpenSSL_version": (c_char_p, [c_int]),
    "ERR_clear_error": (None, []),
    "EVP_sm3": (_P, []),
    "EVP_sha256": (_P, []),
    "EVP_sha384": (_P, []),
    "EVP_sha512": (_P, []),
    "EVP_Digest": (c_int, [c_char_p, c_size_t, c_char_p, POINTER(ctypes.c_uint), _P, _P]),
    "EVP_aes_256_cbc": (_P, []),
    "EVP_PKEY_free": (None, [_P]),
    "EVP_PKEY_is_a": (c_int, [_P, c_char_p]),
    "EVP_PKEY_CTX_new": (_P, [_P, _P]),
    "EVP_PKEY_CTX_new_from_name": (_P, [_P, c_char_p, c_char_p]),
    "EVP_PKEY_CTX_free": (None, [_P]),
    "EVP_PKEY_CTX_set1_id": (c_int, [_P, c_char_p, c_int]),
    "EVP_PKEY_keygen_init": (c_int, [_P]),
    "EVP_PKEY_generate": (c_int, [_P, _POINTER_TO_POINTER]),
    "EVP_MD_CTX_new": (_P, []),
    "EVP_MD_CTX_free": (None, [_P]),
    "EVP_MD_CTX_set_pkey_ctx": (None, [_P, _P]),
    "EVP_DigestSignInit": (c_int, [_P, _P, _P, _P, _P]),
    "EVP_DigestSign": (c_int, [_P, c_char_p, POINTER(c_size_t), c_char_p, c_size_t]),
    "EVP_DigestVerifyInit": (c_int, [_P, _P, _P, _P, _P]),
    "EVP_DigestVerify": (c_int, [_P, c_char_p, c_size_t, c_char_p, c_size_t]),
    "EVP_PKEY_verify_init": (c_int, [_P]),
    "EVP_PKEY_verify": (c_int, [_P, c_char_p, c_size_t, c_char_p, c_size_t]),
    "EVP_SIGNATURE_fetch": (_P, [_P, c_char_p, c_char_p]),
    "EVP_SIGNATURE_free": (None, [_P]),
    "EVP_PKEY2PKCS8": (_P, [_P]),
    "EVP_PKCS82PKEY": (_P, [_P]),
    "PKCS8_PRIV_KEY_INFO_free": (None, [_P]),
    "PKCS8_encrypt": (_P, [c_int, _P, c_char_p, c_int, c_char_p, c_int, c_int, _P]),
    "PKCS8_decrypt": (_P, [_P, c_char_p, c_int]),
    "X509_SIG_free": (None, [_P]),
    "d2i_PUBKEY": (_P, [_P, _POINTER_TO_POINTER, c_long]),
    "i2d_PUBKEY": (c_int, [_P, _POINTER_TO_POINTER]),
    "d2i_PKCS8_PRIV_KEY_INFO": (_P, [_P, _POINTER_TO_POINTER, c_long]),
    "i2d_PKCS8_PRIV_KEY_INFO": (c_int, [_P, _POINTER_TO_POINTER]),
    "d2i_X509_SIG": (_P, [_P, _POINTER_TO_POINTER, c_long]),
    "i2d_X509_SIG": (c_int, [_P, _POINTER_TO_POINTER]),
}


class LibcryptoError(Exception):
    """An OpenSSL call refused its input; callers turn it into a sentence that names the file or field."""


class Libcrypto:
    """One loaded libcrypto 3; raises ``UnsupportedError`` when the library or one of its functions is missing."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._lib = ctypes.CDLL(library)
            for name, (restype, argtypes) in _FUNCTIONS.items():
                function = getattr(self._lib, name)
                function.restype, function.argtypes = restype, argtypes
        except (OSError, AttributeError):
            raise UnsupportedError(
                f"{library} is missing or lacks SM2; install OpenSSL 3.0 or later (Debian: libssl3) for SM2 signatures"
            ) from None
        self.version: str = self._lib.OpenSSL_version(0).decode("ascii", "replace")

    # -- SM2 ---------------------------------------------------------------------------------------------------------
    def sm2_generate(self) -> bytes:
        """A new SM2 private key as PKCS#8 DER."""
        with self._scope() as stack:
            context = self._own(stack, self._lib.EVP_PKEY_CTX_new_from_name(None, b"SM2", None), "EVP_PKEY_CTX_free")
            key = c_void_p()
            self._must(self._lib.EVP_PKEY_keygen_init(context))
            self._must(self._lib.EVP_PKEY_generate(context, byref(key)))
            self._own(stack, key.value, "EVP_PKEY_free")
            info = self._own(stack, self._lib.EVP_PKEY2PKCS8(key), "PKCS8_PRIV_KEY_INFO_free")
            return self._der(self._lib.i2d_PKCS8_PRIV_KEY_INFO, info)

    def sm2_public(self, pkcs8: bytes) -> bytes:
        """The SubjectPublicKeyInfo DER of an SM2 private key (PKCS#8 DER); ``LibcryptoError`` for any other key."""
        with self._scope() as stack:
            return self._der(self._lib.i2d_PUBKEY, self._private(stack, pkcs8))

    def sm2_sign(self, pkcs8: bytes, identity: bytes, message: bytes) -> bytes:
        """SM2-with-SM3 signature (DER) over ``Z(identity, key) || message``."""
        with self._scope() as stack:
            context = self._digest_context(stack, self._private(stack, pkcs8), identity, "EVP_DigestSignInit")
            size = c_size_t(0)
            self._must(self._lib.EVP_DigestSign(context, None, byref(size), message, len(message)))
            signature = ctypes.create_string_buffer(size.value)
            self._must(self._lib.EVP_DigestSign(context, signature, byref(size), message, len(message)))
            return signature.raw[: size.value]

    def sm2_verify(self, spki: bytes, identity: bytes, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` (DER) is that of ``message``; ``LibcryptoError`` when ``spki`` is no SM2 key."""
        with self._scope() as stack:
            key = self._read(stack, "d2i_PUBKEY", "EVP_PKEY_free", spki)
            self._must(self._lib.EVP_PKEY_is_a(key, b"SM2"))
            context = self._digest_context(stack, key, identity, "EVP_DigestVerifyInit")
            # 0 is a wrong signature, a negative number one that cannot be parsed; only 1 is success.
            accepted: int = self._lib.EVP_DigestVerify(context, signature, len(signature), message, len(message))
            return accepted == 1

    def sm2_verify_digest(self, spki: bytes, digest: bytes, signature: bytes) -> bool:
        """Whether ``signature`` (DER) is an SM2 signature whose hashed message is exactly ``digest`` (32 bytes)."""
        with self._scope() as stack:
            key = self._read(stack, "d2i_PUBKEY", "EVP_PKEY_free", spki)
            self._must(self._lib.EVP_PKEY_is_a(key, b"SM2"))
            context = self._own(stack, self._lib.EVP_PKEY_CTX_new(key, None), "EVP_PKEY_CTX_free")
            self._must(self._lib.EVP_PKEY_verify_init(context))
            accepted: int = self._lib.EVP_PKEY_verify(context, signature, len(signature), digest, len(digest))
            return accepted == 1

    # -- others ------------------------------------------------------------------------------------------------------
    def ecdsa_verify(self, spki: bytes, digest: str, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` (DER) is an ECDSA signature of ``message`` with SHA256, SHA384 or SHA512;
        ``LibcryptoError`` when ``spki`` is no key on a curve for ECDSA."""
        with self._scope() as stack:
            key = self._read(stack, "d2i_PUBKEY", "EVP_PKEY_free", spki)
            self._must(self._lib.EVP_PKEY_is_a(key, b"EC"))
            context = self._own(stack, self._lib.EVP_MD_CTX_new(), "EVP_MD_CTX_free")
            algorithm = getattr(self._lib, f"EVP_{digest.lower()}")()
            self._must(self._lib.EVP_DigestVerifyInit(context, None, algorithm, None, key))
            accepted: int = self._lib.EVP_DigestVerify(context, signature, len(signature), message, len(message))
            return accepted == 1

    def has_signature(self, name: str) -> bool:
        """Whether this library offers the signature algorithm ``name``."""
        with self._scope():
            algorithm = self._lib.EVP_SIGNATURE_fetch(None, name.encode(), None)
            self._lib.EVP_SIGNATURE_free(algorithm)
            return bool(algorithm)

    def one_shot_verify(self, spki: bytes, kind: str, message: bytes, signature: bytes) -> bool:
        """Whether ``signature`` is that of ``message`` under a key of type ``kind`` that hashes by itself (ML-DSA)."""
        with self._scope() as stack:
            key = self._read(stack, "d2i_PUBKEY", "EVP_PKEY_free", spki)
            self._must(self._lib.EVP_PKEY_is_a(key, kind.encode()))
            context = self._own(stack, self._lib.EVP_MD_CTX_new(), "EVP_MD_CTX_free")
            self._must(self._lib.EVP_DigestVerifyInit(context, None, None, None, key))
            accepted: int = self._lib.EVP_DigestVerify(context, signature, len(signature), message, len(message))
            return accepted == 1

    def sm3(self, data: bytes) -> bytes:
        """SM3 (GB/T 32905) of ``data``."""
        digest = ctypes.create_string_buffer(32)
        size = ctypes.c_uint()
        self._must(self._lib.EVP_Digest(data, len(data), digest, byref(size), self._lib.EVP_sm3(), None))
        return digest.raw

    # -- PKCS#8 ------------------------------------------------------------------------------------------------------
    def pkcs8_encrypt(self, pkcs8: bytes, passphrase: bytes) -> bytes:
        """EncryptedPrivateKeyInfo DER: PBES2, PBKDF2-HMAC-SHA-256 with 600,000 rounds, AES-256-CBC (RFC 8018)."""
        with self._scope() as stack:
            info = self._read(stack, "d2i_PKCS8_PRIV_KEY_INFO", "PKCS8_PRIV_KEY_INFO_free", pkcs8)
            salt, cipher = os.urandom(16), self._lib.EVP_aes_256_cbc()
            sealed = self._lib.PKCS8_encrypt(
                _PBES2, cipher, passphrase, len(passphrase), salt, len(salt), _PBKDF2_ROUNDS, info
            )
            return self._der(self._lib.i2d_X509_SIG, self._own(stack, sealed, "X509_SIG_free"))

    def pkcs8_decrypt(self, encrypted: bytes, passphrase: bytes) -> bytes:
        """PKCS#8 DER of an EncryptedPrivateKeyInfo; ``LibcryptoError`` for a wrong passphrase or other DER."""
        with self._scope() as stack:
            sealed = self._read(stack, "d2i_X509_SIG", "X509_SIG_free", encrypted)
            info = self._lib.PKCS8_decrypt(sealed, passphrase, len(passphrase))
            return self._der(self._lib.i2d_PKCS8_PRIV_KEY_INFO, self._own(stack, info, "PKCS8_PRIV_KEY_INFO_free"))

    # -- helpers -----------------------------------------------------------------------------------------------------
    def _private(self, stack: ExitStack, pkcs8: bytes) -> int:
        info = self._read(stack, "d2i_PKCS8_PRIV_KEY_INFO", "PKCS8_PRIV_KEY_INFO_free", pkcs8)
        key = self._own(stack, self._lib.EVP_PKCS82PKEY(info), "EVP_PKEY_free")
        self._must(self._lib.EVP_PKEY_is_a(key, b"SM2"))
        return key

    def _digest_context(self, stack: ExitStack, key: int, identity: bytes, init: str) -> int:
        # The identity has to be set before the init call, or OpenSSL 3.0 hashes the message without Z.
        context = self._own(stack, self._lib.EVP_PKEY_CTX_new(key, None), "EVP_PKEY_CTX_free")
        self._must(self._lib.EVP_PKEY_CTX_set1_id(context, identity, len(identity)))
        digest = self._own(stack, self._lib.EVP_MD_CTX_new(), "EVP_MD_CTX_free")
        self._lib.EVP_MD_CTX_set_pkey_ctx(digest, context)
        self._must(getattr(self._lib, init)(digest, None, self._lib.EVP_sm3(), None, key))
        return digest

    @contextmanager
    def _scope(self) -> Iterator[ExitStack]:
        with ExitStack() as stack:
            stack.callback(self._lib.ERR_clear_error)
            yield stack

    def _own(self, stack: ExitStack, pointer: int | None, free: str) -> int:
        if not pointer:
            raise LibcryptoError(f"{self.version} refused the key")
        stack.callback(getattr(self._lib, free), pointer)
        return pointer

    def _must(self, result: int) -> None:
        if result != 1:
            raise LibcryptoError(f"{self.version} refused the key or the operation")

    def _read(self, stack: ExitStack, decode: str, free: str, der: bytes) -> int:
        """The object that ``decode`` reads from exactly all of ``der``."""
        buffer = ctypes.create_string_buffer(der, len(der))
        start = ctypes.addressof(buffer)
        cursor = c_void_p(start)
        pointer = self._own(stack, getattr(self._lib, decode)(None, byref(cursor), len(der)), free)
        if cursor.value != start + len(der):
            raise LibcryptoError("bytes follow the key")
        return pointer

    def _der(self, function: Callable[..., int], pointer: int) -> bytes:
        size = function(pointer, None)
        if size <= 0:
            raise LibcryptoError(f"{self.version} could not encode the key")
        buffer = ctypes.create_string_buffer(size)
        function(pointer, byref(c_void_p(ctypes.addressof(buffer))))
        return buffer.raw
