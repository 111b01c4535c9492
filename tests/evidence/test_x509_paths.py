"""Certificate paths: a good one of each algorithm, and every way in which one can be bad, by its name."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime

import pytest
import sm2_reference
from asn1crypto import core
from asn1crypto import x509 as asn1
from x509_case import ALGORITHMS, DAY, T0, Chain, make, resign, signer

from evidence.certificates import Profile, issue_certificate
from evidence.verifier.certificate import read_certificate
from evidence.verifier.der import encode_signature
from evidence.verifier.errors import CertificateFailure
from evidence.verifier.signing import P384, SM2
from evidence.verifier.sm2 import Sm2Verifier, spki_of_point
from evidence.verifier.x509 import CODE_SIGNING, DEPLOYMENT, DOCUMENT_SIGNING, check_root, verify_chain

EKU = "2.5.29.37"


def failure(chain: Chain, **options: object) -> tuple[str, str]:
    with pytest.raises(CertificateFailure) as caught:
        chain.verify(**options)  # type: ignore[arg-type]
    return caught.value.check, caught.value.reason


def changed(chain: Chain, **parts: object) -> Chain:
    return Chain(**{**chain.__dict__, **parts})  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_three_levels_verify(algorithm: str) -> None:
    chain = make(algorithm)
    path = chain.verify()
    assert path.certificates == (chain.leaf, chain.issuing, chain.root)
    assert set(path.crls) == set(chain.crls)
    assert (path.algorithm, path.common_name) == (algorithm, "Leaf")
    assert path.spki == signer(algorithm, "leaf").spki


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (T0 - DAY, ("clock-before-issue", "not-yet-valid")),
        (T0 + 2000 * DAY, ("certificate-expired", "expired")),
    ],
)
def test_validity_at_the_time_of_signing(algorithm: str, at: datetime, expected: tuple[str, str]) -> None:
    assert failure(make(algorithm), at=at) == expected


@pytest.mark.parametrize("level", ["root", "issuing", "leaf"])
def test_every_level_must_be_valid(level: str) -> None:
    chain = make(**{level: {"not_after": T0 + DAY}})
    chain.verify(at=T0 + DAY)
    assert failure(chain, at=T0 + 2 * DAY) == ("certificate-expired", "expired")


@pytest.mark.parametrize("purpose", [DOCUMENT_SIGNING, DEPLOYMENT])
def test_another_purpose_is_refused(purpose: str) -> None:
    assert failure(make(), purpose=purpose) == ("certificate-purpose", "purpose")
    make(leaf={"purpose": purpose}).verify(purpose=purpose)


def test_a_second_purpose_and_no_purpose_are_refused() -> None:
    chain, issuer = make(), signer(SM2, "issuing")
    both = {"extn_id": "extended_key_usage", "extn_value": [CODE_SIGNING, DOCUMENT_SIGNING]}
    bare = resign(chain.leaf, issuer, drop_extension=EKU)
    assert failure(changed(chain, leaf=bare)) == ("certificate-purpose", "purpose")
    two = resign(bare, issuer, add_extension=both)
    assert failure(changed(chain, leaf=two)) == ("certificate-purpose", "purpose")


def test_an_authority_cannot_sign_as_a_leaf() -> None:
    chain = make()
    assert failure(changed(chain, leaf=chain.issuing)) == ("certificate-purpose", "key-usage")


def test_an_authority_limited_to_other_purposes() -> None:
    chain = make()
    limited = {"extn_id": "extended_key_usage", "extn_value": [DOCUMENT_SIGNING]}
    issuing = resign(chain.issuing, signer(SM2, "root"), add_extension=limited)
    assert failure(changed(chain, issuing=issuing)) == ("certificate-purpose", "purpose")


def test_a_root_that_the_verifier_does_not_have() -> None:
    chain = make()
    stranger = signer(SM2, "stranger")
    other = issue_certificate(Profile("Other", T0, T0 + DAY, path_length=1), stranger.spki, stranger, None)
    assert failure(changed(chain, root=other)) == ("unknown-key", "unknown-root")
    assert failure(changed(chain, root=other, extra=(chain.root,))) == ("self-embedded-key", "embedded-root")


def test_a_root_of_the_same_name_with_another_key() -> None:
    chain = make()
    stranger = signer(SM2, "stranger")
    other = issue_certificate(Profile("Root", T0, T0 + 9 * DAY, path_length=1), stranger.spki, stranger, None)
    assert failure(changed(chain, root=other)) == ("certificate-path", "key-identifier")


def test_a_leaf_that_signed_itself() -> None:
    low = signer(SM2, "leaf")
    alone = issue_certificate(Profile("Me", T0, T0 + 9 * DAY, purpose=CODE_SIGNING), low.spki, low, None)
    assert failure(changed(make(), leaf=alone)) == ("self-embedded-key", "self-signed-leaf")


def test_names_must_chain() -> None:
    chain = make()
    renamed = resign(chain.leaf, signer(SM2, "issuing"), issuer=asn1.Name.build({"common_name": "Issuing "}))
    assert failure(changed(chain, leaf=renamed)) == ("unknown-key", "unknown-root")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signature_by_another_key(algorithm: str) -> None:
    chain = make(algorithm)
    forged = resign(chain.leaf, signer(algorithm, "stranger"))
    assert failure(changed(chain, leaf=forged)) == ("certificate-path", "signature")


class Nameless:
    """Signs SM3(message) without the identity's hash Z, as OpenSSL does without distid."""

    algorithm = SM2

    def __init__(self) -> None:
        self.number = secrets.randbelow(sm2_reference.N - 2) + 1
        self.spki = spki_of_point(sm2_reference.public_point(self.number))

    def sign(self, message: bytes) -> bytes:
        k = secrets.randbelow(sm2_reference.N - 1) + 1
        return encode_signature(*sm2_reference.sign(self.number, k, None, message))


