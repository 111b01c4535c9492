"""The store in a PostgreSQL database (14 or later), which several server processes may share."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import RawCursor, errors
from psycopg.pq import TransactionStatus

from evidence.verifier.errors import UsageError
from fhir_registry.search.sql import Dialect
from fhir_registry.store.base import StoreUnavailableError
from fhir_registry.store.migrate import TABLE, check_known, engine_of, revision_of, revisions, upgrade
from fhir_registry.store.sql_store import SqlStore, utc_now

LOG: Final = logging.getLogger("cuvil.registry")
Connection = psycopg.Connection[tuple[Any, ...]]
INDEXED: Final = 200
"""Characters of a value that revision 0001 indexes."""
CONNECTIONS: Final = 16
PAUSE: Final = 1.0
_WRITER: Final = 0x63757669_6C726567
"""The advisory lock that makes writers of one database take turns."""
# Nobody waits forever for a process that stopped in the middle of a write: it loses its connection and so its lock. An
# operator may ask for more than the disk at a commit (remote_apply), not for less.
_SETTINGS: Final = """
    SET client_encoding = 'UTF8'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '20s';
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
_LONGEST: Final = "SET statement_timeout = '30s'"
_NOT_THERE: Final = "the registry's database is not available"
_AWAY: Final = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)


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
    """A pool of connections: made when needed, kept when they are in order, at most ``size`` at a time.

    After an attempt to connect has failed, one caller in ``PAUSE`` seconds tries again and the others are told at once.
    """

    dialect: Final = Dialect(INDEXED)

    def __init__(self, address: str, size: int = CONNECTIONS) -> None:
        self._address = address  # holds the password: never shown
        self._free = threading.BoundedSemaphore(size)
        self._idle: list[Connection] = []
        self._guard = threading.Lock()
        self._closed = False
        self._away_until = 0.0

    @contextmanager
    def session(self) -> Iterator[PostgresqlSession]:
        with self._connection() as connection:
            yield PostgresqlSession(connection)

    @contextmanager
    def snapshot(self) -> Iterator[PostgresqlSession]:
        with self._between("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[PostgresqlSession]:
        # READ COMMITTED: what is read after the lock is what the writer before has committed.
        begin = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({_WRITER})"
        with self._between(begin) as session:
            yield session

    @contextmanager
    def _between(self, begin: str) -> Iterator[PostgresqlSession]:
        with self._connection(begin) as connection:
            session = PostgresqlSession(connection)
            try:
                yield session
            except BaseException:
                if not connection.closed:
                    session.run("ROLLBACK")
                raise
            try:
                session.run("COMMIT")
            except _AWAY as error:
                raise StoreUnavailableError(
                    f"{_NOT_THERE}: {_reason(error)}; read before writing again, for this may have been written"
                ) from error

    @contextmanager
    def _connection(self, begin: str = "") -> Iterator[Connection]:
        """A connection on which ``begin`` has run; those that a restart of the server has ended are left out."""
        if not self._free.acquire(timeout=10.0):
            raise StoreUnavailableError("the registry's database is busy: all connections are in use")
        connection: Connection | None = None
        try:
            connection = self._begun(begin)
            yield connection
        except _AWAY as error:
            raise StoreUnavailableError(f"{_NOT_THERE}: {_reason(error)}") from error
        finally:
            if connection is not None:
                self._put(connection)
            self._free.release()

    def _begun(self, begin: str) -> Connection:
        while True:
            with self._guard:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            try:
                if _spoken_to(connection):
                    connection.pgconn.consume_input()
                if begin:
                    connection.execute(begin.encode())
                return connection
            except BaseException as error:
                ended = connection.closed
                connection.close()
                if not ended or not isinstance(error, _AWAY):
                    raise
        connection = self._connect()
        try:
            if begin:
                connection.execute(begin.encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect(self) -> Connection:
        now = time.monotonic()
        with self._guard:
            if now < self._away_until:
                raise StoreUnavailableError(f"{_NOT_THERE}: it could not be reached just now")
            if self._away_until:
                self._away_until = now + PAUSE
        try:
            connection = self.connect()
            connection.execute(_LONGEST)
        except BaseException:
            with self._guard:
                self._away_until = time.monotonic() + PAUSE
            raise
        self._away_until = 0.0
        return connection

    def connect(self) -> Connection:
        """A new connection outside the pool, on which nothing begins a transaction by itself."""
        connection = psycopg.connect(
            self._address, autocommit=True, connect_timeout=5, keepalives_idle=30, application_name="cuvil registry"
        )
        try:
            connection.execute(_SETTINGS)
        except BaseException:
            connection.close()
            raise
        return connection

    def _put(self, connection: Connection) -> None:
        fine = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
        with self._guard:
            if fine and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _spoken_to(connection: Connection) -> bool:
    """Whether the server sent something to an idle connection: in most cases, that it ends."""
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN)
    return bool(waiting.poll(0))


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

    def run_many(self, text: str, values: Sequence[Sequence[Any]]) -> None:
        self._cursor.executemany(_numbered(text), values)


@lru_cache(maxsize=1000)
def _numbered(text: str) -> bytes:
    """``?`` as ``$1``, ``$2``...: no statement of the registry has a question mark of its own."""
    first, *rest = text.split("?")
    return (first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))).encode()


def _reason(error: psycopg.Error) -> str:
    """The first line of what PostgreSQL says; it names host and user, never a password."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


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
    # One at a time, and no writer of the old schema in between.
    begin = f"SELECT pg_advisory_xact_lock({_WRITER})"
    return upgrade(engine_of("postgresql+psycopg://", database.connect, begin))


def open_address(address: str) -> PostgresqlDatabase:
    """The database at ``address``. ``UsageError`` where it cannot be reached or does not hold Unicode."""
    try:
        psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        raise UsageError(
            "the address of the database cannot be read; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with "
            "special characters as %XX"
        ) from None
    database = PostgresqlDatabase(address)
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
