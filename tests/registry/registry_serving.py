"""A registry in a thread, reached over loopback like any other."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from registry_client import Client

from fhir_registry.audit.events import audit_event
from fhir_registry.audit.outbox import Outbox
from fhir_registry.server.app import FhirApp
from fhir_registry.server.http import Request, Response
from fhir_registry.server.protocol import FhirProtocol
from fhir_registry.server.service import Service
from fhir_registry.server.writer import GroupCommit
from fhir_registry.store.base import Write, Written
from fhir_registry.store.sql_store import SqlStore
from fhir_registry.store.sqlite import SqliteStore
from fhir_registry.subscriptions.admission import Admission
from fhir_registry.subscriptions.endpoint import Endpoints


@contextmanager
def serving(folder: Path, store: SqlStore | None = None, endpoints: frozenset[str] = frozenset()) -> Iterator[Client]:
    """An open registry (no tokens) over ``store``, or with its files in ``folder``.

    ``endpoints``: hosts that Subscriptions may name though they are private; nothing is sent by itself.
    """
    store = store or SqliteStore(folder / "registry.sqlite")
    writer: GroupCommit[Sequence[Write], list[Written]] = GroupCommit(store.commit_each, "registry-writer")
    outbox = Outbox(store.database)

    async def record(request: Request, response: Response) -> None:
        await outbox.appended(audit_event(request, response, "test registry"))

    app = FhirApp(Service(store, writer, Admission(store, Endpoints(endpoints))), version="test", record=record)
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
