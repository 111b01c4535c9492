"""The outbox: AuditEvents in one table, each chained to the one before, durable before the access is answered.

The digest of an entry is SHA3-512 over the digest before it and its bytes; the first one is chained to 64 zero bytes.
An entry that is changed, removed or inserted breaks every digest behind it; what is cut off at the end is seen by
whoever kept a later digest.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fhir_registry.server.writer import GroupCommit
from fhir_registry.store.database import Database
from fhir_registry.store.sqlite import SqliteDatabase

FIRST: Final = bytes(64)
_AT_ONCE: Final = 1000
_TABLE: Final = "CREATE TABLE IF NOT EXISTS event (seq INTEGER PRIMARY KEY, digest BLOB NOT NULL, body BLOB NOT NULL)"


class ChainError(Exception):
    """The outbox is not what was written: the message names the first entry that does not fit."""


@dataclass(frozen=True)
class Entry:
    seq: int
    digest: bytes
    body: bytes


def chained(previous: bytes, body: bytes) -> bytes:
    return hashlib.sha3_512(previous + body).digest()


class Outbox:
    """Entries are numbered from 1. Several processes may append to one; each waits for the other's commit.

    ``place``: a SQLite file, made when missing, or the database of the registry (``Database.beside``).
    """

    def __init__(self, place: Path | Database) -> None:
        self._database: Database = (
            SqliteDatabase(place, _TABLE) if isinstance(place, Path) else place.beside("audit", _TABLE)
        )
        self._writer: GroupCommit[bytes, int] = GroupCommit(self._commit, "registry-audit")

    def append(self, body: bytes) -> Future[int]:
        """The number of the entry, once it is durable."""
        return self._writer.submit(body)

    def appended(self, body: bytes) -> asyncio.Future[int]:
        """The same for the running event loop."""
        return self._writer.submitted(body)

    def entries(self, after: int = 0) -> Iterator[Entry]:
        while True:
            with self._database.session() as session:
                rows = session.rows(
                    f"SELECT seq, digest, body FROM event WHERE seq > ? ORDER BY seq LIMIT {_AT_ONCE}", (after,)
                )
            for row in rows:
                # SQLite columns take any type, and somebody may have written another one.
                yield Entry(int(row[0]), *(v if isinstance(v, bytes) else str(v).encode() for v in row[1:]))
            if not rows:
                return
            after = int(rows[-1][0])

    def verify(self) -> tuple[int, bytes]:
        """The number of entries and the last digest; ``ChainError`` for an outbox somebody changed."""
        previous, count = FIRST, 0
        for entry in self.entries():
            if entry.seq != count + 1:
                raise ChainError(f"entry {count + 1} is missing")
            if entry.digest != chained(previous, entry.body):
                raise ChainError(f"entry {entry.seq} does not fit the one before it")
            previous, count = entry.digest, entry.seq
        return count, previous

    def close(self) -> None:
        self._writer.close()
        self._database.close()

    def _commit(self, bodies: Sequence[bytes]) -> list[int | Exception]:
        with self._database.transaction() as session:
            seq, previous = session.row("SELECT seq, digest FROM event ORDER BY seq DESC LIMIT 1") or (0, FIRST)
            values: list[int | bytes] = []
            for number, body in enumerate(bodies, seq + 1):
                previous = chained(previous, body)
                values += (number, previous, body)
            # One statement: SQLite gives the interpreter lock away in each, and may wait long to have it again.
            marks = ", ".join(["(?, ?, ?)"] * len(bodies))
            session.run(f"INSERT INTO event (seq, digest, body) VALUES {marks}", values)
        return list(range(seq + 1, seq + 1 + len(bodies)))
