"""The store over a SQL database: one text of queries for SQLite and PostgreSQL.

Writers take turns, over all processes of a database (``Database.transaction``). So a conditional create cannot meet
another one between its search and its insert, and numbers are given out in the order of the commits: a page that ended
at a number never misses a resource that is committed later with a smaller one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fhir_registry.json_text import write_json
from fhir_registry.search.extract import Row
from fhir_registry.search.query import Query, write_cursor
from fhir_registry.search.sql import ADDRESS, MANY, SearchSql
from fhir_registry.store.base import ConflictError, Page, Stored, StoreUnavailableError, Write, Written
from fhir_registry.store.database import Database, Session

_CURRENT = "SELECT r.type, r.id, v.version, v.updated, v.method, v.body FROM resource r JOIN version v ON v.rid = r.rid"


def utc_now() -> datetime:
    return datetime.now(UTC)


class SqlStore:
    """``fhir_registry.store.base.Store`` over ``database``, whose schema is the newest (``store.migrate``)."""

    def __init__(self, database: Database, clock: Callable[[], datetime] = utc_now) -> None:
        self.database = database
        self.clock = clock

    @property
    def waits(self) -> bool:
        return self.database.waits

    def hurried(self, seconds: float) -> AbstractContextManager[None]:
        return self.database.hurried(seconds)

    def close(self) -> None:
        self.database.close()

    # ---- reading

    def read(self, kind: str, identifier: str) -> Stored | None:
        with self.database.session() as session:
            return self._read(session, kind, identifier)

    def _read(self, session: Session, kind: str, identifier: str) -> Stored | None:
        row = session.row(f"{_CURRENT} AND v.version = r.version WHERE r.type = ? AND r.id = ?", (kind, identifier))
        return Stored(*row) if row else None

    def version(self, kind: str, identifier: str, version: int) -> Stored | None:
        with self.database.session() as session:
            row = session.row(
                f"{_CURRENT} WHERE r.type = ? AND r.id = ? AND v.version = ?", (kind, identifier, version)
            )
        return Stored(*row) if row else None

    def history(
        self, kind: str, identifier: str, count: int, before: int | None
    ) -> tuple[list[tuple[int, Stored]], int]:
        where, values = "1 = 1", list[Any]()
        for column, value in (("r.type", kind), ("r.id", identifier)):
            if value:
                where += f" AND {column} = ?"
                values.append(value)
        text = _CURRENT.replace("SELECT ", "SELECT v.seq, ")
        with self.database.snapshot() as session:
            total = session.row(
                f"SELECT count(*) FROM resource r JOIN version v ON v.rid = r.rid WHERE {where}", values
            )
            rows = session.rows(
                f"{text} WHERE {where} AND v.seq < ? ORDER BY v.seq DESC LIMIT ?", (*values, before or 1 << 62, count)
            )
        assert total is not None
        return [(row[0], Stored(*row[1:])) for row in rows], int(total[0])

    def search(self, query: Query) -> Page:
        with self.database.snapshot() as session:
            return self._search(session, query)

    def _search(self, session: Session, query: Query) -> Page:
        def probe(text: str, values: Sequence[Any]) -> int:
            return _count(session, f"SELECT count(*) FROM ({text}) AS found", values)

        sql = SearchSql(self.database.dialect, probe)
        total = None
        if query.total or query.summary == "count":
            found = sql.count(query)
            total = _count(session, found.text, found.values)
        if query.summary == "count" or query.count == 0:
            return Page((), (), "", total)
        rows: list[tuple[Any, ...]] = []
        for page in sql.pages(query):
            if len(rows) <= query.count:
                rows += session.rows(page.text, (*page.values, query.count + 1 - len(rows)))
        following = ""
        if len(rows) > query.count:
            rows.pop()
            last = rows[-1]
            following = write_cursor([*(str(key) for key in last[2:]), str(last[0])])
        rids = [row[0] for row in rows]
        return Page(tuple(_bodies(session, rids)), tuple(self._included(session, query, rids)), following, total)

    def _included(self, session: Session, query: Query, rids: Sequence[int]) -> list[Stored]:
        wanted: dict[int, None] = {}
        marks = ", ".join("?" for _ in rids)
        target_of = self.database.dialect.indexed_column("x.v1")
        for code, target in query.include if rids else ():
            only = " AND t.type = ?" if target else ""
            text = (
                f"SELECT t.rid FROM idx x JOIN resource t ON {target_of} = {ADDRESS} "
                f"WHERE x.param = ? AND t.deleted = 0{only} AND x.rid IN ({marks}) ORDER BY t.rid"
            )
            values = [code, *([target] if target else []), *rids]
            wanted.update(dict.fromkeys(row[0] for row in session.rows(text, values)))
        for source, code in query.revinclude if rids else ():
            text = (
                f"SELECT s.rid FROM resource t JOIN idx x ON {target_of} = {ADDRESS} "
                "JOIN resource s ON s.rid = x.rid "
                f"WHERE x.type = ? AND x.param = ? AND s.deleted = 0 AND t.rid IN ({marks}) ORDER BY s.rid LIMIT {MANY}"
            )
            wanted.update(dict.fromkeys(row[0] for row in session.rows(text, [source, code, *rids])))
        return _bodies(session, [rid for rid in wanted if rid not in set(rids)])

    # ---- writing

    def commit(self, writes: Sequence[Write]) -> list[Written]:
        with self.database.transaction() as session:
            return [self._write(session, write) for write in writes]

    def commit_each(self, groups: Sequence[Sequence[Write]]) -> list[list[Written] | Exception]:
        """Each group atomic by itself, all of them durable together: one sync of the disk for many clients."""
        results: list[list[Written] | Exception] = []
        with self.database.transaction() as session:
            for group in groups:
                session.run("SAVEPOINT one")
                try:
                    results.append([self._write(session, write) for write in group])
                except StoreUnavailableError:
                    raise  # the disk, not this client: nothing of all of it is written
                except Exception as error:  # this group's client is told; the others go on
                    session.run("ROLLBACK TO SAVEPOINT one")
                    results.append(error)
                session.run("RELEASE SAVEPOINT one")
        return results

    def _write(self, session: Session, write: Write) -> Written:
        if write.unless is not None:
            found = self._search(session, replace(write.unless, count=2))
            if len(found.matches) > 1:
                raise ConflictError(412, "more than one resource meets the condition of If-None-Exist")
            if found.matches:
                return Written(found.matches[0], created=False, changed=False)
        identifier = write.id or str(uuid.uuid4())
        row = session.row(
            "SELECT rid, version, deleted FROM resource WHERE type = ? AND id = ?", (write.type, identifier)
        )
        version = row[1] if row else 0
        there = row is not None and not row[2]
        if write.expected is not None and write.expected != (version if there else 0):
            raise ConflictError(412, f"the current version is {version if there else 'none'}, not {write.expected}")
        if write.method in ("DELETE", "PATCH") and not there:
            if write.method == "DELETE" and row is not None:
                gone = self._read(session, write.type, identifier)
                assert gone is not None
                return Written(gone, created=False, changed=False)
            raise ConflictError(410 if row else 404, f"there is no {write.type}/{identifier}")
        if write.method == "POST" and row is not None:
            raise ConflictError(409, f"{write.type}/{identifier} exists already")
        if write.method == "PUT" and there:
            current = self._read(session, write.type, identifier)
            assert current is not None
            if current.body == body_of(write.resource, identifier, current.version, current.updated):
                return Written(current, created=False, changed=False)  # the same again is no new version
        return self._store(session, write, identifier, row[0] if row else None, version + 1, created=not there)

    def _store(
        self, session: Session, write: Write, identifier: str, rid: int | None, version: int, created: bool
    ) -> Written:
        now = self.clock()
        updated = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
        deleted = write.method == "DELETE"
        if rid is None:
            row = session.row(
                "INSERT INTO resource (type, id, version, updated, deleted) VALUES (?, ?, ?, ?, ?) RETURNING rid",
                (write.type, identifier, version, updated, int(deleted)),
            )
            assert row is not None
            rid = int(row[0])
        else:
            session.run(
                "UPDATE resource SET version = ?, updated = ?, deleted = ? WHERE rid = ?",
                (version, updated, int(deleted), rid),
            )
            session.run("DELETE FROM idx WHERE rid = ?", (rid,))
        body = b"" if deleted else body_of(write.resource, identifier, version, updated)
        session.run(
            "INSERT INTO version (rid, version, updated, method, body) VALUES (?, ?, ?, ?, ?)",
            (rid, version, updated, write.method, body),
        )
        if not deleted:
            moment = updated.replace("Z", "000")
            _index(session, rid, write.type, (*write.rows, Row("_lastUpdated", moment, moment)))
        stored = Stored(write.type, identifier, version, updated, write.method, body)
        return Written(stored, created, changed=True)


def _index(session: Session, rid: int, kind: str, rows: Sequence[Row]) -> None:
    """Many rows in one statement: each costs PostgreSQL an exchange of messages, and SQLite the interpreter lock."""
    for start in range(0, len(rows), 100):
        values: list[Any] = []
        some = rows[start : start + 100]
        for row in some:
            values += (rid, kind, row.param, row.v1, row.v2, row.n1)
        marks = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(some))
        session.run(f"INSERT INTO idx (rid, type, param, v1, v2, n1) VALUES {marks}", values)


def _count(session: Session, text: str, values: Sequence[Any]) -> int:
    row = session.row(text, values)
    assert row is not None
    return int(row[0])


def _bodies(session: Session, rids: Sequence[int]) -> list[Stored]:
    found = {}
    for start in range(0, len(rids), 500):
        some = rids[start : start + 500]
        marks = ", ".join("?" for _ in some)
        text = _CURRENT.replace("SELECT ", "SELECT r.rid, ")
        rows = session.rows(f"{text} AND v.version = r.version WHERE r.rid IN ({marks})", some)
        found.update({row[0]: Stored(*row[1:]) for row in rows})
    return [found[rid] for rid in rids if rid in found]


def body_of(resource: dict[str, Any], identifier: str, version: int, updated: str) -> bytes:
    """The bytes served: ``resource`` with id and meta, in the order FHIR writes them."""
    meta = {"versionId": str(version), "lastUpdated": updated}
    given = resource.get("meta")
    rest = {name: value for name, value in given.items() if name not in meta} if isinstance(given, dict) else {}
    ordered: dict[str, Any] = {"resourceType": resource["resourceType"], "id": identifier, "meta": {**meta, **rest}}
    ordered.update({name: value for name, value in resource.items() if name not in ordered})
    return write_json(ordered)
