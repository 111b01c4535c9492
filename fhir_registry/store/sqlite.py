"""The store in one SQLite file: write-ahead log, one writer at a time, readers that wait for nobody."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fhir_registry.json_text import write_json
from fhir_registry.search.query import Query, write_cursor
from fhir_registry.search.sql import MANY, count_sql, page_sql
from fhir_registry.store.base import ConflictError, Page, Stored, Write, Written
from fhir_registry.store.sqlite_schema import bring_up, connect

_CURRENT = "SELECT r.type, r.id, v.version, v.updated, v.method, v.body FROM resource r JOIN version v ON v.rid = r.rid"


def utc_now() -> datetime:
    return datetime.now(UTC)


class SqliteStore:
    """``path`` is made when missing. Threads each have a connection; other processes may use the file too."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = utc_now) -> None:
        self.path = path
        self.clock = clock
        self._local = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        bring_up(path)

    @property
    def _database(self) -> sqlite3.Connection:
        found = getattr(self._local, "connection", None)
        if found is None:
            found = connect(self.path)
            found.execute("PRAGMA cache_size = -65536")
            self._local.connection = found
            with self._guard:
                self._all.append(found)
        assert isinstance(found, sqlite3.Connection)
        return found

    def close(self) -> None:
        with self._guard:
            for connection in self._all:
                connection.close()
            self._all.clear()

    # ---- reading

    def read(self, kind: str, identifier: str) -> Stored | None:
        row = self._database.execute(
            f"{_CURRENT} AND v.version = r.version WHERE r.type = ? AND r.id = ?", (kind, identifier)
        ).fetchone()
        return Stored(*row) if row else None

    def version(self, kind: str, identifier: str, version: int) -> Stored | None:
        row = self._database.execute(
            f"{_CURRENT} WHERE r.type = ? AND r.id = ? AND v.version = ?", (kind, identifier, version)
        ).fetchone()
        return Stored(*row) if row else None

    def history(
        self, kind: str, identifier: str, count: int, before: int | None
    ) -> tuple[list[tuple[int, Stored]], int]:
        where, values = "1 = 1", list[Any]()
        for column, value in (("r.type", kind), ("r.id", identifier)):
            if value:
                where += f" AND {column} = ?"
                values.append(value)
        total = self._database.execute(
            f"SELECT count(*) FROM resource r JOIN version v ON v.rid = r.rid WHERE {where}", values
        ).fetchone()[0]
        text = _CURRENT.replace("SELECT ", "SELECT v.seq, ")
        rows = self._database.execute(
            f"{text} WHERE {where} AND v.seq < ? ORDER BY v.seq DESC LIMIT ?", (*values, before or 1 << 62, count)
        )
        return [(row[0], Stored(*row[1:])) for row in rows], int(total)

    def search(self, query: Query) -> Page:
        total = None
        if query.total or query.summary == "count":
            found = count_sql(query, self._probe)
            total = int(self._database.execute(found.text, found.values).fetchone()[0])
        if query.summary == "count" or query.count == 0:
            return Page((), (), "", total)
        page = page_sql(query, self._probe)
        rows = self._database.execute(page.text, page.values).fetchall()
        following = ""
        if len(rows) > query.count:
            rows.pop()
            last = rows[-1]
            following = write_cursor([*(str(key) for key in last[2:]), str(last[0])])
        rids = [row[0] for row in rows]
        matches = self._bodies(rids)
        return Page(tuple(matches), tuple(self._included(query, rids)), following, total)

    def _probe(self, text: str, values: Sequence[Any]) -> int:
        return int(self._database.execute(f"SELECT count(*) FROM ({text})", values).fetchone()[0])

    def _bodies(self, rids: Sequence[int]) -> list[Stored]:
        found = {}
        for start in range(0, len(rids), 500):
            some = rids[start : start + 500]
            marks = ", ".join("?" for _ in some)
            text = _CURRENT.replace("SELECT ", "SELECT r.rid, ")
            rows = self._database.execute(f"{text} AND v.version = r.version WHERE r.rid IN ({marks})", some)
            found.update({row[0]: Stored(*row[1:]) for row in rows})
        return [found[rid] for rid in rids if rid in found]

    def _included(self, query: Query, rids: Sequence[int]) -> list[Stored]:
        wanted: dict[int, None] = {}
        marks = ", ".join("?" for _ in rids)
        for code, target in query.include if rids else ():
            only = " AND t.type = ?" if target else ""
            text = (
                "SELECT t.rid FROM idx x JOIN resource t ON x.v1 = t.type || '/' || t.id "
                f"WHERE x.param = ? AND t.deleted = 0{only} AND x.rid IN ({marks}) ORDER BY t.rid"
            )
            values = [code, *([target] if target else []), *rids]
            wanted.update(dict.fromkeys(row[0] for row in self._database.execute(text, values)))
        for source, code in query.revinclude if rids else ():
            text = (
                "SELECT s.rid FROM resource t JOIN idx x ON x.v1 = t.type || '/' || t.id "
                "JOIN resource s ON s.rid = x.rid "
                f"WHERE x.type = ? AND x.param = ? AND s.deleted = 0 AND t.rid IN ({marks}) ORDER BY s.rid LIMIT {MANY}"
            )
            wanted.update(dict.fromkeys(row[0] for row in self._database.execute(text, [source, code, *rids])))
        return self._bodies([rid for rid in wanted if rid not in set(rids)])

    # ---- writing

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")

    def commit(self, writes: Sequence[Write]) -> list[Written]:
        with self._transaction():
            return [self._write(write) for write in writes]

    def commit_each(self, groups: Sequence[Sequence[Write]]) -> list[list[Written] | Exception]:
        """Each group atomic by itself, all of them durable together: one sync of the disk for many clients."""
        results: list[list[Written] | Exception] = []
        with self._transaction() as database:
            for group in groups:
                database.execute("SAVEPOINT one")
                try:
                    results.append([self._write(write) for write in group])
                except Exception as error:  # this group's client is told; the others go on
                    database.execute("ROLLBACK TO one")
                    results.append(error)
                database.execute("RELEASE one")
        return results

    def _write(self, write: Write) -> Written:
        if write.unless is not None:
            found = self.search(replace(write.unless, count=2))
            if len(found.matches) > 1:
                raise ConflictError(412, "more than one resource meets the condition of If-None-Exist")
            if found.matches:
                return Written(found.matches[0], created=False, changed=False)
        identifier = write.id or str(uuid.uuid4())
        row = self._database.execute(
            "SELECT rid, version, deleted FROM resource WHERE type = ? AND id = ?", (write.type, identifier)
        ).fetchone()
        version = row[1] if row else 0
        there = row is not None and not row[2]
        if write.expected is not None and write.expected != (version if there else 0):
            raise ConflictError(412, f"the current version is {version if there else 'none'}, not {write.expected}")
        if write.method in ("DELETE", "PATCH") and not there:
            if write.method == "DELETE" and row is not None:
                gone = self.read(write.type, identifier)
                assert gone is not None
                return Written(gone, created=False, changed=False)
            raise ConflictError(410 if row else 404, f"there is no {write.type}/{identifier}")
        if write.method == "POST" and row is not None:
            raise ConflictError(409, f"{write.type}/{identifier} exists already")
        if write.method == "PUT" and there:
            current = self.read(write.type, identifier)
            assert current is not None
            if current.body == body_of(write.resource, identifier, current.version, current.updated):
                return Written(current, created=False, changed=False)  # the same again is no new version
        return self._store(write, identifier, row[0] if row else None, version + 1, created=not there)

    def _store(self, write: Write, identifier: str, rid: int | None, version: int, created: bool) -> Written:
        database = self._database
        now = self.clock()
        updated = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
        deleted = write.method == "DELETE"
        if rid is None:
            cursor = database.execute(
                "INSERT INTO resource (type, id, version, updated, deleted) VALUES (?, ?, ?, ?, ?)",
                (write.type, identifier, version, updated, int(deleted)),
            )
            assert cursor.lastrowid is not None
            rid = cursor.lastrowid
        else:
            database.execute(
                "UPDATE resource SET version = ?, updated = ?, deleted = ? WHERE rid = ?",
                (version, updated, int(deleted), rid),
            )
            database.execute("DELETE FROM idx WHERE rid = ?", (rid,))
        body = b"" if deleted else body_of(write.resource, identifier, version, updated)
        database.execute(
            "INSERT INTO version (rid, version, updated, method, body) VALUES (?, ?, ?, ?, ?)",
            (rid, version, updated, write.method, body),
        )
        if not deleted:
            rows = [(rid, write.type, r.param, r.v1, r.v2, r.n1) for r in write.rows]
            moment = updated.replace("Z", "000")
            rows.append((rid, write.type, "_lastUpdated", moment, moment, None))
            database.executemany("INSERT INTO idx (rid, type, param, v1, v2, n1) VALUES (?, ?, ?, ?, ?, ?)", rows)
        stored = Stored(write.type, identifier, version, updated, write.method, body)
        return Written(stored, created, changed=True)


def body_of(resource: dict[str, Any], identifier: str, version: int, updated: str) -> bytes:
    """The bytes served: ``resource`` with id and meta, in the order FHIR writes them."""
    meta = {"versionId": str(version), "lastUpdated": updated}
    given = resource.get("meta")
    rest = {name: value for name, value in given.items() if name not in meta} if isinstance(given, dict) else {}
    ordered: dict[str, Any] = {"resourceType": resource["resourceType"], "id": identifier, "meta": {**meta, **rest}}
    ordered.update({name: value for name, value in resource.items() if name not in ordered})
    return write_json(ordered)
