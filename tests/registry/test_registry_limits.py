"""No client takes the server from the others: rates, requests at once, connections, answers nobody takes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_client import Client

from fhir_registry.search.extract import Row
from fhir_registry.server.http import HttpError, Receive, Scope, Send
from fhir_registry.server.limits import BURST_SECONDS, Limited, Rates, network
from fhir_registry.server.protocol import MOST_CONNECTIONS
from fhir_registry.server.serve import listen
from tests.fuzz.registry_process import Server


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with listen("127.0.0.1", 0) as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            connection, _ = listener.accept()
            with connection:
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@given(
    st.floats(0.5, 50),
    st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_a_rate_holds_over_any_time(rate: float, pauses: list[float]) -> None:
    now = 0.0
    rates = Rates(rate, 0, lambda: now)
    allowed: list[float] = []
    for pause in pauses:
        now += pause
        try:
            rates.check("a", False)
        except HttpError as error:
            wait = int(error.headers["Retry-After"])
            assert error.status == 429 and wait >= 1
        else:
            allowed.append(now)
        rates.check("a", True)  # writes have no limit here
    most = max(1.0, rate * BURST_SECONDS)
    for first in range(len(allowed)):
        for last in range(first, len(allowed)):
            assert last - first + 1 <= most + (allowed[last] - allowed[first]) * rate + 1e-6


def test_who_waits_as_told_is_answered_and_others_are_not_touched() -> None:
    now = 100.0
    rates = Rates(0.5, 3, lambda: now)
    for _ in range(2):
        rates.check("a", False)
    with pytest.raises(HttpError) as refused:
        rates.check("a", False)
    rates.check("b", False)
    rates.check("a", True)
    now += int(refused.value.headers["Retry-After"])
    rates.check("a", False)


def test_an_ipv6_client_has_one_bucket_for_its_network() -> None:
    assert network("2001:db8:1:2:3::4") == network("2001:db8:1:2::9") != network("2001:db8:1:3::4")
    assert network("10.0.0.1") == "10.0.0.1" != network("10.0.0.2")
    assert network("fe80::1%eth0") == network("fe80::2")
    assert network("::ffff:10.0.0.1") == "10.0.0.1"  # as a server on IPv6 sees it
    assert network("") == "" and network("a:b") == "a:b"


def ask(app: Limited, method: str = "GET", path: str = "/fhir/x") -> tuple[int, dict[str, str], Any]:
    return asyncio.run(asked(app, method, path))


async def asked(app: Limited, method: str = "GET", path: str = "/fhir/x") -> tuple[int, dict[str, str], Any]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path, "client": ("10.0.0.1", 1), "headers": []}, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(m.get("body", b"") for m in sent[1:])


def test_too_many_at_once_are_told_to_come_again() -> None:
    async def both() -> None:
        gate = asyncio.Event()

        async def slow(scope: Scope, receive: Receive, send: Send) -> None:
            await gate.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"ok"})

        app = Limited(slow, Rates(0, 0), 2)
        running = [asyncio.create_task(asked(app)) for _ in range(2)]
        await asyncio.sleep(0)
        status, headers, body = await asked(app)
        assert status == 503 and headers["retry-after"] == "1"
        assert json.loads(body)["issue"][0]["code"] == "throttled"
        gate.set()
        assert [(await task)[0] for task in running] == [200, 200]
        assert (await asked(app))[0] == 200

    asyncio.run(both())


def test_reads_and_writes_are_counted_apart() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    limited = Limited(app, Rates(0, 0.2), 10)
    assert [ask(limited, "POST")[0] for _ in range(3)] == [200, 429, 429]
    assert ask(limited, "POST", "/fhir/Device/_search")[0] == ask(limited, "POST", "/fhir/Device/$validate")[0] == 200
    assert ask(limited, "GET")[0] == 200


def test_a_served_registry_limits_each_client(tmp_path: Path) -> None:
    server = Server(tmp_path, "--read-rate", "2", "--write-rate", "0")
    try:
        client = Client(server.base)
        seen = [client.call("GET", "metadata") for _ in range(12)]
        refused = [(headers, body) for status, headers, body in seen if status == 429]
        assert len(refused) in (1, 2) and seen[9][0] == 200
        headers, body = refused[0]
        assert headers["retry-after"] == "1" and "2 requests a second" in body["issue"][0]["details"]["text"]
        time.sleep(1.1)
        assert client.call("GET", "metadata")[0] == 200
    finally:
        assert "Traceback" not in server.stop()


def test_long_searches_take_turns_and_others_pass_them(registry: Client) -> None:
    """Searches that look at everything wait for each other; a read does not wait for them."""
    from concurrent.futures import ThreadPoolExecutor

    from fhir_registry.server.service import LONG_AT_ONCE

    made = registry.created({"resourceType": "Organization", "name": "O"})
    gate, inside, most = threading.Event(), [0], [0]
    searched = type(registry.store).search

    def slow(self: Any, query: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        gate.wait(20)
        inside[0] -= 1
        return searched(self, query)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(60) as pool:
        patch.setattr(type(registry.store), "search", slow)
        asked = [pool.submit(registry.call, "GET", "Organization?name:contains=o") for _ in range(50)]
        assert registry.call("GET", f"Organization/{made['id']}")[0] == 200
        until = time.monotonic() + 20
        while sum(one.done() for one in asked) < 18 and time.monotonic() < until:
            time.sleep(0.01)
        gate.set()
        statuses = [one.result()[0] for one in asked]
    assert most[0] == LONG_AT_ONCE
    assert statuses.count(503) == 18 and statuses.count(200) == 32


def test_a_search_that_does_not_end_soon_goes_on_in_a_thread(registry: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name of a parameter tells: what is asked for lies behind everything else."""
    import fhir_registry.server.service as service
    from fhir_registry.store.base import TooLongError, Write

    monkeypatch.setattr("fhir_registry.store.sqlite._STEPS", 1000)  # of connections made from here on
    resource = {"resourceType": "Organization", "name": "O"}
    rows = (Row("name", "o", "O"),)
    registry.store.commit([Write("POST", "Organization", f"o-{n}", resource, rows) for n in range(3000)])
    query = "Organization?name=o&_sort=-_id&_count=1"
    seen: list[str] = []
    searched = service.Service.search

    def search(self: Any, *given: Any) -> Any:
        seen.append(threading.current_thread().name)
        return searched(self, *given)

    monkeypatch.setattr(service.Service, "search", search)
    monkeypatch.setattr("fhir_registry.server.app.may_be_long", lambda pairs: False)
    monkeypatch.setattr(service, "SOON_SECONDS", 0.0)
    assert len(registry.call("GET", query)[2]["entry"]) == 1
    assert len(seen) == 2 and (registry.store.waits or seen[0] != seen[1]), seen
    with pytest.raises(TooLongError), registry.store.hurried(0):
        registry.store.history("Organization", "", 1000, None)
    assert registry.store.history("Organization", "", 1, None)[1] == 3000


