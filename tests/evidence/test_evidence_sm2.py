from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sm2_reference as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence import p384, sm2
from evidence.verifier import sm2 as checking
from evidence.verifier.canonical import MalformedError
from evidence.verifier.der import decode_pem, decode_signature, encode_pem, encode_signature
from evidence.verifier.errors import UnsupportedError, UsageError
from evidence.verifier.libcrypto import Libcrypto, LibcryptoError
from evidence.verifier.p384 import ORDER as ORDER384

# GB/T 32918.5 annex A, recommended curve.
D = 0x3945208F7B2144B13F36E38AC6D39F95889393692860B51A42FB81EF4DF7C5B8
K = 0x59276E27D506861A16680F3AD9C02DCCEF3CC1FA3CDBE4CE6D54B80DEAC1BC21
ZA = "b2e14c5c79c6df5b85f4fe7ed8db7a262b9da7e07ccb0ea9f4747b8ccda8a4f3"
KAT = encode_signature(checking.KAT_R, checking.KAT_S)
# The public key's x starts with the byte 04: a public complaint about readers that take it for the point prefix.
D_X04 = 11


@pytest.fixture(scope="module")
def verifier() -> checking.Sm2Verifier:
    return checking.Sm2Verifier(checking.spki_of_point(checking.KAT_POINT))


def test_standard_example(verifier):
    assert reference.public_point(D) == checking.KAT_POINT
    assert reference.za(checking.SM2_ID, checking.KAT_POINT).hex() == ZA
    assert reference.sign(D, K, checking.SM2_ID, b"message digest") == (checking.KAT_R, checking.KAT_S)
    assert sm2.Sm2Signer(reference.pkcs8(D)).spki == verifier.spki
    assert verifier.verify(b"message digest", KAT)
    assert not verifier.verify(b"message digesu", KAT)
    assert not verifier.verify(b"message digest\0", KAT)


