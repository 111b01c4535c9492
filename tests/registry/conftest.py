"""A registry in a thread, reached over loopback like any other; stores on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from databases import DATABASES, EVERYWHERE
from registry_client import Client
from registry_release import released, running  # noqa: F401  (fixtures)
from registry_serving import serving

from fhir_registry.store.sql_store import SqlStore, utc_now
from fhir_registry.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from postgres_cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for the tests of this session."""
    if not EVERYWHERE:
        pytest.importorskip("psycopg", reason="needs the extra cuvil[postgresql]")
    import postgres_cluster

    if why := postgres_cluster.missing():
        assert not EVERYWHERE, why
        pytest.skip(why)
    started = postgres_cluster.Cluster()
    yield started
    started.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store_at(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., SqlStore]:
    """Opens the same store of one kind each time; empty the first time."""
    if request.param == "sqlite":
        return lambda clock=utc_now: SqliteStore(tmp_path / "registry.sqlite", clock)
    address = request.getfixturevalue("cluster").emptied()
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


@pytest.fixture(params=DATABASES)
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    store = None
    if request.param == "postgresql":
        from fhir_registry.store.postgresql import PostgresqlStore

        store = PostgresqlStore(request.getfixturevalue("cluster").emptied())
    with serving(tmp_path, store) as client:
        yield client
