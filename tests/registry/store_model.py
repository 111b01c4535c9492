"""A store in memory, as plain as can be, and random use of a real one beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

from fhir_registry.search.extract import Row, fold, index_rows
from fhir_registry.search.query import read_cursor, read_query
from fhir_registry.store.base import ConflictError, Stored, Write
from fhir_registry.store.sql_store import SqlStore

Resource = dict[str, Any]
START = datetime(2026, 11, 30, tzinfo=UTC)
# Letters that people and machines sort differently, with and without a form of their own when folded.
LETTERS = "aAbZzÄäßéeI_%!\\'\"$?0 1一😀ﬁ"
NAMES = st.one_of(
    st.text(LETTERS, min_size=1, max_size=4),
    # Around what an index of PostgreSQL holds of a value.
    st.builds(lambda n, end: "x" * n + end, st.integers(196, 202), st.text("ab", max_size=3)),
).filter(lambda text: bool(fold(text)))
CODES = st.sampled_from(["1", "2", "3", "c" * 199, "c" * 200, "c" * 201])
SYSTEMS = st.sampled_from(["urn:a", "urn:b"])
SORTED = ("name", "identifier", "_lastUpdated", "_id", "partof")
IDS = st.sampled_from(["i1", "i2", "I1", "i-3"])


class Clock:
    def __init__(self) -> None:
        self.ticks = 0

    def __call__(self) -> datetime:
        self.ticks += 1
        return START + timedelta(milliseconds=self.ticks)


def organization(name: str, code: str, system: str, active: bool, parent: str | None) -> Resource:
    found: Resource = {
        "resourceType": "Organization",
        "name": name,
        "identifier": [{"system": system, "value": code}],
        "active": active,
    }
    if parent is not None:
        found["partOf"] = {"reference": f"Organization/{parent}"}
    return found


ORGANIZATIONS = st.builds(organization, NAMES, CODES, SYSTEMS, st.booleans(), st.none() | IDS)


class Entry:
    """A resource of the model: all its versions, oldest first, and the rows of the current one."""

    def __init__(self) -> None:
        self.versions: list[tuple[str, Resource]] = []
        self.rows: list[Row] = []

    @property
    def version(self) -> int:
        return len(self.versions)

    @property
    def there(self) -> bool:
        return bool(self.versions) and self.versions[-1][0] != "DELETE"


class Model:
    """Entries in the order in which they were made, and the log of all versions."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.log: list[tuple[str, int]] = []

    def copy(self) -> Model:
        other = Model()
        for identifier, entry in self.entries.items():
            mine = other.entries[identifier] = Entry()
            mine.versions, mine.rows = list(entry.versions), entry.rows
        other.log = list(self.log)
        return other

    def write(self, write: Write, identifier: str) -> tuple[bool, bool]:
        """``(created, changed)``; ``identifier`` is what the store chose where the write has none."""
        entry = self.entries.get(identifier)
        version, there = (entry.version, entry.there) if entry else (0, False)
        if write.expected is not None and write.expected != (version if there else 0):
            raise ConflictError(412, "")
        if write.method == "DELETE" and not there:
            if entry is None:
                raise ConflictError(404, "")
            return False, False
        if write.method == "POST" and entry is not None:
            raise ConflictError(409, "")
        if write.method == "PUT" and there and entry is not None and entry.versions[-1][1] == write.resource:
            return False, False
        entry = self.entries.setdefault(identifier, Entry())
        entry.versions.append((write.method, write.resource))
        entry.rows = [] if write.method == "DELETE" else list(write.rows)
        self.log.append((identifier, entry.version))
        return not there, True

    def matches(self, test: Callable[[list[Row]], bool]) -> list[str]:
        return [i for i, entry in self.entries.items() if entry.there and test(entry.rows)]


def put(identifier: str, resource: Resource, expected: int | None = None) -> Write:
    return Write("PUT", "Organization", identifier, resource, tuple(index_rows(resource)), expected=expected)


