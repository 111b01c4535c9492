"""What is PostgreSQL's own: its schema on command, addresses that stay secret, connections that come and go."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("psycopg", reason="needs the extra cuvil[postgresql]")

import psycopg
from store_model import organization, put

from cuvil_assets.cli import main
from evidence.verifier.errors import UsageError
from fhir_registry.server.used import UsedTokens
from fhir_registry.store.base import StoreUnavailableError, TooLongError
from fhir_registry.store.migrate import revisions
from fhir_registry.store.postgresql import PostgresqlStore

if TYPE_CHECKING:
    from postgres_cluster import Cluster

SECRET = "hunter2secret"


def execute(address: str, *statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        for text in statements:
            connection.execute(text.encode())


@pytest.fixture
def address(cluster: Cluster) -> str:
    return cluster.emptied()


@pytest.fixture
def older(address: str) -> str:
    """A database with the tables of the second revision."""
    store = PostgresqlStore(address)
    with store.database.session() as session:
        names = session.rows("SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()")
    store.close()
    later = {name for (name,) in names} - {"resource", "version", "idx", "registry_revision"}
    execute(address, *(f"DROP TABLE {name}" for name in later))
    execute(address, "UPDATE registry_revision SET version_num = '0002'")
    return address


def test_an_older_schema_waits_for_the_command(
    older: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_REGISTRY_DATABASE", older)
    assert main(["registry", "list"]) == 2
    said = capsys.readouterr().err
    assert "has the schema 0002" in said and "make a backup and run `cuvil registry migrate`" in said
    assert main(["registry", "migrate"]) == 0
    assert capsys.readouterr().out == f"schema {revisions()[-1]}, before 0002\n"
    assert main(["registry", "list"]) == 0
    assert main(["registry", "audit"]) == 0
    assert "0 events in one chain" in capsys.readouterr().out


def test_an_upgrade_that_fails_changes_nothing(older: str) -> None:
    execute(older, "CREATE INDEX used_ends ON resource (id)")
    assert main(["registry", "migrate", "--database", older]) == 2
    with psycopg.connect(older) as connection:
        assert connection.execute("SELECT version_num FROM registry_revision").fetchall() == [("0002",)]
        assert connection.execute("SELECT to_regclass('event')").fetchone() == (None,)


def test_a_newer_schema_and_other_tables_are_refused(address: str, cluster: Cluster) -> None:
    PostgresqlStore(address).close()
    execute(address, "UPDATE registry_revision SET version_num = '9999'")
    with pytest.raises(UsageError, match="'9999' of a newer Cuvil"):
        PostgresqlStore(address)
    other = cluster.database()
    execute(other, "CREATE TABLE resource (anything TEXT)")
    with pytest.raises(UsageError, match="'resource' that is not of a registry"):
        PostgresqlStore(other)


def test_servers_that_start_at_once_make_one_schema(address: str) -> None:
    errors: list[Exception] = []

    def start() -> None:
        try:
            PostgresqlStore(address).close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == []
    PostgresqlStore(address).close()


def test_another_encoding_is_refused(cluster: Cluster) -> None:
    execute(
        cluster.address("postgres"),
        "CREATE DATABASE latin ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE_PROVIDER libc LOCALE 'C'",
    )
    with pytest.raises(UsageError, match="encoded in SQL_ASCII; make it with ENCODING 'UTF8'"):
        PostgresqlStore(cluster.address("latin"))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (f"postgresql://user:{SECRET}@127.0.0.1:1/none", "127.0.0.1"),
        (f"postgresql://user:{SECRET}@127.0.0.1:port/none", "127.0.0.1|port"),
        (f"postgresql://user:{SECRET}@[::1/none", "cannot be read"),
        (f"postgresql://user@host/none?passwd={SECRET}", "cannot be read"),
        (f"mysql://user:{SECRET}@host/none", "for a SQLite file leave --database"),
    ],
)
@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["list"], ["migrate"]])
def test_no_message_shows_the_password(
    address: str, said: str, command: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_REGISTRY_DATABASE", address)
    assert main(["registry", *command]) == 2
    out, err = capfd.readouterr()
    assert SECRET not in out + err
    (sentence,) = (line for line in err.splitlines() if not line.startswith("cuvil: note:"))
    assert any(part in sentence for part in said.split("|")), err
    assert main(["registry", *command, "--help"]) == 0
    out, err = capfd.readouterr()
    assert SECRET not in out + err


def test_the_store_comes_back_with_the_database(cluster: Cluster, address: str) -> None:
    store = PostgresqlStore(address)
    store.commit([put("o", organization("O", "1", "urn:a", True, None))])
    cluster.kill()
    try:
        with pytest.raises(StoreUnavailableError, match="database is not available"):
            store.read("Organization", "o")
        begun = time.monotonic()
        for _ in range(200):
            with pytest.raises(StoreUnavailableError):
                store.commit([put("p", organization("P", "1", "urn:a", True, None))])
        assert time.monotonic() - begun < 5  # told at once, not after a time-out each
    finally:
        cluster.start()
    until = time.monotonic() + 10
    while True:
        try:
            found = store.read("Organization", "o")
            break
        except StoreUnavailableError:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert found is not None
    # A restart between two requests is not even seen.
    cluster.kill()
    cluster.start()
    assert store.read("Organization", "o") == found
    cluster.kill()
    cluster.start()
    store.commit([put("p", organization("P", "1", "urn:a", True, None))])
    store.close()


def test_a_process_that_stops_in_a_write_loses_its_turn(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock goes with the connection, which the server ends when nothing comes."""
    from fhir_registry.store import postgresql_pool

    quick = postgresql_pool._SETTINGS.replace("session_timeout = '20s'", "session_timeout = '300ms'")
    assert quick != postgresql_pool._SETTINGS
    monkeypatch.setattr(postgresql_pool, "_SETTINGS", quick)
    stopped, other = PostgresqlStore(address), PostgresqlStore(address)
    with pytest.raises(StoreUnavailableError), stopped.database.transaction() as session:
        session.run("INSERT INTO resource (type, id, version, updated, deleted) VALUES ('A', 'b', 1, '', 0)")
        (done,) = other.commit([put("o", organization("O", "1", "urn:a", True, None))])
        assert done.created
    assert other.read("A", "b") is None
    stopped.close()
    other.close()


def test_a_search_is_stopped_when_it_takes_too_long(address: str) -> None:
    store = PostgresqlStore(address)
    with pytest.raises(TooLongError), store.database.hurried(0.1), store.database.snapshot() as session:
        session.rows("SELECT pg_sleep(30)")
    with store.database.snapshot() as session:  # the connection is as good as before
        assert session.row("SHOW statement_timeout") == ("30s",)
        assert session.row("SELECT 1 FROM pg_sleep(0.2)") == (1,)
    with store.database.hurried(10), store.database.snapshot() as session:
        assert session.row("SELECT 1 FROM pg_sleep(0)") == (1,)
    store.close()


def test_a_token_is_used_once_by_all_servers(address: str) -> None:
    first, second = PostgresqlStore(address), PostgresqlStore(address)
    taken = [UsedTokens(first.database), UsedTokens(second.database)]

    async def take() -> list[bool]:
        return list(await asyncio.gather(*(taken[n % 2].take("issuer", "token", 1 << 40) for n in range(8))))

    assert sorted(asyncio.run(take())) == [False] * 7 + [True]
    for item in (*taken, first, second):
        item.close()


def test_commits_reach_the_disk_whatever_the_database_says(address: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
    store = PostgresqlStore(address)
    with store.database.session() as session:
        assert session.row("SHOW synchronous_commit") == ("on",)
    store.close()
