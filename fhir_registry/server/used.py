"""Tokens that were used: each is taken once by all processes that share the file, and after a restart too."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from fhir_registry.server.writer import GroupCommit

_TABLE: Final = "CREATE TABLE IF NOT EXISTS used (digest BLOB PRIMARY KEY, ends INTEGER NOT NULL) WITHOUT ROWID"
_INDEX: Final = "CREATE INDEX IF NOT EXISTS used_ends ON used (ends)"


class UsedTokens:
    """``path`` is made when missing. A token is on disk as used before ``take`` answers, and until it ends."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30.0, check_same_thread=False)
        for text in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _TABLE, _INDEX):
            self._database.execute(text)
        self._writer: GroupCommit[tuple[bytes, int], bool] = GroupCommit(self._commit, "registry-tokens")

    def take(self, issuer: str, identifier: str, ends: int) -> asyncio.Future[bool]:
        """Whether ``identifier`` of ``issuer`` was unused; it is used now. ``ends``: POSIX time when the token does."""
        return self._writer.submitted((hashlib.sha256(f"{issuer}\0{identifier}".encode()).digest(), ends))

    def close(self) -> None:
        self._writer.close()
        self._database.close()

    def _commit(self, items: Sequence[tuple[bytes, int]]) -> list[bool | Exception]:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            database.execute("DELETE FROM used WHERE ends <= ?", (int(self._clock()),))
            unused: list[bool | Exception] = [
                database.execute("INSERT OR IGNORE INTO used (digest, ends) VALUES (?, ?)", item).rowcount == 1
                for item in items
            ]
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")
        return unused