class Machine(RuleBasedStateMachine):
    """Every step is done on ``store`` and on the model, and the answers are compared."""

    ids = Bundle("ids")

    def __init__(self, make: Callable[[Clock], SqlStore]) -> None:
        super().__init__()
        self.store = make(Clock())
        self.model = Model()

    def teardown(self) -> None:
        self.store.close()

    @initialize(target=ids)
    def some(self) -> Any:
        names = ("i1", "i2", "I1", "i-3")
        for name, identifier in zip(("_z", "z", "é", "Z 1"), names, strict=True):
            self.both([put(identifier, organization(name, "1", "urn:a", True, None))])
        return multiple(*names)

    # ---- writing

    @rule(target=ids, resource=ORGANIZATIONS)
    def create(self, resource: Resource) -> str:
        (done,) = self.store.commit([Write("POST", "Organization", "", resource, tuple(index_rows(resource)))])
        assert done.created and done.changed and done.stored.version == 1
        self.model.write(Write("POST", "Organization", "", resource, tuple(index_rows(resource))), done.stored.id)
        return done.stored.id

    @rule(resource=ORGANIZATIONS, code=CODES, system=SYSTEMS)
    def create_unless(self, resource: Resource, code: str, system: str) -> None:
        there = self.model.matches(lambda rows: Row("identifier", code, system) in rows)
        unless = read_query("Organization", [("identifier", f"{system}|{code}")])
        write = Write("POST", "Organization", "", resource, tuple(index_rows(resource)), unless)
        try:
            (done,) = self.store.commit([write])
        except ConflictError as error:
            assert error.status == 412 and len(there) > 1
            return
        assert len(there) < 2
        assert (done.created, done.changed) == (not there, not there)
        if there:
            assert done.stored.id == there[0]
        else:
            self.model.write(write, done.stored.id)

    @rule(identifier=ids, resource=ORGANIZATIONS, expected=st.none() | st.integers(0, 3))
    def update(self, identifier: str, resource: Resource, expected: int | None) -> None:
        self.both([put(identifier, resource, expected)])

    @rule(identifier=ids)
    def update_with_the_same(self, identifier: str) -> None:
        entry = self.model.entries.get(identifier)
        if entry is not None and entry.there:
            self.both([put(identifier, entry.versions[-1][1])])

    @rule(identifier=ids, expected=st.none() | st.integers(1, 3))
    def delete(self, identifier: str, expected: int | None) -> None:
        self.both([Write("DELETE", "Organization", identifier, expected=expected)])

    @rule(
        writes=st.lists(st.tuples(ids, ORGANIZATIONS, st.none() | st.integers(0, 2)), max_size=3),
        post=st.none() | st.tuples(ids, ORGANIZATIONS),
    )
    def transaction(self, writes: list[tuple[str, Resource, int | None]], post: tuple[str, Resource] | None) -> None:
        listed = [put(*item) for item in writes]
        if post is not None:
            listed.append(Write("POST", "Organization", post[0], post[1], tuple(index_rows(post[1]))))
        self.both(listed)

    @rule(
        groups=st.lists(st.lists(st.tuples(ids, ORGANIZATIONS, st.none() | st.integers(0, 2)), max_size=2), max_size=4)
    )
    def many_clients(self, groups: list[list[tuple[str, Resource, int | None]]]) -> None:
        listed = [[put(*item) for item in group] for group in groups]
        for group, result in zip(listed, self.store.commit_each(listed), strict=True):
            self.compare(group, result)

    def both(self, writes: Sequence[Write]) -> None:
        try:
            result: Any = self.store.commit(writes)
        except ConflictError as error:
            result = error
        self.compare(writes, result)

    def compare(self, writes: Sequence[Write], result: Any) -> None:
        tried = self.model.copy()
        try:
            wanted = [tried.write(write, write.id) for write in writes]
        except ConflictError as error:
            assert isinstance(result, ConflictError), result
            assert result.status == error.status
            return
        assert not isinstance(result, Exception), result
        assert [(done.created, done.changed) for done in result] == wanted
        self.model = tried

    # ---- reading

    @rule(identifier=ids)
    def read(self, identifier: str) -> None:
        entry = self.model.entries.get(identifier)
        found = self.store.read("Organization", identifier)
        if entry is None:
            assert found is None
        else:
            self.same(found, entry, entry.version)

    def same(self, found: Stored | None, entry: Entry, version: int) -> None:
        assert found is not None and found.version == version
        method, resource = entry.versions[version - 1]
        assert found.method == method
        if method != "DELETE":
            import json

            body = json.loads(found.body)
            assert body.pop("id") == found.id
            assert body.pop("meta") == {"versionId": str(version), "lastUpdated": found.updated}
            assert body == resource
        else:
            assert found.body == b""

    @rule(identifier=ids, version=st.integers(1, 4))
    def vread(self, identifier: str, version: int) -> None:
        entry = self.model.entries.get(identifier)
        found = self.store.version("Organization", identifier, version)
        if entry is None or version > entry.version:
            assert found is None
        else:
            self.same(found, entry, version)

    @rule(identifier=st.just("") | ids, count=st.integers(1, 5))
    def history(self, identifier: str, count: int) -> None:
        wanted = [item for item in self.model.log if not identifier or item[0] == identifier][::-1]
        seen: list[tuple[str, int]] = []
        before = None
        while True:
            page, total = self.store.history("Organization", identifier, count, before)
            assert total == len(wanted)
            seen += [(stored.id, stored.version) for _, stored in page]
            if not page:
                break
            before = page[-1][0]
        assert seen == wanted

    @rule(name=NAMES, modifier=st.sampled_from(["", ":exact", ":contains"]), count=st.integers(1, 4))
    def search_names(self, name: str, modifier: str, count: int) -> None:
        folded = fold(name)
        test = {
            "": lambda r: r.v1.startswith(folded),
            ":exact": lambda r: r.v2 == name,
            ":contains": lambda r: folded in r.v1,
        }[modifier]
        self.searched(
            [(f"name{modifier}", escaped(name))], lambda rows: any(test(r) for r in rows if r.param == "name"), count
        )

    @rule(code=CODES, system=st.none() | SYSTEMS, modifier=st.sampled_from(["", ":not"]), count=st.integers(1, 4))
    def search_tokens(self, code: str, system: str | None, modifier: str, count: int) -> None:
        def has(rows: list[Row]) -> bool:
            return any(r.param == "identifier" and r.v1 == code and r.v2 in (system or r.v2,) for r in rows)

        text = code if system is None else f"{system}|{code}"
        self.searched([(f"identifier{modifier}", text)], lambda rows: has(rows) != bool(modifier), count)

    @rule(parent=ids, missing=st.sampled_from(["true", "false"]), count=st.integers(1, 4))
    def search_references(self, parent: str, missing: str, count: int) -> None:
        target = f"Organization/{parent}"
        self.searched(
            [("partof", target)], lambda rows: any(r.param == "partof" and r.v1 == target for r in rows), count
        )
        self.searched(
            [("partof:missing", missing)],
            lambda rows: any(r.param == "partof" for r in rows) == (missing == "false"),
            count,
        )
        there = self.model.entries.get(parent)
        active = there is not None and there.there and Row("active", "true") in there.rows
        found = self.search([("partof.active", "true"), ("_id", "i1,i2,I1,i-3"), ("_include", "Organization:partof")])
        for identifier, rows in ((i, self.model.entries[i].rows) for i in found[0]):
            (row,) = (r for r in rows if r.param == "partof")
            if row.v1 == target:
                assert active, identifier
                assert parent in found[0] or parent in found[1]

    @rule(
        keys=st.lists(st.sampled_from(SORTED), min_size=1, max_size=2, unique=True),
        down=st.booleans(),
        active=st.none() | st.sampled_from(["true", "false"]),
        count=st.integers(1, 4),
    )
    def sort(self, keys: list[str], down: bool, active: str | None, count: int) -> None:
        pairs = [("_sort", ",".join(f"-{key}" if down else key for key in keys))]
        pairs += [("active", active)] if active else []
        updated = {identifier: n for n, (identifier, _) in enumerate(self.model.log)}
        made = list(self.model.entries)

        def key(identifier: str) -> Any:
            parts: list[Any] = []
            for name in keys:
                values = [r.v1 for r in self.model.entries[identifier].rows if r.param == name]
                if name == "_id":
                    values = [identifier]
                elif name == "_lastUpdated":
                    values = [f"{updated[identifier]:09d}"]
                last = "" if down else "\U0010ffff"
                value = (max(values) if down else min(values)) if values else last
                # Code points; a greater number of them first where the order is reversed.
                parts.append([-ord(c) for c in value] + [1] if down else [ord(c) for c in value])
            return (*parts, made.index(identifier))

        wanted = sorted(self.model.matches(lambda rows: active is None or Row("active", active) in rows), key=key)
        assert self.pages(pairs, count) == wanted

    def searched(self, pairs: list[tuple[str, str]], test: Callable[[list[Row]], bool], count: int) -> None:
        wanted = self.model.matches(test)
        assert self.pages(pairs, count) == wanted, pairs
        total = self.store.search(read_query("Organization", [*pairs, ("_summary", "count")])).total
        assert total == len(wanted)

    def search(self, pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
        page = self.store.search(read_query("Organization", pairs))
        return [m.id for m in page.matches], [m.id for m in page.included]

    def pages(self, pairs: list[tuple[str, str]], count: int) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            more = [("_cursor", cursor)] if cursor else []
            page = self.store.search(read_query("Organization", [*pairs, ("_count", str(count)), *more]))
            found += [m.id for m in page.matches]
            assert len(page.matches) <= count
            if not page.following:
                return found
            assert read_cursor(page.following)
            cursor = page.following


def escaped(text: str) -> str:
    for mark in "\\,$|":
        text = text.replace(mark, f"\\{mark}")
    return text
