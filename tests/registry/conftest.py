"""A registry in a thread, reached over loopback like any other; stores on each database."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn
from registry_client import Client
from registry_release import released, running  # noqa: F401  (fixtures)

from fhir_registry.audit.events import audit_event
from fhir_registry.audit.outbox import Outbox
from fhir_registry.server.app import FhirApp
from fhir_registry.server.http import Request, Response
from fhir_registry.server.protocol import FhirProtocol
from fhir_registry.server.service import Service
from fhir_registry.server.writer import GroupCommit
from fhir_registry.store.base import Write, Written
from fhir_registry.store.sql_store import SqlStore, utc_now
from fhir_registry.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from postgres_cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for the tests of this session."""
    pytest.importorskip("psycopg", reason="needs the extra cuvil[postgresql]")
    import postgres_cluster

    if why := postgres_cluster.missing():
        pytest.skip(why)
    started = postgres_cluster.Cluster()
    yield started
    started.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store_at(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., SqlStore]:
    """Opens the same store of one kind each time; empty the first time."""
    if request.param == "sqlite":
        return lambda clock=utc_now: SqliteStore(tmp_path / "registry.sqlite", clock)
    address = request.getfixturevalue("cluster").database()
    from fhir_registry.store.postgresql import PostgresqlStore

    return lambda clock=utc_now: PostgresqlStore(address, clock)


@pytest.fixture
def empty_store(open_store_at: Callable[..., SqlStore]) -> Callable[..., SqlStore]:
    """Opens an empty store each time."""

    def opened(clock: Callable[[], datetime] = utc_now) -> SqlStore:
        store = open_store_at(clock)
        with store.database.transaction() as session:
            for table in ("idx", "version", "resource"):
                session.run(f"DELETE FROM {table}")
        return store

    return opened


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Client]:
    store = SqliteStore(tmp_path / "registry.sqlite")
    writer: GroupCommit[Sequence[Write], list[Written]] = GroupCommit(store.commit_each, "registry-writer")
    outbox = Outbox(tmp_path / "audit.sqlite")

    async def record(request: Request, response: Response) -> None:
        await outbox.appended(audit_event(request, response, "test registry"))

    app = FhirApp(Service(store, writer), version="test", record=record)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        config = uvicorn.Config(app, log_level="warning", lifespan="off", http=FhirProtocol, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield Client(f"http://127.0.0.1:{port}/fhir", store, outbox)
        server.should_exit = True
        thread.join(timeout=10)
    writer.close()
    outbox.close()
    store.close()
