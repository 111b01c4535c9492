"""Connections to PostgreSQL: kept, checked, made again after the server was away."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from fhir_registry.store.base import StoreUnavailableError

Connection = psycopg.Connection[tuple[Any, ...]]
CONNECTIONS: Final = 16
PAUSE: Final = 1.0
# Nobody waits forever for a process that stopped in the middle of a write: it loses its connection and so its lock. An
# operator may ask for more than the disk at a commit (remote_apply), not for less.
_SETTINGS: Final = """
    SET client_encoding = 'UTF8'; SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '20s';
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')"""
_DEFAULTS: Final[dict[str, Any]] = {
    "application_name": "cuvil registry",
    "connect_timeout": 5,
    # A machine that is gone without a word is noticed within half a minute, where TCP alone takes hours.
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_LONGEST: Final = "SET statement_timeout = '30s'"
NOT_THERE: Final = "the registry's database is not available"
AWAY: Final = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
)


class Pool:
    """A pool of connections: made when needed, kept when they are in order, at most ``size`` at a time.

    After an attempt to connect has failed, one caller in ``PAUSE`` seconds tries again and the others are told at once.
    """

    def __init__(self, address: str, size: int = CONNECTIONS) -> None:
        self._address = address  # holds the password: never shown
        self._free = threading.BoundedSemaphore(size)
        self._idle: list[Connection] = []
        self._guard = threading.Lock()
        self._closed = False
        self._away_until = 0.0

    @contextmanager
    def connection(self, begin: str = "") -> Iterator[Connection]:
        """A connection on which ``begin`` has run; those that a restart of the server has ended are left out."""
        if not self._free.acquire(timeout=10.0):
            raise StoreUnavailableError("the registry's database is busy: all connections are in use")
        connection: Connection | None = None
        try:
            connection = self._begun(begin)
            yield connection
        except AWAY as error:
            raise StoreUnavailableError(f"{NOT_THERE}: {reason(error)}") from error
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
                while _spoken_to(connection):  # that it ends, and then that it has ended
                    connection.pgconn.consume_input()
                if begin:
                    connection.execute(begin.encode())
                return connection
            except BaseException as error:
                ended = connection.closed
                connection.close()
                if not ended or not isinstance(error, AWAY):
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
                raise StoreUnavailableError(f"{NOT_THERE}: it could not be reached just now")
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
            autocommit=True, **{**_DEFAULTS, **psycopg.conninfo.conninfo_to_dict(self._address)}
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


def reason(error: psycopg.Error) -> str:
    """The first line of what PostgreSQL says; it names host and user, never a password."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