def test_an_sm2_signature_without_the_identity_is_named() -> None:
    key = Nameless()
    root = issue_certificate(Profile("R", T0, T0 + 9 * DAY, path_length=1), key.spki, key, None)
    with pytest.raises(CertificateFailure) as caught:
        check_root(root)
    assert (caught.value.check, caught.value.reason) == ("certificate-path", "sm2-without-identity")


def test_a_path_of_four_levels() -> None:
    chain = make(root={"path_length": 3}, issuing={"path_length": 3})
    middle, second, low = signer(SM2, "issuing"), signer(SM2, "second"), signer(SM2, "leaf")
    below = issue_certificate(
        Profile("Second", T0, T0 + 9 * DAY, path_length=0), second.spki, middle, read_certificate(chain.issuing)
    )
    leaf = issue_certificate(
        Profile("Leaf", T0, T0 + 9 * DAY, purpose=CODE_SIGNING), low.spki, second, read_certificate(below)
    )
    assert failure(changed(chain, leaf=leaf, extra=(below,))) == ("certificate-path", "depth")


def test_a_path_longer_than_an_authority_allows() -> None:
    assert failure(make(root={"path_length": 0})) == ("certificate-path", "path-length")


def test_a_leaf_that_issues() -> None:
    chain = make()
    low, second = signer(SM2, "leaf"), signer(SM2, "second")
    leaf = issue_certificate(
        Profile("Below", T0, T0 + DAY, purpose=CODE_SIGNING), second.spki, low, read_certificate(chain.leaf)
    )
    direct = changed(chain, leaf=leaf, issuing=chain.leaf, root=chain.root)
    with pytest.raises(CertificateFailure) as caught:
        verify_chain(direct.leaf, [chain.leaf], [chain.root], (), T0, CODE_SIGNING, require_crls=False)
    # The leaf was not issued by the root, so the path breaks above it; with the issuing authority it is too long.
    assert (caught.value.check, caught.value.reason) == ("unknown-key", "unknown-root")
    two = issue_certificate(
        Profile("Two", T0, T0 + 9 * DAY, purpose=CODE_SIGNING),
        low.spki,
        signer(SM2, "root"),
        read_certificate(chain.root),
    )
    under = issue_certificate(
        Profile("Under", T0, T0 + 9 * DAY, purpose=CODE_SIGNING), second.spki, low, read_certificate(two)
    )
    with pytest.raises(CertificateFailure) as caught:
        verify_chain(under, [two], [chain.root], (), T0, CODE_SIGNING, require_crls=False)
    assert (caught.value.check, caught.value.reason) == ("certificate-path", "not-a-ca")


