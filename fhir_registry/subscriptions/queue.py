"""The durable queue: which events each subscription has, found in the history of models, and how far it was served.

Every version of a model is in the table ``version`` in the order of commits, whoever wrote it: a server, another one of
the same database, or the command line. So nothing has to be put into a queue by a writer, and nothing is lost when a
process is killed: what was not looked at yet is looked at later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fhir_registry.json_text import read_json
from fhir_registry.search.extract import index_rows
from fhir_registry.store.base import ConflictError, Stored, Write
from fhir_registry.store.database import Session
from fhir_registry.store.sql_store import SqlStore
from fhir_registry.subscriptions.notification import Event
from fhir_registry.subscriptions.topics import passes, read_filters, touched

AT_ONCE: Final = 500
"""Versions looked at in one transaction."""
_COLUMNS: Final = "position, events, delivered, failures, due, sent, claimed, error"


@dataclass(frozen=True)
class State:
    """How far a subscription was served (``r0004_subscriptions``)."""

    position: int
    events: int
    delivered: int
    failures: int
    due: float
    sent: float
    claimed: float
    error: str


@dataclass(frozen=True)
class Subscribed:
    """A Subscription as it stands: ``seq`` is where its current version lies in the history."""

    id: str
    version: int
    seq: int
    resource: dict[str, Any]


class Queue:
    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.database = store.database

    def subscriptions(self) -> list[Subscribed]:
        """All that are not deleted; what is left of deleted ones goes."""
        with self.database.snapshot() as session:
            rows = session.rows(
                "SELECT r.id, v.version, v.seq, v.body FROM resource r JOIN version v "
                "ON v.rid = r.rid AND v.version = r.version WHERE r.type = 'Subscription' AND r.deleted = 0"
            )
            known = {row[0] for row in session.rows("SELECT id FROM notify")}
        gone = known - {row[0] for row in rows}
        if gone:
            with self.database.transaction() as session:
                for identifier in gone:
                    session.run("DELETE FROM notify_event WHERE id = ?", (identifier,))
                    session.run("DELETE FROM notify WHERE id = ?", (identifier,))
        found = []
        for identifier, version, seq, body in rows:
            resource = read_json(bytes(body))
            assert isinstance(resource, dict)
            found.append(Subscribed(identifier, version, seq, resource))
        return found

    def state(self, identifier: str) -> State | None:
        with self.database.session() as session:
            return _state(session, identifier)

    def newest(self) -> int:
        """Where the history ends."""
        with self.database.session() as session:
            row = session.row("SELECT max(seq) FROM version")
        return int(row[0] or 0) if row else 0

    def collect(self, item: Subscribed, newest: int) -> State:
        """Find the events of ``item`` up to ``newest`` and number them. One that is off has none meanwhile."""
        state = self.state(item.id)
        while state is None or state.position < newest:
            with self.database.transaction() as session:
                state = _state(session, item.id)
                if state is None:
                    state = State(item.seq, 0, 0, 0, 0.0, 0.0, 0.0, "")
                    values = (item.id, item.seq, 0, 0, 0, 0.0, 0.0, 0.0, "")
                    session.run(f"INSERT INTO notify (id, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
                if state.position >= newest:
                    return state
                upto = min(newest, state.position + AT_ONCE)
                number = state.events
                if item.resource["status"] != "off":
                    for seq in _matching(session, item.resource, state.position, upto):
                        number += 1
                        session.run(
                            "INSERT INTO notify_event (id, number, seq) VALUES (?, ?, ?)", (item.id, number, seq)
                        )
                session.run("UPDATE notify SET position = ?, events = ? WHERE id = ?", (upto, number, item.id))
                state = _state(session, item.id)
        assert state is not None
        return state

    def events(self, identifier: str, first: int, last: int, most: int) -> list[Event]:
        """Events ``first`` to ``last``, at most ``most`` of them."""
        text = (
            "SELECT e.number, r.type, r.id, v.version, v.updated, v.method, v.body FROM notify_event e "
            "JOIN version v ON v.seq = e.seq JOIN resource r ON r.rid = v.rid "
            "WHERE e.id = ? AND e.number >= ? AND e.number <= ? ORDER BY e.number LIMIT ?"
        )
        with self.database.session() as session:
            rows = session.rows(text, (identifier, first, last, most))
        return [Event(int(row[0]), Stored(*row[1:])) for row in rows]

    def claim(self, identifier: str, now: float, until: float) -> State | None:
        """Take the subscription until then, so that one process alone sends to it; ``None``: another one has it."""
        with self.database.transaction() as session:
            state = _state(session, identifier)
            if state is None or state.claimed > now:
                return None
            session.run("UPDATE notify SET claimed = ? WHERE id = ?", (until, identifier))
        return state

    def release(self, identifier: str) -> None:
        with self.database.transaction() as session:
            session.run("UPDATE notify SET claimed = 0 WHERE id = ?", (identifier,))

    def served(self, identifier: str, delivered: int, now: float) -> None:
        text = "UPDATE notify SET delivered = ?, failures = 0, due = 0, sent = ?, claimed = 0, error = '' WHERE id = ?"
        with self.database.transaction() as session:
            session.run(text, (delivered, now, identifier))

    def failed(self, identifier: str, failures: int, due: float, error: str) -> None:
        text = "UPDATE notify SET failures = ?, due = ?, claimed = 0, error = ? WHERE id = ?"
        with self.database.transaction() as session:
            session.run(text, (failures, due, error, identifier))

    def set_status(self, item: Subscribed, status: str) -> None:
        """Write the Subscription's status; nothing where its owner wrote it meanwhile."""
        resource = {**item.resource, "status": status}
        meta = {k: v for k, v in resource.pop("meta", {}).items() if k not in ("versionId", "lastUpdated")}
        resource = {**resource, "meta": meta} if meta else resource
        rows = tuple(index_rows(resource))
        try:
            self.store.commit([Write("PUT", "Subscription", item.id, resource, rows, expected=item.version)])
        except ConflictError:
            return


def _state(session: Session, identifier: str) -> State | None:
    row = session.row(f"SELECT {_COLUMNS} FROM notify WHERE id = ?", (identifier,))
    return State(*row) if row else None


def _matching(session: Session, resource: dict[str, Any], after: int, upto: int) -> list[int]:
    """Places in the history, behind ``after``, of the versions that are events of this subscription."""
    topic = str(resource["topic"]).partition("|")[0]
    filters = read_filters(resource.get("filterBy", []))
    rows = session.rows(
        "SELECT v.seq, v.rid, v.version, v.body FROM version v JOIN resource r ON r.rid = v.rid "
        "WHERE v.seq > ? AND v.seq <= ? AND r.type = 'DeviceDefinition' AND v.method <> 'DELETE' ORDER BY v.seq",
        (after, upto),
    )
    found = []
    for seq, rid, version, body in rows:
        before = session.row(
            "SELECT body FROM version WHERE rid = ? AND version = ? AND method <> 'DELETE'", (rid, version - 1)
        )
        current = read_json(bytes(body))
        previous = read_json(bytes(before[0])) if before else None
        if isinstance(current, dict) and topic in touched(previous, current) and passes(filters, current):
            found.append(int(seq))
    return found
