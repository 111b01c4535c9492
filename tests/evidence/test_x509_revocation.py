"""Revocation, judged at the time of the signature, and lists that say nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from x509_case import ALGORITHMS, DAY, T0, Chain, make, openssl, signer

from evidence.certificates import Profile, issue_certificate, issue_crl
from evidence.verifier.certificate import read_certificate
from evidence.verifier.crl import Revocation
from evidence.verifier.der import encode_pem
from evidence.verifier.errors import CertificateFailure
from evidence.verifier.signing import SM2

SECOND = timedelta(seconds=1)
REVOKED = T0 + 10 * DAY
INVALID = T0 + 5 * DAY


def failure(chain: Chain, **options: object) -> tuple[str, str]:
    with pytest.raises(CertificateFailure) as caught:
        chain.verify(**options)  # type: ignore[arg-type]
    return caught.value.check, caught.value.reason


@pytest.mark.parametrize(
    "reason",
    [
        "unspecified",
        "affiliation_changed",
        "superseded",
        "cessation_of_operation",
        "certificate_hold",
        "privilege_withdrawn",
    ],
)
def test_what_was_signed_before_an_orderly_revocation_stays_good(reason: str) -> None:
    chain = make(revoked=[Revocation(77, REVOKED, reason, None)])
    chain.verify(at=REVOKED - SECOND, stamped=True)
    assert failure(chain, at=REVOKED, stamped=True) == ("certificate-revoked", reason.replace("_", "-"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("reason", ["key_compromise", "ca_compromise", "aa_compromise"])
def test_after_a_compromise_the_invalidity_date_counts(algorithm: str, reason: str) -> None:
    chain = make(algorithm, revoked=[Revocation(77, REVOKED, reason, INVALID)])
    chain.verify(at=INVALID - SECOND, stamped=True)
    assert failure(chain, at=INVALID, stamped=True) == ("certificate-revoked", reason.replace("_", "-"))


def test_a_compromise_without_a_date_and_a_revocation_without_a_reason_void_everything() -> None:
    for entry, slug in (
        (Revocation(77, REVOKED, "key_compromise", None), "key-compromise"),
        (Revocation(77, REVOKED, None, None), "no-reason"),
    ):
        assert failure(make(revoked=[entry]), at=T0 + SECOND, stamped=True) == ("certificate-revoked", slug)


def test_without_a_timestamp_nothing_of_a_revoked_key_is_accepted() -> None:
    chain = make(revoked=[Revocation(77, REVOKED, "superseded", None)])
    assert failure(chain, at=REVOKED - DAY) == ("certificate-revoked", "superseded")


def test_another_serial_is_not_concerned() -> None:
    make(revoked=[Revocation(78, REVOKED, "key_compromise", None)]).verify(at=REVOKED)


def test_lists_must_be_there_current_and_of_the_issuer() -> None:
    chain = make()
    assert failure(replace(chain, crls=chain.crls[:1])) == ("certificate-revoked", "crl-absent")
    assert failure(replace(chain, crls=())) == ("certificate-revoked", "crl-absent")
    replace(chain, crls=()).verify(require_crls=False)
    assert failure(chain, at=T0 + 31 * DAY) == ("certificate-revoked", "crl-stale")
    # A list made after the signature knows more, not less.
    later = make(lists={"this_update": T0 + 50 * DAY, "next_update": T0 + 60 * DAY})
    later.verify(at=T0 + DAY)


def test_an_old_list_beside_a_current_one() -> None:
    chain = make()
    old = make(lists={"next_update": T0 + SECOND})
    # Keys are the same in both, so all four lists are of these authorities.
    path = replace(chain, crls=(*chain.crls, *old.crls)).verify(at=T0 + DAY)
    assert set(path.crls) == {*chain.crls, *old.crls}


def test_a_list_signed_by_someone_else() -> None:
    chain = make()
    stranger, issuing = signer(SM2, "stranger"), read_certificate(chain.issuing)
    forged = issue_crl(issuing, stranger, 2, T0, T0 + 30 * DAY, ())
    assert failure(replace(chain, crls=(chain.crls[0], forged))) == ("certificate-revoked", "crl-wrong-issuer")
    other = read_certificate(
        issue_certificate(Profile("Issuing", T0, T0 + DAY, path_length=0), stranger.spki, stranger, None)
    )
    renamed = issue_crl(other, stranger, 2, T0, T0 + 30 * DAY, ())
    assert failure(replace(chain, crls=(chain.crls[0], renamed))) == ("certificate-revoked", "crl-wrong-issuer")


def test_flipped_bits_anywhere_in_a_list_are_refused() -> None:
    chain = make(revoked=[Revocation(77, REVOKED, "key_compromise", INVALID)])
    for index in range(0, len(chain.crls[1]), 3):
        bad = bytearray(chain.crls[1])
        bad[index] ^= 1 << (index % 8)
        check, reason = failure(replace(chain, crls=(chain.crls[0], bytes(bad))), at=T0 + DAY, stamped=True)
        assert check == "certificate-revoked" and reason.startswith("crl-")


def test_openssl_reads_our_list(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path))
    chain = make("ecdsa-p384-sha384", revoked=[Revocation(77, REVOKED, "key_compromise", INVALID)])
    (folder / "crl.pem").write_text(encode_pem("X509 CRL", chain.crls[1]))
    (folder / "issuing.pem").write_text(encode_pem("CERTIFICATE", chain.issuing))
    done = openssl("crl", "-in", "crl.pem", "-noout", "-text", "-CAfile", "issuing.pem", cwd=folder)
    assert "verify OK" in done.stderr
    assert "Serial Number: 4D" in done.stdout and "Key Compromise" in done.stdout
