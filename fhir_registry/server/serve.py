"""The registry as a process: stores under one folder, the FHIR interface, an audit trail, one uvicorn server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from fhir_registry.audit.events import audit_event
from fhir_registry.audit.outbox import Outbox
from fhir_registry.seed import seed
from fhir_registry.server.access import Access
from fhir_registry.server.app import FhirApp
from fhir_registry.server.http import App, Request, Response
from fhir_registry.server.limits import Limited, Rates
from fhir_registry.server.service import Service
from fhir_registry.server.tls import TlsFiles, server_context
from fhir_registry.server.used import UsedTokens
from fhir_registry.server.writer import GroupCommit
from fhir_registry.store.base import Write, Written
from fhir_registry.store.open import open_store
from fhir_registry.store.sql_store import SqlStore
from fhir_registry.subscriptions.admission import Admission
from fhir_registry.subscriptions.endpoint import Endpoints
from fhir_registry.subscriptions.notifier import Notifier

AUDIT = "audit.sqlite"
READERS = 12
"""Threads that wait for a database elsewhere; fewer than its connections, so that readers never keep writers out."""


@dataclass(frozen=True)
class Serving:
    """How a registry is served. ``base``: the address of ``/fhir`` as clients see it; from the request if empty.

    ``audience``: the address that tokens must be for; what a request says of itself would let a token for another
    server in. ``trust_root``: whose builders may write; this machine's own keys if absent. ``private``: reads too are
    for those who are known. ``read_rate`` and ``write_rate``: requests a second of one client, 0 for no limit.
    ``at_once``: requests being answered. ``endpoints``: hosts that may be notified though they are private.
    """

    base: str = ""
    trust_root: Path | None = None
    private: bool = False
    read_rate: float = 1000.0
    write_rate: float = 100.0
    at_once: int = 256
    tls: TlsFiles | None = None
    audience: str = ""
    endpoints: frozenset[str] = frozenset()


@dataclass
class Registry:
    """Everything a running registry holds open."""

    store: SqlStore
    writer: GroupCommit[Sequence[Write], list[Written]]
    outbox: Outbox
    used: UsedTokens
    app: App
    serving: Serving
    notifier: Notifier

    def close(self) -> None:
        self.notifier.close()
        self.writer.close()
        self.outbox.close()
        self.used.close()
        self.store.close()


def open_registry(folder: Path, serving: Serving, *, version: str, address: str = "") -> Registry:
    """Open the registry in ``folder``, which is made when missing, or in the PostgreSQL database at ``address``."""
    store = open_store(folder, address)
    seed(store)
    writer: GroupCommit[Sequence[Write], list[Written]] = GroupCommit(store.commit_each, "registry-writer")
    outbox = Outbox(store.database)

    async def record(request: Request, response: Response) -> None:
        await outbox.appended(audit_event(request, response, "Cuvil registry"))

    # An address may be that of many people, a name is one: each has buckets of its own.
    addresses, names = (Rates(serving.read_rate, serving.write_rate) for _ in range(2))
    used = UsedTokens(store.database)
    access = Access(
        serving.trust_root, used, private=serving.private, rates=names, audience=serving.base or serving.audience
    )
    endpoints = Endpoints(serving.endpoints)
    app = FhirApp(
        Service(store, writer, Admission(store, endpoints)),
        version=version,
        base=serving.base,
        trust_root=serving.trust_root,
        admit=access.admit,
        record=record,
    )
    notifier = Notifier(store, endpoints, serving.base or serving.audience)
    return Registry(store, writer, outbox, used, Limited(app, addresses, serving.at_once), serving, notifier)


def listen(host: str, port: int) -> socket.socket:
    """A socket bound to ``host`` (IPv6 where it has a colon); ``port`` 0 takes a free one.

    ``OSError`` when the address cannot be had.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, proto=socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections take this over: without it an answer sent in two parts waits 40 ms for the client's
        # acknowledgement (Nagle's algorithm against delayed acknowledgements).
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def allow_files(wanted: int = 8192) -> None:
    """As many open files as connections, databases and TLS handshakes may need; shells often give 1024."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def serve(registry: Registry, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer until SIGINT or SIGTERM; requests in progress are answered, and all that was accepted is on disk."""
    import uvicorn

    from fhir_registry.server.protocol import FhirProtocol

    allow_files()
    # What is there now stays: a collection that walks the definitions too stops every client for tenths of a second.
    gc.collect()
    gc.freeze()
    tls = registry.serving.tls
    context = server_context(tls) if tls is not None else None
    config = uvicorn.Config(
        registry.app,
        http=FhirProtocol,
        ws="none",
        log_level="warning",
        lifespan="off",
        server_header=False,
        # X-Forwarded-For names the client only where a proxy stands in front, which --base says.
        proxy_headers=bool(registry.serving.base),
        ssl_context_factory=None if context is None else lambda config, default: context,
        timeout_graceful_shutdown=10,
    )
    server = uvicorn.Server(config)

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    async def run() -> None:
        if registry.store.waits:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(READERS, "registry-reader"))
        task: asyncio.Task[Any] = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started:
            ready()
        await task

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run())
