"""kill -9 under concurrent writes: what was acknowledged is there, byte for byte, and so is its audit event."""

from __future__ import annotations

import http.client
import json
import random
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fhir_registry.audit.outbox import Outbox
from fhir_registry.store.sqlite import SqliteStore
from tests.fuzz.registry_process import Server

WRITERS = 6


@dataclass
class Acknowledged:
    """Bodies as they were answered, by id and version; ``lock`` guards both."""

    bodies: dict[tuple[str, int], bytes] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


def write_until_it_breaks(server: Server, log: Acknowledged, seed: int) -> None:
    """Create, then update or delete some of its own, until the server is gone."""
    chance = random.Random(seed)
    connection = server.connection()
    number = 0
    while True:
        number += 1
        try:
            identifier, _, body = sent(server, connection, "POST", "Organization", organisation(f"O {seed} {number}"))
            with log.lock:
                log.bodies[identifier, 1] = body
            if chance.random() < 0.3:
                changed = {**organisation(f"changed {seed} {number}"), "id": identifier}
                _, version, body = sent(server, connection, "PUT", f"Organization/{identifier}", changed)
                with log.lock:
                    log.bodies[identifier, version] = body
            elif chance.random() < 0.1:
                sent(server, connection, "DELETE", f"Organization/{identifier}", None)
                with log.lock:
                    log.deleted.add(identifier)
        except (OSError, http.client.HTTPException):
            connection.close()
            return


def organisation(name: str) -> dict[str, object]:
    # Large enough that an answer and a commit are more than one page.
    return {"resourceType": "Organization", "name": name, "description": name * 300}


def sent(
    server: Server, connection: http.client.HTTPConnection, method: str, path: str, resource: object
) -> tuple[str, int, bytes]:
    headers = {"Authorization": f"Bearer {server.token()}", "Content-Type": "application/fhir+json"}
    connection.request(method, f"/fhir/{path}", json.dumps(resource) if resource else None, headers)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status in (200, 201, 204), body
    version = int(str(answer.headers["ETag"]).strip('W/"'))
    location = answer.headers.get("Location", "")
    return location.partition("/Organization/")[2].partition("/")[0], version, body


def survives(folder: Path, rounds: int, seed: int) -> int:
    """Kill the server ``rounds`` times; how many writes were acknowledged in all."""
    chance = random.Random(seed)
    log = Acknowledged()
    for number in range(rounds):
        server = Server(folder, "--write-rate", "0")
        try:
            with ThreadPoolExecutor(WRITERS) as pool:
                done = [
                    pool.submit(write_until_it_breaks, server, log, seed + 100 * number + w) for w in range(WRITERS)
                ]
                time.sleep(chance.uniform(0.2, 1.2))
                server.kill()
            for future in done:
                future.result()
        finally:
            server.kill()
        check(server.home / "registry", log)
    assert "Traceback" not in server.log.read_text()
    return len(log.bodies) + len(log.deleted)


def check(data: Path, log: Acknowledged) -> None:
    with closing(sqlite3.connect(data / "registry.sqlite")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store = SqliteStore(data / "registry.sqlite")
    outbox = Outbox(data / "audit.sqlite")
    try:
        for (identifier, version), body in log.bodies.items():
            found = store.version("Organization", identifier, version)
            assert found is not None and found.body == body, (identifier, version)
        for identifier in log.deleted:
            current = store.read("Organization", identifier)
            assert current is not None and current.deleted
        count, _ = outbox.verify()
        events = [json.loads(entry.body) for entry in outbox.entries()]
        assert count == len(events)
        recorded = {e["entity"][0]["what"]["reference"] for e in events if e["action"] == "C" and "entity" in e}
        assert {f"Organization/{identifier}" for identifier, _ in log.bodies} <= recorded
    finally:
        outbox.close()
        store.close()


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    assert survives(tmp_path, 2, 1) > 50


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_over_many_kills(tmp_path: Path) -> None:
    assert survives(tmp_path, 25, 1000) > 1000
