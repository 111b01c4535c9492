"""The store in a PostgreSQL database, which several server processes may share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import RawCursor

from evidence.verifier.errors import UsageError
from fhir_registry.search.sql import Dialect
from fhir_registry.store.base import StoreUnavailableError, TooLongError
from fhir_registry.store.migrate import TABLE, check_known, engine_of, revision_of, revisions, upgrade
from fhir_registry.store.postgresql_pool import AWAY, NOT_THERE, Connection, Pool, reason
from fhir_registry.store.sql_store import SqlStore, utc_now

LOG: Final = logging.getLogger("cuvil.registry")
INDEXED: Final = 200
"""Characters of a value that revision 0001 indexes."""
RESOURCES: Final = 0x63757669_6C726501
_TOO_LONG: Final = "the search takes longer than it was given"
_TURNS: Final = {"audit": RESOURCES + 1, "tokens": RESOURCES + 2}


class PostgresqlStore(SqlStore):
    """``address``: ``postgresql://USER:PASSWORD@HOST/DATABASE``, or any connection string of libpq.

    An empty database gets the schema. ``UsageError`` where the database cannot be reached or has another schema.
    """

    def __init__(self, address: str, clock: Callable[[], datetime] = utc_now) -> None:
        database = open_address(address)
        try:
            _prepare(database)
        except BaseException:
            database.close()
            raise
        super().__init__(database, clock)


class PostgresqlDatabase:
    """The tables that one lock guards: ``turn`` is the advisory lock that makes writers of them take turns."""

    waits: Final = True
    dialect: Final = Dialect(INDEXED, each=" OFFSET 0", once="{column} = ANY(ARRAY({rows}))")

    def __init__(self, pool: Pool, turn: int = RESOURCES) -> None:
        self.pool = pool
        self._turn = turn
        self._local = threading.local()

    def beside(self, name: str, *tables: str) -> PostgresqlDatabase:
        return PostgresqlDatabase(self.pool, _TURNS[name])

    @contextmanager
    def hurried(self, seconds: float) -> Iterator[None]:
        self._local.deadline = time.monotonic() + seconds
        try:
            yield
        finally:
            self._local.deadline = None

    @contextmanager
    def session(self) -> Iterator[PostgresqlSession]:
        with self.pool.connection() as connection:
            yield PostgresqlSession(connection)

    @contextmanager
    def snapshot(self) -> Iterator[PostgresqlSession]:
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        deadline = getattr(self._local, "deadline", None)
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TooLongError(_TOO_LONG)
            begin += f"; SET LOCAL statement_timeout = {max(1, int(left * 1000))}"
        try:
            with self._between(begin) as session:
                yield session
        except StoreUnavailableError as error:
            if deadline is not None and isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise TooLongError(_TOO_LONG) from error
            raise

    @contextmanager
    def transaction(self) -> Iterator[PostgresqlSession]:
        # READ COMMITTED: what is read after the lock is what the writer before has committed.
        begin = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({self._turn})"
        with self._between(begin) as session:
            yield session

    @contextmanager
    def _between(self, begin: str) -> Iterator[PostgresqlSession]:
        with self.pool.connection(begin) as connection:
            session = PostgresqlSession(connection)
            try:
                yield session
            except BaseException:
                if not connection.closed:
                    session.run("ROLLBACK")
                raise
            try:
                session.run("COMMIT")
            except AWAY as error:
                raise StoreUnavailableError(
                    f"{NOT_THERE}: {reason(error)}; read before writing again, for this may have been written"
                ) from error

    def close(self) -> None:
        self.pool.close()


class PostgresqlSession:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor = RawCursor(connection)

    def row(self, text: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        return self._cursor.execute(_numbered(text), values, binary=True).fetchone()

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._cursor.execute(_numbered(text), values, binary=True).fetchall()

    def run(self, text: str, values: Sequence[Any] = ()) -> None:
        self._cursor.execute(_numbered(text), values)


@lru_cache(maxsize=1000)
def _numbered(text: str) -> bytes:
    """``?`` as ``$1``, ``$2``...: no statement of the registry has a question mark of its own."""
    first, *rest = text.split("?")
    return (first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))).encode()


def revision(database: PostgresqlDatabase) -> str:
    """The revision of the database; empty for an empty one."""
    with database.session() as session:
        rows = session.rows(
            "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()"
        )

        def read() -> str:
            row = session.row(f"SELECT version_num FROM {TABLE}")
            return str(row[0]) if row else ""

        return revision_of((row[0] for row in rows), read)


def bring_up(database: PostgresqlDatabase) -> tuple[str, str]:
    """Make the schema or bring it to the newest revision; the revision before (empty: none) and after."""

    def connect() -> Connection:
        connection = database.pool.connect()
        connection.autocommit = False
        return connection

    # One at a time, and no writer of the old schema in between.
    begin = f"SELECT pg_advisory_xact_lock({RESOURCES})"
    return upgrade(engine_of("postgresql+psycopg://", connect, begin))


def open_address(address: str) -> PostgresqlDatabase:
    """The database at ``address``. ``UsageError`` where it cannot be reached or does not hold Unicode."""
    try:
        psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        raise UsageError(
            "the address of the database cannot be read; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
            "special characters as %XX"
        ) from None
    database = PostgresqlDatabase(Pool(address))
    try:
        with database.session() as session:
            row = session.row("SELECT current_setting('server_encoding'), current_setting('fsync')")
    except StoreUnavailableError as error:
        raise UsageError(f"{error}; check --database or CUVIL_REGISTRY_DATABASE") from None
    assert row is not None
    if row[1] != "on":
        LOG.warning("the database runs with fsync off: a power cut may lose or damage what was acknowledged")
    if row[0] != "UTF8":
        database.close()
        raise UsageError(f"the database is encoded in {row[0]}; make it with ENCODING 'UTF8'")
    return database


def _prepare(database: PostgresqlDatabase) -> None:
    found = revision(database)
    if found == revisions()[-1]:
        return
    check_known(found)
    if found:
        raise UsageError(
            f"the registry's database has the schema {found}, and this version needs {revisions()[-1]}: make a backup "
            "and run `cuvil registry migrate`"
        )
    bring_up(database)
