"""The store in one SQLite file: write-ahead log, one writer at a time, readers that wait for nobody."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from evidence.verifier.errors import UsageError
from fhir_registry.search.sql import Dialect
from fhir_registry.store.base import StoreUnavailableError, TooLongError
from fhir_registry.store.sql_store import SqlStore, utc_now
from fhir_registry.store.sqlite_schema import bring_up, connect

_STEPS: Final = 50_000
"""Of SQLite's machine, between two looks at the clock: less than a millisecond."""
_AWAY: Final = {
    sqlite3.SQLITE_BUSY: "another process holds it for too long",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened",
    sqlite3.SQLITE_READONLY: "its file may not be written",
    sqlite3.SQLITE_CORRUPT: "its file is damaged",
    sqlite3.SQLITE_NOTADB: "its file is no database",
}


class SqliteStore(SqlStore):
    """``path`` is made when missing. Threads each have a connection; other processes may use the file too."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = utc_now) -> None:
        bring_up(path)
        self.path = path
        super().__init__(SqliteDatabase(path), clock)


class SqliteDatabase:
    """One connection for each thread. ``tables``: statements that make what is not there yet."""

    waits: Final = False
    dialect: Final = Dialect()

    def __init__(self, path: Path, *tables: str) -> None:
        self.path = path
        self._local = threading.local()
        self._all: list[SqliteSession] = []
        self._guard = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            for text in tables:
                with self.session() as session:
                    session.run(text)
        except StoreUnavailableError as error:
            self.close()
            raise UsageError(f"{path}: {error}; restore it from a backup, or move it away to begin anew") from None

    def _own(self) -> SqliteSession:
        found = getattr(self._local, "session", None)
        if found is None:
            connection = connect(self.path)
            connection.execute("PRAGMA cache_size = -65536")
            found = self._local.session = SqliteSession(connection)
            with self._guard:
                self._all.append(found)
        assert isinstance(found, SqliteSession)
        return found

    @contextmanager
    def session(self) -> Iterator[SqliteSession]:
        try:
            yield self._own()
        except sqlite3.DatabaseError as error:
            raise _unavailable(error) from error

    @contextmanager
    def hurried(self, seconds: float) -> Iterator[None]:
        with self.session() as session:
            session.deadline = time.monotonic() + seconds
            try:
                yield
            finally:
                session.deadline = math.inf

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSession]:
        with self._between("BEGIN") as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[SqliteSession]:
        with self._between("BEGIN IMMEDIATE") as session:
            yield session

    @contextmanager
    def _between(self, begin: str) -> Iterator[SqliteSession]:
        with self.session() as session:
            session.run(begin)
            try:
                yield session
                session.run("COMMIT")
            except BaseException:
                if session.connection.in_transaction:  # some errors of the disk have ended it already
                    session.run("ROLLBACK")
                raise

    def beside(self, name: str, *tables: str) -> SqliteDatabase:
        return SqliteDatabase(self.path.with_name(f"{name}.sqlite"), *tables)

    def close(self) -> None:
        with self._guard:
            for session in self._all:
                session.connection.close()
            self._all.clear()


class SqliteSession:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.deadline = math.inf
        connection.set_progress_handler(self._late, _STEPS)

    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def row(self, text: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        found = self.connection.execute(text, values).fetchall()
        return tuple(found[0]) if found else None

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(text, values).fetchall()

    def run(self, text: str, values: Sequence[Any] = ()) -> None:
        self.connection.execute(text, values)


def _unavailable(error: sqlite3.DatabaseError) -> Exception:
    """The error itself where it is one of the program."""
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
        return TooLongError("the search takes longer than it was given")
    why = _AWAY.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    return StoreUnavailableError(f"the registry's database is not available: {why}") if why else error