def opened(base: str, receive_buffer: int = 0) -> socket.socket:
    found = socket.socket()
    if receive_buffer:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    found.settimeout(20)
    found.connect(("127.0.0.1", int(base.split(":")[2].split("/")[0])))
    return found


def everything(connection: socket.socket) -> bytes:
    """What comes until the connection ends, however it ends."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def test_one_connection_too_many_is_told_so(registry: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fhir_registry.server.protocol.MOST_CONNECTIONS", 3)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(opened(registry.base)) for _ in range(3)]
        for one in held:
            one.sendall(b"GET /fhir/metadata HTTP/1.1\r\nHost: x\r\n")  # not its end
        time.sleep(0.2)
        refused = stack.enter_context(opened(registry.base))
        head, _, body = everything(refused).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ") and json.loads(body)["issue"][0]["code"] == "throttled"
        held[0].sendall(b"Connection: close\r\n\r\n")
        assert everything(held[0]).startswith(b"HTTP/1.1 200 ")
    assert registry.call("GET", "metadata")[0] == 200


def test_an_answer_nobody_takes_is_dropped(registry: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x" * 1_000_000
    made = registry.created({"resourceType": "Organization", "name": "O", "alias": [text] * 7})
    monkeypatch.setattr("fhir_registry.server.protocol.SEND_SECONDS", 0.3)
    with opened(registry.base, receive_buffer=4096) as slow:
        slow.sendall(f"GET /fhir/Organization/{made['id']} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        time.sleep(1.0)
        assert len(everything(slow)) < 7_000_000
    assert len(registry.raw("GET", f"Organization/{made['id']}")[2]) > 7_000_000


def test_a_thousand_idle_connections_leave_the_server_alive(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * MOST_CONNECTIONS:
        pytest.skip(f"this machine gives a process {hard} files, and the test needs more")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    server = Server(tmp_path, "--read-rate", "0")
    try:
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(opened(server.base)) for _ in range(MOST_CONNECTIONS + 100)]
            last = everything(held[-1])
            assert last.startswith(b"HTTP/1.1 503 ") and b"OperationOutcome" in last
            held[0].sendall(b"GET /fhir/metadata HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert everything(held[0]).startswith(b"HTTP/1.1 200 ")
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if Client(server.base).call("GET", "metadata")[0] == 200:
                    break
            time.sleep(0.1)
        else:
            raise AssertionError("the server does not answer after the connections have gone")
    finally:
        log = server.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "Traceback" not in log and "Too many open files" not in log


def test_only_a_server_behind_a_proxy_believes_who_it_names(tmp_path: Path) -> None:
    """X-Forwarded-For would give every request a bucket of its own, and a false address in the audit trail."""
    server = Server(tmp_path, "--read-rate", "1")
    claimed = [{"X-Forwarded-For": f"192.0.2.{n}"} for n in range(20)]
    try:
        direct = [Client(server.base).call("GET", "metadata", headers=one)[0] for one in claimed]
    finally:
        server.stop()
    server = Server(tmp_path, "--read-rate", "1", "--base", server.base, "--port", str(server.port))
    try:
        proxied = [Client(server.base).call("GET", "metadata", headers=one)[0] for one in claimed]
    finally:
        server.stop()
    assert direct.count(429) >= 2 and proxied == [200] * 20
