"""Bytes on a socket: what is no HTTP, what never ends, what is too much."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from registry_client import Client
from registry_serving import serving


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("wire")) as client:
        yield client


def dialled(client: Client) -> socket.socket:
    host, _, port = client.base.split("/")[2].partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def answer(held: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, header fields and body of the next response; status 0 when the connection ended without one."""
    with held.makefile("rb") as stream:
        line = stream.readline()
        if not line:
            return 0, {}, b""
        headers = {}
        while (field := stream.readline().strip()) != b"":
            name, _, value = field.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return int(line.split()[1]), headers, stream.read(int(headers.get("content-length", "0")))


def said(client: Client, sent: bytes) -> tuple[int, str]:
    """Status of the answer to ``sent``, and the text of its OperationOutcome where it is a refusal."""
    with dialled(client) as held:
        held.sendall(sent)
        status, headers, body = answer(held)
        if status < 400:
            return status, ""
        assert headers["content-type"].startswith("application/fhir+json")
        found = json.loads(body)
        assert found["resourceType"] == "OperationOutcome"
        return status, found["issue"][0]["details"]["text"]


HOST = b"Host: x\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),  # TLS
        b"GET\r\n\r\n",
        b"GET /fhir/metadata HTTP/9.9\r\n" + HOST + b"\r\n",
        b"GET /fhir/a b HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /fhir/\xff HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /fhir/\x00 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"FOO /fhir HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /fhir/metadata HTTP/1.1\r\n" + HOST + b"X Y: 1\r\n\r\n",
        b"GET /fhir/metadata HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n",
        b"GET /fhir/metadata HTTP/1.1\r\n" + HOST + b": b\r\n\r\n",
        b"POST /fhir/Device HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        b"POST /fhir/Device HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /fhir/Device HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999999\r\n\r\n",
        b"POST /fhir/Device HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"POST /fhir/Device HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ],
    ids=lambda b: repr(b.replace(HOST, b""))[2:50],
)
def test_what_is_no_http_is_refused_in_fhir(standing: Client, sent: bytes) -> None:
    status, text = said(standing, sent)
    assert 400 <= status < 500 and text
    assert standing.call("GET", "metadata")[0] == 200


def test_a_body_of_50_megabytes_is_refused_before_it_is_sent(standing: Client) -> None:
    head = (
        b"POST /fhir/Device HTTP/1.1\r\n"
        + HOST
        + b"Content-Type: application/fhir+json\r\nContent-Length: 52428800\r\n\r\n"
    )
    assert said(standing, head + b"{")[0] == 413
    assert said(standing, head.replace(b"Host", b"Expect: 100-continue\r\nHost"))[0] == 413


def test_chunks_are_counted(standing: Client) -> None:
    """Nine of fifty megabytes were sent when the answer comes, and the rest may follow."""
    with dialled(standing) as held:
        held.sendall(b"POST /fhir/Device HTTP/1.1\r\n" + HOST + b"Content-Type: application/fhir+json\r\n")
        held.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        for _ in range(9):
            held.sendall(chunk)
        assert answer(held)[0] == 413
        for _ in range(41):
            held.sendall(chunk)
        held.sendall(b"0\r\n\r\n")


def test_a_body_that_never_ends_is_given_up(standing: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fhir_registry.server.http.BODY_SECONDS", 0.3)
    monkeypatch.setattr("fhir_registry.server.http.DRAIN_SECONDS", 0.3)
    head = (
        b"POST /fhir/Device HTTP/1.1\r\n"
        + HOST
        + b"Content-Type: application/fhir+json\r\nContent-Length: 100\r\n\r\n{"
    )
    assert said(standing, head)[0] == 408


def test_a_head_that_never_ends_is_given_up(standing: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fhir_registry.server.protocol.HEAD_SECONDS", 0.3)
    assert said(standing, b"GET /fhir/metadata HTTP/1.1\r\nX: ")[0] == 408
    with dialled(standing) as held:  # sends nothing at all
        assert answer(held)[0] == 0
    with dialled(standing) as held:  # a byte now and then does not help
        for _ in range(8):
            try:
                held.sendall(b"G")
            except OSError:
                break
            time.sleep(0.1)
        assert answer(held)[0] in (0, 400, 408)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /fhir/Device?identifier=" + b"a" * 100_000,
        b"GET /fhir/Device?identifier=" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /fhir/metadata HTTP/1.1\r\nX: " + b"a" * 100_000,
        b"GET /fhir/metadata HTTP/1.1\r\n" + b"".join(b"X-%d: a\r\n" % n for n in range(20_000)),
    ],
    ids=["endless line", "long line", "endless field", "many fields"],
)
def test_a_head_has_a_size(standing: Client, sent: bytes) -> None:
    assert said(standing, sent)[0] in (400, 414, 431)


def test_requests_one_after_the_other_in_one_write(standing: Client) -> None:
    one = b"GET /fhir/Device/none HTTP/1.1\r\n" + HOST + b"\r\n"
    with dialled(standing) as held:
        held.sendall(one * 20 + one.replace(HOST, HOST + b"Connection: close\r\n"))
        data = b""
        while part := held.recv(65536):
            data += part
    assert data.count(b"HTTP/1.1 404") == 21


def test_a_refused_body_is_not_the_next_request(standing: Client) -> None:
    """Nothing of a body that was not read is taken for a request."""
    inner = b"DELETE /fhir/Device/none HTTP/1.1\r\n" + HOST + b"\r\n"
    head = (
        b"POST /fhir/Nothing HTTP/1.1\r\n" + HOST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(inner)
    )
    with dialled(standing) as held:
        held.sendall(head + inner)
        assert answer(held)[0] == 415
        held.sendall(b"GET /fhir/Organization/none HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        status, _, body = answer(held)
        assert status == 404 and b"Organization/none" in body


def test_an_upgrade_is_not_followed(standing: Client) -> None:
    sent = b"GET /fhir/Device/none HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    sent += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    assert said(standing, sent)[0] == 404
