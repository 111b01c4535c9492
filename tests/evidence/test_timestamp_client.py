"""Asking an authority over HTTP: a good answer is accepted, every other one ends in one sentence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tsa_case import POLICY, Tsa, make_tsa, serve

from evidence.timestamping import request_timestamp
from evidence.verifier.errors import UsageError
from evidence.verifier.timestamp import imprint_of, read_timestamp

IMPRINT = imprint_of([b"a", b"b"])
REPLY = "application/timestamp-reply"


@pytest.fixture(scope="module")
def tsa(tmp_path_factory: pytest.TempPathFactory) -> Tsa:
    return make_tsa(tmp_path_factory.mktemp("tsa"))


@pytest.mark.parametrize("policy", [None, POLICY, "1.3.6.1.4.1.99999.2"])
def test_a_good_answer(tsa: Tsa, policy: str | None) -> None:
    with serve(lambda request: (200, REPLY, tsa.respond(request))) as url:
        token, stamp = request_timestamp(url, IMPRINT, [tsa.root], policy_oid=policy)
    assert stamp == read_timestamp(token, IMPRINT, [tsa.root])
    assert stamp.policy == (policy or POLICY)


@pytest.mark.parametrize(
    ("status", "kind", "body", "word"),
    [
        (500, REPLY, b"", "status 500"),
        (200, "text/html", b"<html>", "text/html"),
        (200, REPLY, b"junk", "not a TimeStampResp"),
        (200, REPLY, b"", "not a TimeStampResp"),
        (200, REPLY, bytes(300_000), "larger"),
        (200, REPLY, bytes.fromhex("30053003020102"), "rejection"),
        (200, REPLY, bytes.fromhex("30053003020100"), "no token"),
    ],
)
def test_bad_answers(tsa: Tsa, status: int, kind: str, body: bytes, word: str) -> None:
    with serve(lambda _: (status, kind, body)) as url, pytest.raises(UsageError, match=word) as caught:
        request_timestamp(url, IMPRINT, [tsa.root])
    assert "timestamp.url" in str(caught.value) and "\n" not in str(caught.value)


def test_an_answer_to_an_earlier_request(tsa: Tsa) -> None:
    seen: list[bytes] = []

    def replay(request: bytes) -> tuple[int, str, bytes]:
        if not seen:
            seen.append(tsa.respond(request))
        return 200, REPLY, seen[0]

    with serve(replay) as url:
        request_timestamp(url, IMPRINT, [tsa.root])
        with pytest.raises(UsageError, match="nonce"):
            request_timestamp(url, IMPRINT, [tsa.root])
        with pytest.raises(UsageError, match="other signatures"):
            request_timestamp(url, imprint_of([b"c"]), [tsa.root])


def test_the_authority_must_be_trusted_and_its_clock_near(tsa: Tsa, tmp_path: Path) -> None:
    stranger = make_tsa(tmp_path)
    with serve(lambda request: (200, REPLY, tsa.respond(request))) as url:
        with pytest.raises(UsageError, match="not trusted"):
            request_timestamp(url, IMPRINT, [stranger.root])
        with pytest.raises(UsageError, match="tsa_roots"):
            request_timestamp(url, IMPRINT, [])
        with pytest.raises(UsageError, match="ten minutes"):
            request_timestamp(url, IMPRINT, [tsa.root], now=datetime.now(UTC) + timedelta(hours=1))


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "file:///etc/passwd", "ftp://127.0.0.1/"])
def test_addresses_that_do_not_answer(tsa: Tsa, url: str) -> None:
    with pytest.raises(UsageError, match=r"timestamp\.url"):
        request_timestamp(url, IMPRINT, [tsa.root], timeout_s=2)