@pytest.mark.parametrize(("critical", "accepted"), [(True, False), (False, True)])
def test_extensions_that_are_not_understood(critical: bool, accepted: bool) -> None:
    chain = make()
    unknown = {"extn_id": "1.2.3.4.5", "critical": critical, "extn_value": core.ParsableOctetString(b"\x05\x00")}
    leaf = resign(chain.leaf, signer(SM2, "issuing"), add_extension=unknown)
    if accepted:
        changed(chain, leaf=leaf).verify()
    else:
        assert failure(changed(chain, leaf=leaf)) == ("certificate-path", "critical-extension")


def test_an_extension_given_twice() -> None:
    chain = make()
    again = {"extn_id": "basic_constraints", "critical": True, "extn_value": {"ca": False}}
    leaf = resign(chain.leaf, signer(SM2, "issuing"), add_extension=again)
    assert failure(changed(chain, leaf=leaf)) == ("certificate-path", "extension")


@pytest.mark.parametrize(
    ("number", "reason"), [(-5, "serial"), (0, "serial"), (1 << 161, "serial")], ids=["negative", "zero", "long"]
)
def test_serial_numbers(number: int, reason: str) -> None:
    chain = make()
    leaf = resign(chain.leaf, signer(SM2, "issuing"), serial_number=number)
    assert failure(changed(chain, leaf=leaf)) == ("certificate-path", reason)


def test_keys_and_signatures_of_different_algorithms() -> None:
    sm2, p384 = make(SM2), make(P384)
    mixed = resign(p384.leaf, signer(P384, "issuing"))
    assert failure(changed(sm2, leaf=mixed))[0] == "certificate-path"


def _long_length(der: bytes) -> bytes:
    return der[:1] + b"\x83\x00" + der[2:4] + der[4:]


def _indefinite(der: bytes) -> bytes:
    return b"\x30\x80" + der[4:] + b"\x00\x00"


@pytest.mark.parametrize(
    "change",
    [_long_length, _indefinite, lambda der: der + b"\x00", lambda der: der[:-1]],
    ids=["long-length", "indefinite", "trailing", "short"],
)
def test_other_encodings_than_der_are_refused(change: Callable[[bytes], bytes]) -> None:
    chain = make()
    bad = change(chain.leaf)
    assert bad != chain.leaf
    assert failure(changed(chain, leaf=bad)) == ("certificate-path", "der")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_flipped_bits_anywhere_in_a_certificate_are_refused(algorithm: str) -> None:
    chain = make(algorithm)
    for index in range(0, len(chain.leaf), 3):
        bad = bytearray(chain.leaf)
        bad[index] ^= 1 << (index % 8)
        assert failure(changed(chain, leaf=bytes(bad)))[0] in {
            "certificate-path",
            "certificate-purpose",
            "unknown-key",
            "certificate-expired",
            "clock-before-issue",
        }


def test_a_peer_accepts_our_signatures_and_we_its() -> None:
    gmssl = pytest.importorskip("gmssl_pyx")
    certificate = read_certificate(make().leaf)
    issuer = read_certificate(make().issuing)
    assert gmssl.sm2_verify(issuer.spki[-64:], certificate.tbs, certificate.signature)
    public, private = gmssl.sm2_key_generate()
    verifier = Sm2Verifier(certificate.spki[:-64] + public)
    assert verifier.verify(certificate.tbs, gmssl.sm2_sign(private, public, certificate.tbs))
