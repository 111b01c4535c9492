"""Tokens that were used: each is taken once by all processes that share the place, and after a restart too."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from fhir_registry.server.writer import GroupCommit
from fhir_registry.store.database import Database
from fhir_registry.store.sqlite import SqliteDatabase

_TABLE: Final = "CREATE TABLE IF NOT EXISTS used (digest BLOB PRIMARY KEY, ends INTEGER NOT NULL) WITHOUT ROWID"
_INDEX: Final = "CREATE INDEX IF NOT EXISTS used_ends ON used (ends)"


def _tokens_at(place: Path | Database) -> Database:
    if isinstance(place, Path):
        return SqliteDatabase(place, _TABLE, _INDEX)
    return place.beside("tokens", _TABLE, _INDEX)


class UsedTokens:
    """A token is on disk as used before ``take`` answers, and until it ends.

    ``place``: a SQLite file, made when missing, or the database of the registry (``Database.beside``).
    """

    def __init__(self, place: Path | Database, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._database: Database = _tokens_at(place)
        self._writer: GroupCommit[tuple[bytes, int], bool] = GroupCommit(self._commit, "registry-tokens")

    def take(self, issuer: str, identifier: str, ends: int) -> asyncio.Future[bool]:
        """Whether ``identifier`` of ``issuer`` was unused; it is used now. ``ends``: POSIX time when the token does."""
        return self._writer.submitted((hashlib.sha256(f"{issuer}\0{identifier}".encode()).digest(), ends))

    def close(self) -> None:
        self._writer.close()
        self._database.close()

    def _commit(self, items: Sequence[tuple[bytes, int]]) -> list[bool | Exception]:
        with self._database.transaction() as session:
            session.run("DELETE FROM used WHERE ends <= ?", (int(self._clock()),))
            text = "INSERT INTO used (digest, ends) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING 1"
            return [session.row(text, item) is not None for item in items]
