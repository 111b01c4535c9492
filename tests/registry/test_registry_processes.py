"""Several server processes on one PostgreSQL database: races over HTTP, killed servers, a database that goes away."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fhir_registry.audit.outbox import Outbox
from fhir_registry.search.query import read_query
from tests.fuzz.registry_process import Server

if TYPE_CHECKING:
    from postgres_cluster import Cluster

SYSTEM = "urn:test"
Answer = tuple[int, http.client.HTTPMessage, Any]


@pytest.fixture(scope="module")
def address(cluster: Cluster) -> str:
    return cluster.database()


@pytest.fixture(scope="module")
def pair(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two servers that share a database, and the keys of a builder."""
    folder = tmp_path_factory.mktemp("pair")
    servers = tuple(Server(folder, "--database", address) for _ in range(2))
    yield servers[0], servers[1]
    for server in servers:
        assert "Traceback" not in server.stop()


def call(server: Server, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    connection = server.connection()
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"Content-Type": "application/fhir+json", "Authorization": f"Bearer {server.token()}"}
        connection.request(method, f"/fhir/{path}".rstrip("/"), None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, answer.headers, json.loads(text) if text else None
    finally:
        connection.close()


def at_once(number: int, work: Callable[[int], Answer]) -> list[Answer]:
    barrier = threading.Barrier(number)

    def run(n: int) -> Answer:
        barrier.wait()
        return work(n)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(run, range(number)))


def organisation(code: str, **more: Any) -> dict[str, Any]:
    return {"resourceType": "Organization", "identifier": [{"system": SYSTEM, "value": code}], **more}


def test_conditional_creates_through_two_servers_make_one(pair: tuple[Server, Server]) -> None:
    answers = at_once(
        16,
        lambda n: call(
            pair[n % 2],
            "POST",
            "Organization",
            organisation("one", name=f"from {n}"),
            If_None_Exist=f"identifier={SYSTEM}|one",
        ),
    )
    assert sorted(status for status, _, _ in answers) == [200] * 15 + [201]
    assert len({found["id"] for _, _, found in answers}) == 1
    assert call(pair[0], "GET", f"Organization?identifier={SYSTEM}|one&_summary=count")[2]["total"] == 1


def test_one_update_of_a_version_gets_through(pair: tuple[Server, Server]) -> None:
    made = call(pair[0], "POST", "Organization", organisation("update"))[2]
    answers = at_once(
        16,
        lambda n: call(
            pair[n % 2],
            "PUT",
            f"Organization/{made['id']}",
            organisation("update", id=made["id"], name=f"by {n}"),
            If_Match='W/"1"',
        ),
    )
    assert sorted(status for status, _, _ in answers) == [200] + [412] * 15
    winner = next(found for status, _, found in answers if status == 200)
    assert winner["meta"]["versionId"] == "2"
    for server in pair:
        assert call(server, "GET", f"Organization/{made['id']}")[2] == winner
        assert call(server, "GET", f"Organization/{made['id']}/_history")[2]["total"] == 2


def test_one_chain_of_audit_events_through_two_servers(pair: tuple[Server, Server], address: str) -> None:
    from fhir_registry.store.postgresql import PostgresqlStore

    store = PostgresqlStore(address)
    outbox = Outbox(store.database)
    before = outbox.verify()[0]
    at_once(16, lambda n: call(pair[n % 2], "GET", f"Organization/none-{n}"))
    events = [json.loads(entry.body) for entry in outbox.entries(before)]
    assert {e["entity"][0]["what"]["reference"] for e in events} == {f"Organization/none-{n}" for n in range(16)}
    assert outbox.verify()[0] == before + 16
    outbox.close()
    store.close()


@contextmanager
def writers(number: int, write: Callable[[int, int], None]) -> Iterator[None]:
    """Threads that call ``write(thread, count)`` until the block ends."""
    stop = threading.Event()

    def run(n: int) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            write(n, count)

    with ThreadPoolExecutor(number) as pool:
        done = [pool.submit(run, n) for n in range(number)]
        try:
            yield
        finally:
            stop.set()
    for future in done:
        future.result()


def test_a_transaction_is_whole_though_its_server_is_killed(
    pair: tuple[Server, Server], address: str, tmp_path: Path
) -> None:
    doomed = Server(tmp_path, "--database", address)
    acknowledged: list[str] = []
    sent: list[str] = []

    def write(n: int, count: int) -> None:
        name = f"t{n}-{count}"
        sent.append(name)
        entries = [
            {
                "resource": organisation(f"{name}-{k}", name="x" * 500, alias=[name]),
                "request": {"method": "POST", "url": "Organization"},
            }
            for k in range(40)
        ]
        try:
            status, _, _ = call(doomed, "POST", "", {"resourceType": "Bundle", "type": "transaction", "entry": entries})
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)
            return
        assert status == 200
        acknowledged.append(name)

    with writers(3, write):
        until = time.monotonic() + 20
        while len(acknowledged) < 6 and time.monotonic() < until:
            time.sleep(0.01)
        doomed.kill()
        # The other server writes on: the lock of the killed one is gone with its connection.
        assert call(pair[0], "POST", "Organization", organisation("after"))[0] == 201
    assert len(acknowledged) >= 6
    from fhir_registry.store.postgresql import PostgresqlStore

    store = PostgresqlStore(address)
    for name in sent:
        query = read_query("Organization", [("name:exact", name), ("_summary", "count")])
        total = store.search(query).total
        assert total in ({40} if name in acknowledged else {0, 40}), name
    store.close()


def test_nothing_acknowledged_is_lost_when_the_database_is_killed(
    pair: tuple[Server, Server], cluster: Cluster, address: str
) -> None:
    acknowledged: list[tuple[str, bytes]] = []
    refused: list[Answer] = []

    def write(n: int, count: int) -> None:
        status, headers, found = call(
            pair[n % 2], "POST", "Organization", organisation(f"k{n}-{count}", name="y" * 400)
        )
        if status == 201:
            acknowledged.append((found["id"], json.dumps(found).encode()))
        else:
            refused.append((status, headers, found))
            time.sleep(0.02)

    def wait(what: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not what():
            assert time.monotonic() < until
            time.sleep(0.01)

    with writers(4, write):
        try:
            for _ in range(2):
                before = len(acknowledged)
                wait(lambda before=before: len(acknowledged) > before + 20)
                cluster.kill()
                there = len(refused)
                wait(lambda there=there: len(refused) > there + 8)
                for path in ("Organization/x", "Organization?name=y", "Organization/x/_history", "metadata"):
                    status, headers, found = call(pair[0], "GET", path)
                    assert status == 503 and headers["Retry-After"] == "1"
                    assert found["resourceType"] == "OperationOutcome" and found["issue"][0]["code"] == "transient"
                cluster.start()
        finally:
            if cluster.stopped:
                cluster.start()
        before = len(acknowledged)
        wait(lambda: len(acknowledged) > before + 20)
    assert {status for status, _, _ in refused} == {503}
    assert all(found["resourceType"] == "OperationOutcome" for _, _, found in refused)
    from fhir_registry.store.postgresql import PostgresqlStore

    store = PostgresqlStore(address)
    for identifier, body in acknowledged:
        stored = store.read("Organization", identifier)
        assert stored is not None and json.loads(stored.body) == json.loads(body)
    outbox = Outbox(store.database)
    assert outbox.verify()[0] > len(acknowledged)
    outbox.close()
    store.close()
