"""What a store promises, whatever database it is made on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from evidence.verifier.errors import UsageError
from fhir_registry.search.extract import Row
from fhir_registry.search.query import Query

Method = Literal["POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True)
class Stored:
    """One version of a resource; ``body`` is exactly what is served (empty where it was deleted)."""

    type: str
    id: str
    version: int
    updated: str
    method: str
    body: bytes

    @property
    def deleted(self) -> bool:
        return self.method == "DELETE"

    @property
    def etag(self) -> str:
        return f'W/"{self.version}"'


class ConflictError(Exception):
    """A write that may not happen: ``status`` is the HTTP status that says why (404, 409, 410, 412)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class StoreUnavailableError(UsageError):
    """The database is away or takes no writes; the same may be asked again later. The message holds no secret.

    The server answers 503, a command ends with exit code 2.
    """


@dataclass(frozen=True)
class Write:
    """One change. ``body`` has neither ``meta.versionId`` nor ``meta.lastUpdated``: the store adds both.

    ``id`` may be empty for a create. ``unless``: the criteria of a conditional create; if one resource matches, nothing
    is written and that resource is the answer. ``expected``: the version that must be current (If-Match).
    ``new``: whether an update may create (PUT to an id that is not there).
    """

    method: Method
    type: str
    id: str
    resource: dict[str, object] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    unless: Query | None = None
    expected: int | None = None


@dataclass(frozen=True)
class Written:
    """The version a write left current; ``created``: not there before; ``changed``: whether anything was written."""

    stored: Stored
    created: bool
    changed: bool


@dataclass(frozen=True)
class Page:
    """Matches of a search in order, what _include and _revinclude add, and where the next page begins."""

    matches: tuple[Stored, ...]
    included: tuple[Stored, ...]
    following: str
    total: int | None


class TooLongError(Exception):
    """A read that was stopped (``Store.hurried``); nothing else is wrong with it."""


class Store(Protocol):
    """Reads see every write that was acknowledged; ``commit`` is atomic and durable when it returns.

    Everything may raise ``StoreUnavailableError``. From a write it means: not acknowledged, though it may have happened
    where the connection broke during the commit.
    """

    @property
    def waits(self) -> bool:
        """Whether another process answers, so that an event loop leaves the waiting to a thread."""

    def hurried(self, seconds: float) -> AbstractContextManager[None]:
        """Within, searches and histories of this thread raise ``TooLongError`` after ``seconds``."""

    def read(self, kind: str, identifier: str) -> Stored | None: ...

    def version(self, kind: str, identifier: str, version: int) -> Stored | None: ...

    def history(
        self, kind: str, identifier: str, count: int, before: int | None
    ) -> tuple[list[tuple[int, Stored]], int]:
        """Newest first with their sequence numbers, below ``before``; and how many there are in all."""

    def search(self, query: Query) -> Page: ...

    def commit(self, writes: Sequence[Write]) -> list[Written]:
        """All or none. ``ConflictError`` for the first that may not happen."""

    def commit_each(self, groups: Sequence[Sequence[Write]]) -> list[list[Written] | Exception]:
        """Each group atomic by itself, all of them durable together."""

    def close(self) -> None: ...