@given(st.integers(0, len(KAT) * 8 - 1))
@settings(max_examples=80, deadline=None)
def test_every_flipped_bit_is_refused(bit):
    changed = bytearray(KAT)
    changed[bit // 8] ^= 1 << bit % 8
    assert not checking.Sm2Verifier(checking.spki_of_point(checking.KAT_POINT)).verify(
        b"message digest", bytes(changed)
    )


@pytest.mark.parametrize(
    ("r", "s"),
    [
        (0, checking.KAT_S),
        (checking.KAT_R, 0),
        (checking.ORDER, checking.KAT_S),
        (checking.KAT_R, checking.ORDER),
        (checking.KAT_R, checking.ORDER - checking.KAT_S),
        (checking.KAT_R, checking.ORDER - checking.KAT_R),
        (checking.KAT_R + checking.ORDER, checking.KAT_S),
        (checking.KAT_R, checking.KAT_S + checking.ORDER),
    ],
    ids=["r=0", "s=0", "r=n", "s=n", "n-s", "r+s=n", "r+n", "s+n"],
)
def test_edge_numbers_are_refused(verifier, r, s):
    assert not verifier.verify(b"message digest", encode_signature(r, s))


def long_form(der: bytes) -> bytes:
    return b"\x30\x81" + der[1:]


def extra_zero(der: bytes) -> bytes:
    r, s = decode_signature(der, checking.ORDER)
    body = b"\x02\x22\x00\x00" + r.to_bytes(32, "big") + encode_signature(1, s)[5:]
    return bytes([0x30, len(body)]) + body


def third_integer(der: bytes) -> bytes:
    return bytes([0x30, der[1] + 3]) + der[2:] + b"\x02\x01\x01"


def negative(der: bytes) -> bytes:
    r, s = decode_signature(der, checking.ORDER)
    body = b"\x02\x20" + r.to_bytes(32, "big") + encode_signature(1, s)[5:]
    return bytes([0x30, len(body)]) + body


@pytest.mark.parametrize(
    "spoil",
    [
        long_form,
        extra_zero,
        negative,
        third_integer,
        lambda der: der + b"\0",
        lambda der: der[:-1],
        lambda der: b"",
        lambda der: b"\x30",
        lambda der: b"\x30\x00",
        lambda der: b"\x31" + der[1:],
        lambda der: b"".join(n.to_bytes(32, "big") for n in decode_signature(der, checking.ORDER)),
    ],
    ids=["long", "zero", "negative", "third", "trailing", "short", "empty", "one", "none", "set", "raw"],
)
def test_only_strict_der_is_read(verifier, spoil):
    with pytest.raises(MalformedError):
        decode_signature(spoil(KAT), checking.ORDER)
    assert not verifier.verify(b"message digest", spoil(KAT))


@given(st.integers(1, checking.ORDER - 1), st.integers(1, checking.ORDER - 1))
def test_der_round_trip(r, s):
    assert decode_signature(encode_signature(r, s), checking.ORDER) == (r, s)


def test_wrong_identities_are_refused(verifier):
    """Without Z (OpenSSL's default when no distid is given), with an empty and with another identity."""
    for identity in (None, b"", b"1234567812345679", b"ALICE123@YAHOO.COM"):
        assert not verifier.verify(b"m", encode_signature(*reference.sign(D, K, identity, b"m")))
    assert verifier.verify(b"m", encode_signature(*reference.sign(D, K, checking.SM2_ID, b"m")))


@pytest.mark.parametrize("size", [0, 1, 55, 64, 1 << 20])
def test_messages_of_any_size(size):
    signer, message = sm2.Sm2Signer(reference.pkcs8(D)), b"x" * size
    signature = signer.sign(message)
    assert checking.Sm2Verifier(signer.spki).verify(message, signature)
    assert signer.sign(message) != signature


def test_agrees_with_gmssl_both_ways(verifier):
    gmssl = pytest.importorskip("gmssl_pyx")
    secret = D.to_bytes(32, "big")
    signer = sm2.Sm2Signer(reference.pkcs8(D))
    for message in (b"", b"message digest", "胸部".encode() * 1000):
        assert gmssl.sm2_verify(checking.KAT_POINT, message, signer.sign(message))
        assert verifier.verify(message, gmssl.sm2_sign(secret, checking.KAT_POINT, message))
    point = reference.public_point(D_X04)
    assert point[0] == 0x04
    odd = sm2.Sm2Signer(reference.pkcs8(D_X04))
    assert odd.spki == checking.spki_of_point(point)
    assert gmssl.sm2_verify(point, b"m", odd.sign(b"m"))


def test_leading_zero_bytes_in_r_and_s(verifier):
    """A short r or s must be encoded in fewer bytes, and still verify here and elsewhere."""
    gmssl = pytest.importorskip("gmssl_pyx")
    found = set()
    # Walking k = 1, 2, ... costs one addition each; any k will do for a test.
    e = int.from_bytes(hashlib.new("sm3", reference.za(checking.SM2_ID, checking.KAT_POINT) + b"m").digest(), "big")
    inverse, point = pow(1 + D, -1, reference.N), None
    for k in range(1, 4000):
        point = reference.add(point, reference.G)
        r = (e + point[0]) % reference.N
        s = inverse * (k - r * D) % reference.N
        short = {name for name, value in (("r", r), ("s", s)) if value < 1 << 247}
        if short - found:
            signature = encode_signature(r, s)
            assert len(signature) <= 2 + 2 + 31 + 2 + 33
            assert verifier.verify(b"m", signature) and gmssl.sm2_verify(checking.KAT_POINT, b"m", signature)
            found |= short
        if found == {"r", "s"}:
            return
    pytest.fail("no short r and s in 4000 signatures")


def test_other_keys_are_refused():
    p384_private = p384.generate_private_key()
    p384_public = p384.P384Signer(p384_private).spki
    good = checking.spki_of_point(checking.KAT_POINT)
    for spki in (p384_public, b"", good[:-1], good + b"\0", good[:-1] + bytes([good[-1] ^ 1])):
        with pytest.raises(UsageError, match="SM2 public key"):
            checking.Sm2Verifier(spki)
    for pkcs8 in (p384_private, b"", good, reference.pkcs8(D) + b"\0"):
        with pytest.raises(UsageError, match="not an SM2 private key"):
            sm2.Sm2Signer(pkcs8)
    with pytest.raises(UsageError, match="not a P-384 private key"):
        p384.P384Signer(reference.pkcs8(D))
    for spki in (good, b"", p384_public + b"\0"):
        with pytest.raises(UsageError, match="P-384 public key"):
            p384.P384Verifier(spki)


def test_mismatched_halves_do_not_sign():
    """A PKCS#8 key whose stated public half is another key's: verify after sign notices."""
    wrong = reference.pkcs8(D).replace(checking.KAT_POINT, reference.public_point(7))
    with pytest.raises(UsageError, match=r"public half does not match|not an SM2 private key"):
        sm2.Sm2Signer(wrong).sign(b"m")


def test_signing_is_refused_off_x86_64():
    for machine in ("aarch64", "arm64", "riscv64"):
        with pytest.raises(UnsupportedError, match=f"refused on {machine}.*verify anywhere"):
            sm2.check_signing_machine(machine)
    sm2.check_signing_machine("x86_64")


def test_missing_library_is_named(tmp_path):
    with pytest.raises(UnsupportedError, match=r"libabsent\.so is missing or lacks SM2; install OpenSSL"):
        Libcrypto("libabsent.so")


def test_openssl_without_sm2_is_named(tmp_path):
    """The system library configured without its default provider: it loads, but has no SM2."""
    config = tmp_path / "openssl.cnf"
    config.write_text(
        "openssl_conf = init\n[init]\nproviders = list\n[list]\nbase = base_section\n[base_section]\nactivate = 1\n"
    )
    script = (
        "from evidence.verifier.errors import UnsupportedError\n"
        "from evidence.verifier import sm2\n"
        "try:\n    sm2.load()\nexcept UnsupportedError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=os.environ | {"OPENSSL_CONF": str(config)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "has no SM2; use OpenSSL 3.0 or later" in done.stdout


def test_openssl_objects_are_freed():
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("this C library has no mallinfo2")
    names = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]

    class Mallinfo(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in names]

    libc.mallinfo2.restype = Mallinfo
    crypto, secret = checking.load(), reference.pkcs8(D)
    spki = crypto.sm2_public(secret)
    # One round instead of 600,000, so that the loop stays short.
    command = "openssl pkcs8 -topk8 -inform DER -outform DER -iter 1 -passout pass:right".split()
    sealed = subprocess.run(command, input=secret, check=True, capture_output=True).stdout

    def work() -> None:
        assert crypto.sm2_verify(spki, checking.SM2_ID, b"m", crypto.sm2_sign(secret, checking.SM2_ID, b"m"))
        assert not crypto.sm2_verify(spki, checking.SM2_ID, b"m", b"\x30\x00")
        crypto.sm2_generate()
        for broken in (b"", spki, secret + b"\0", p384_private):
            with pytest.raises(LibcryptoError):
                crypto.sm2_public(broken)
        assert crypto.pkcs8_decrypt(sealed, b"right") == secret
        for broken, passphrase in ((sealed, b"wrong"), (sealed[:-1], b"right"), (sealed + b"\0", b"right")):
            with pytest.raises(LibcryptoError):
                crypto.pkcs8_decrypt(broken, passphrase)

    p384_private = p384.generate_private_key()

    def growth() -> int:
        gc.collect()
        before = libc.mallinfo2().uordblks
        for _ in range(40):
            work()
        gc.collect()
        return int(libc.mallinfo2().uordblks) - before

    growth()
    # The interpreter's own caches grow now and then, a leak grows in every batch: the smallest leaked object here is
    # over 100 bytes a round.
    assert min(growth() for _ in range(4)) < 40 * 64


def test_pem_is_strict():
    text = encode_pem("PUBLIC KEY", bytes(range(100)))
    assert decode_pem(text) == ("PUBLIC KEY", bytes(range(100)))
    for broken in (
        "",
        text + text,
        "x" + text,
        text.replace("END PUBLIC", "END PRIVATE"),
        text.replace("AAEC", "A EC"),
    ):
        with pytest.raises(MalformedError):
            decode_pem(broken)


def test_p384_is_deterministic_and_strict():
    signer = p384.P384Signer(p384.generate_private_key())
    signature = signer.sign(b"m")
    assert signer.sign(b"m") == signature
    verifier = p384.P384Verifier(signer.spki)
    assert verifier.verify(b"m", signature)
    r, s = decode_signature(signature, ORDER384)
    for bad in (signature + b"\0", long_form(signature), encode_signature(r, s ^ 1), encode_signature(0, s), b""):
        assert not verifier.verify(b"m", bad)
    assert not verifier.verify(b"n", signature)
