"""What a database offers the store: sessions on which SQL runs, a snapshot to read from, a transaction to write in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fhir_registry.search.sql import Dialect


class Session(Protocol):
    """Runs SQL with ``?`` for each value."""

    def row(self, text: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None: ...

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def run(self, text: str, values: Sequence[Any] = ()) -> None: ...


class Database(Protocol):
    """Each context raises ``StoreUnavailableError`` where the database cannot be reached or does not take a write."""

    @property
    def waits(self) -> bool:
        """Whether another process answers, so that an event loop leaves the waiting to a thread."""

    @property
    def dialect(self) -> Dialect: ...

    def hurried(self, seconds: float) -> AbstractContextManager[None]:
        """Within, searches and histories of this thread raise ``TooLongError`` after ``seconds``."""

    def session(self) -> AbstractContextManager[Session]:
        """For one statement, which sees every commit before it."""

    def snapshot(self) -> AbstractContextManager[Session]:
        """For several statements that read one state."""

    def transaction(self) -> AbstractContextManager[Session]:
        """The only writer, over all processes, until it ends; what it wrote is durable then, or all undone."""

    def beside(self, name: str, *tables: str) -> Database:
        """Where tables lie whose writers wait only for each other.

        Beside a SQLite file that is ``NAME.sqlite``, with ``tables`` as statements that make what is not there yet. In
        PostgreSQL it is the same database, and revisions of the schema make the tables.
        """

    def close(self) -> None: ...
