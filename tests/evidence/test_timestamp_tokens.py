"""RFC 3161 tokens of openssl: accepted whole, refused when anything in them or around them differs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asn1crypto import cms, core
from tsa_case import POLICY, Tsa, make_tsa
from x509_case import openssl

from evidence import p384
from evidence.certificates import Profile, issue_certificate, issue_crl
from evidence.p384 import P384Signer
from evidence.timestamping import token_of
from evidence.verifier.certificate import read_certificate
from evidence.verifier.crl import Revocation
from evidence.verifier.der import encode_pem
from evidence.verifier.errors import CertificateFailure
from evidence.verifier.timestamp import imprint_of, read_timestamp
from evidence.verifier.x509 import CODE_SIGNING, TIME_STAMPING

SIGNATURES = (b"first signature", b"second")
IMPRINT = imprint_of(SIGNATURES)


@pytest.fixture(scope="module")
def tsa(tmp_path_factory: pytest.TempPathFactory) -> Tsa:
    return make_tsa(tmp_path_factory.mktemp("tsa"))


@pytest.fixture(scope="module")
def token(tsa: Tsa) -> bytes:
    return tsa.token(IMPRINT)


def reason(token: bytes, *arguments: Any, **options: Any) -> str:
    with pytest.raises(CertificateFailure) as caught:
        read_timestamp(token, *arguments, **options)
    assert caught.value.check == "timestamp"
    return caught.value.reason


def test_a_good_token(tsa: Tsa, token: bytes) -> None:
    stamp = read_timestamp(token, IMPRINT, [tsa.root])
    assert abs(stamp.gen_time - datetime.now(UTC)) < timedelta(minutes=5)
    assert (stamp.policy, stamp.tsa, stamp.nonce) == (POLICY, "TSA", 1 << 62)
    assert stamp.certificates == (tsa.certificate, tsa.root)
    assert stamp.crls == ()
    assert hashlib.sha512(b"first signaturesecond").digest() == IMPRINT


def test_openssl_agrees(tsa: Tsa, token: bytes) -> None:
    (tsa.folder / "t").write_bytes(token)
    (tsa.folder / "data").write_bytes(b"".join(SIGNATURES))
    (tsa.folder / "other").write_bytes(b"other")
    arguments = ["ts", "-verify", "-in", "t", "-token_in", "-CAfile", "root.pem", "-data"]
    assert "Verification: OK" in openssl(*arguments, "data", cwd=tsa.folder).stdout
    assert openssl(*arguments, "other", cwd=tsa.folder, check=False).returncode != 0
    assert reason(token, imprint_of([b"other"]), [tsa.root]) == "imprint"


def test_flipped_bits_are_refused(tsa: Tsa, token: bytes) -> None:
    for index in range(len(token)):
        if index % 4 == 0 or index < 60:
            bad = bytearray(token)
            bad[index] ^= 1 << (index % 8)
            reason(bytes(bad), IMPRINT, [tsa.root])


@pytest.mark.slow
def test_every_single_bit_counts(tsa: Tsa, token: bytes) -> None:
    for bit in range(8 * len(token)):
        bad = bytearray(token)
        bad[bit // 8] ^= 1 << (bit % 8)
        reason(bytes(bad), IMPRINT, [tsa.root])


def altered(token: bytes, change: Callable[[Any], None]) -> bytes:
    """The token after ``change`` to its SignedData, encoded anew."""
    parsed = cms.ContentInfo.load(token)
    change(parsed["content"])
    return parsed.dump(force=True)


def test_an_unsigned_attribute_is_refused(tsa: Tsa, token: bytes) -> None:
    def change(data: Any) -> None:
        data["signer_infos"][0]["unsigned_attrs"] = [{"type": "1.2.3.4", "values": [core.OctetString(b"x")]}]

    assert reason(altered(token, change), IMPRINT, [tsa.root]) == "unsigned"


def test_a_second_signer_is_refused(tsa: Tsa, token: bytes) -> None:
    def change(data: Any) -> None:
        other = data["signer_infos"][0].copy()
        other["signature"] = b"\x30\x06\x02\x01\x01\x02\x01\x01"
        data["signer_infos"].append(other)

    assert reason(altered(token, change), IMPRINT, [tsa.root]) == "signers"


def test_certificates_that_are_not_used_or_not_there(tsa: Tsa, token: bytes, tmp_path: Path) -> None:
    stranger = make_tsa(tmp_path)

    def add(der: bytes) -> Callable[[Any], None]:
        return lambda data: data["certificates"].append(cms.CertificateChoices.load(der))

    def drop(data: Any) -> None:
        data["certificates"] = []

    assert reason(altered(token, add(stranger.certificate)), IMPRINT, [tsa.root]) == "certificates"
    assert reason(altered(token, drop), IMPRINT, [tsa.root]) == "certificates"
    # The root is part of the path, so a token may carry it.
    read_timestamp(altered(token, add(tsa.root)), IMPRINT, [tsa.root])


def test_other_encodings_are_refused(tsa: Tsa, token: bytes) -> None:
    for bad in (token + b"\0", token[:-1], b"\x30\x80" + token[4:] + b"\0\0", b"\x30\x83\0" + token[2:], b""):
        assert reason(bad, IMPRINT, [tsa.root]) == "der"


def test_an_unsorted_set_of_certificates_is_refused_and_sorted_by_the_client(tsa: Tsa, token: bytes) -> None:
    def change(data: Any) -> None:
        data["certificates"].append(cms.CertificateChoices.load(tsa.root))

    good = altered(token, change)
    first, second = (item.dump() for item in cms.ContentInfo.load(good)["content"]["certificates"])
    bad = good.replace(first + second, second + first)
    assert bad != good and reason(bad, IMPRINT, [tsa.root]) == "der"
    body = bytes.fromhex("3003020100") + bad
    response = b"\x30\x82" + len(body).to_bytes(2, "big") + body
    assert token_of(response) == good


def test_the_root_is_the_verifiers(token: bytes, tmp_path: Path) -> None:
    stranger = make_tsa(tmp_path)
    # Same names, other keys: the key identifier differs. Without any root there is nothing to chain to.
    assert reason(token, IMPRINT, [stranger.root]) == "key-identifier"
    assert reason(token, IMPRINT, []) == "unknown-root"


def test_the_authority_is_judged_at_the_stated_time(tsa: Tsa, token: bytes) -> None:
    later = datetime.now(UTC) + timedelta(days=1000)
    assert reason(token, IMPRINT, [tsa.root], later) == "expired"


def test_a_revoked_authority(tmp_path: Path) -> None:
    made = make_revocable(tmp_path)
    stamp = made[0].token(IMPRINT)
    now = datetime.now(UTC).replace(microsecond=0)
    root = read_certificate(made[0].root)
    serial = read_certificate(made[0].certificate).serial

    def listed(entries: list[Revocation]) -> list[bytes]:
        return [issue_crl(root, made[1], 1, now - timedelta(hours=1), now + timedelta(days=1), entries)]

    assert read_timestamp(stamp, IMPRINT, [made[0].root], crls=listed([])).crls
    orderly = Revocation(serial, now + timedelta(hours=1), "superseded", None)
    read_timestamp(stamp, IMPRINT, [made[0].root], crls=listed([orderly]))
    # A stolen key can state any time, so a compromise voids every token, whatever the invalidity date says.
    stolen = Revocation(serial, now + timedelta(hours=1), "key_compromise", now + timedelta(hours=1))
    assert reason(stamp, IMPRINT, [made[0].root], crls=listed([stolen])) == "key-compromise"


def make_revocable(folder: Path) -> tuple[Tsa, P384Signer]:
    """An authority whose root key is at hand."""
    base = make_tsa(folder)
    top = P384Signer(p384.generate_private_key())
    now = datetime.now(UTC)
    root = issue_certificate(
        Profile("TSA root", now - timedelta(days=1), now + timedelta(days=9), path_length=0), top.spki, top, None
    )
    spki = read_certificate(base.certificate).spki
    profile = Profile("TSA", now - timedelta(days=1), now + timedelta(days=9), purpose=TIME_STAMPING)
    certificate = issue_certificate(profile, spki, top, read_certificate(root))
    (folder / "tsa.pem").write_text(encode_pem("CERTIFICATE", certificate))
    return Tsa(folder, root, certificate), top


def test_a_request_for_another_hash_is_not_accepted(tsa: Tsa) -> None:
    (tsa.folder / "m").write_bytes(b"m")
    openssl("ts", "-query", "-data", "m", "-sha256", "-cert", "-out", "q256", cwd=tsa.folder)
    token = token_of(tsa.respond((tsa.folder / "q256").read_bytes()))
    assert reason(token, hashlib.sha256(b"m").digest(), [tsa.root]) == "imprint"


def test_a_certificate_for_code_signing_cannot_stamp(tmp_path: Path) -> None:
    tsa = make_tsa(tmp_path, purpose=CODE_SIGNING)
    # openssl refuses to stamp with it, as it should.
    with pytest.raises(AssertionError, match="openssl ts"):
        tsa.token(IMPRINT)
