"""A query as SQL over the tables ``resource`` and ``idx`` (``fhir_registry.store.migrations``).

Text with ``?`` as placeholder that SQLite and PostgreSQL both know (``Dialect`` has what differs); values never enter
the text. Rows are found either from the index (``IN``) or by walking resources in order and asking the index about each
(``EXISTS``): the first is fast where few match, the second where many do and a page needs some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fhir_registry.search.extract import local_target
from fhir_registry.search.query import Filter, Query, SearchError, Sort, Value

MANY: Final = 2000
ADDRESS: Final = "CAST(t.type || '/' || t.id AS TEXT)"
"""What a reference to a row ``t`` of ``resource`` says; the index ``resource_address`` has it."""
_LAST: Final = "\U0010ffff"
Probe = Callable[[str, Sequence[Any]], int]
"""How many rows (at most ``MANY``) an index condition finds."""


@dataclass(frozen=True)
class Sql:
    text: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Dialect:
    """What differs between databases. ``indexed``: how many characters of a value the index holds; 0: all of them."""

    indexed: int = 0

    def indexed_column(self, column: str) -> str:
        """The part of a column that the index holds."""
        return f"left({column}, {self.indexed})" if self.indexed else column

    def compare(self, column: str, sign: str, value: str) -> Sql:
        """``column sign value`` so that the index serves it.

        A value shorter than what is indexed differs from any other one within that, so the part decides; for a longer
        one the part narrows and the column decides.
        """
        part = self.indexed_column(column)
        if not self.indexed or len(value) < self.indexed:
            return Sql(f"{part} {sign} ?", (value,))
        wide = sign if sign == "=" else f"{sign[0]}="
        return Sql(f"({part} {wide} ? AND {column} {sign} ?)", (value[: self.indexed], value))


@dataclass(frozen=True)
class SearchSql:
    """Texts of searches in one dialect; ``probe`` asks the database how much an index condition would find."""

    dialect: Dialect
    probe: Probe

    def page(self, query: Query) -> Sql:
        """Columns rid, id and one key for each of ``query.sort``; ``count + 1`` rows in order."""
        keys = [_sort_key(sort) for sort in query.sort]
        where = self._where(query)
        if query.cursor:
            after = _after(query.sort, keys, query.cursor)
            where = Sql(f"{where.text} AND {after.text}", (*where.values, *after.values))
        order = ", ".join(
            [*(f"k{n} {'DESC' if s.descending else 'ASC'}" for n, s in enumerate(query.sort)), "r.rid ASC"]
        )
        columns = "".join(f", {key.text} AS k{n}" for n, key in enumerate(keys))
        values = [v for key in keys for v in key.values]
        text = f"SELECT r.rid, r.id{columns} FROM resource r WHERE {where.text} ORDER BY {order} LIMIT ?"
        return Sql(text, (*values, *where.values, query.count + 1))

    def count(self, query: Query) -> Sql:
        """How many resources match in all."""
        where = self._where(query)
        return Sql(f"SELECT count(*) FROM resource r WHERE {where.text}", where.values)

    def _where(self, query: Query) -> Sql:
        conditions = [
            Sql("r.type = ? AND r.deleted = 0", (query.type,)),
            *(self._condition(query.type, item) for item in query.filters),
        ]
        return Sql(" AND ".join(c.text for c in conditions), tuple(v for c in conditions for v in c.values))

    def _condition(self, kind: str, item: Filter, r: str = "r") -> Sql:
        """The condition on a resource of type ``kind`` whose row has the alias ``r``."""
        if item.chain is not None:
            target, inner = item.chain
            found = self._condition(target, inner, "t")
            text = (
                f"{r}.rid IN (SELECT c.rid FROM idx c "
                f"JOIN resource t ON {self.dialect.indexed_column('c.v1')} = {ADDRESS} "
                f"WHERE c.type = ? AND c.param = ? AND t.type = ? AND t.deleted = 0 AND {found.text})"
            )
            return Sql(text, (kind, item.param.code, target, *found.values))
        code = item.param.code
        if code == "_id" and not item.modifier:
            marks = ", ".join("?" for _ in item.values)
            return Sql(f"{r}.id IN ({marks})", tuple(v.text for v in item.values))
        if item.modifier == "missing":
            there = f"SELECT 1 FROM idx x WHERE x.rid = {r}.rid AND x.param = ?"
            return Sql(f"{'NOT ' if item.values[0].text == 'true' else ''}EXISTS ({there})", (code,))
        tests = [self._test(item, value) for value in item.values]
        test = " OR ".join(f"({t.text})" for t in tests)
        values = tuple(v for t in tests for v in t.values)
        exists = Sql(
            f"EXISTS (SELECT 1 FROM idx x WHERE x.rid = {r}.rid AND x.param = ? AND ({test}))", (code, *values)
        )
        if item.modifier == "not":
            return Sql(f"NOT {exists.text}", exists.values)
        inside = f"FROM idx x WHERE x.type = ? AND x.param = ? AND ({test})"
        few = code == "identifier" or self.probe(f"SELECT 1 {inside} LIMIT {MANY}", (kind, code, *values)) < MANY
        return Sql(f"{r}.rid IN (SELECT x.rid {inside})", (kind, code, *values)) if few else exists

    def _test(self, item: Filter, value: Value) -> Sql:
        kind, modifier, compare = item.param.type, item.modifier, self.dialect.compare
        if kind == "token":
            if value.system is None:
                return compare("x.v1", "=", value.text)
            if not value.text:
                return compare("x.v2", "=", value.system)
            return _both(compare("x.v1", "=", value.text), compare("x.v2", "=", value.system))
        if kind == "string":
            if modifier == "exact":
                return compare("x.v2", "=", value.text)
            if modifier == "contains":
                return Sql("x.v1 LIKE ? ESCAPE '!'", (f"%{_literal(value.text)}%",))
            return self._begins(value.text)
        if kind == "reference":
            if "://" in value.text or value.text.startswith("urn:"):
                return compare("x.v2", "=", value.text)
            if local_target(value.text) is not None:
                return compare("x.v1", "=", "/".join(local_target(value.text) or ()))
            targets = sorted(item.param.target)
            if not targets:
                return compare("x.v2", "=", value.text)
            each = [compare("x.v1", "=", f"{target}/{value.text}") for target in targets]
            return Sql(" OR ".join(t.text for t in each), tuple(v for t in each for v in t.values))
        if kind == "uri":
            return self._begins(value.text) if modifier == "below" else compare("x.v1", "=", value.text)
        if kind == "date":
            return self._date(value)
        return _number(value)

    def _begins(self, text: str) -> Sql:
        """A range, unlike LIKE, uses the index."""
        return _both(self.dialect.compare("x.v1", ">=", text), self.dialect.compare("x.v1", "<", text + _LAST))

    def _date(self, value: Value) -> Sql:
        """The range of the resource, v1 to v2, against that of the search (search.html, prefixes)."""
        low, high = value.text, value.high
        v1, v2 = self.dialect.indexed_column("x.v1"), self.dialect.indexed_column("x.v2")
        tests = {
            "eq": Sql(f"{v1} >= ? AND {v2} <= ?", (low, high)),
            "ne": Sql(f"NOT ({v1} >= ? AND {v2} <= ?)", (low, high)),
            "gt": Sql(f"{v2} > ?", (high,)),
            "lt": Sql(f"{v1} < ?", (low,)),
            "ge": Sql(f"({v2} > ? OR ({v1} >= ? AND {v2} <= ?))", (high, low, high)),
            "le": Sql(f"({v1} < ? OR ({v1} >= ? AND {v2} <= ?))", (low, low, high)),
            "sa": Sql(f"{v1} >= ?", (high,)),
            "eb": Sql(f"{v2} <= ?", (low,)),
        }
        return tests[value.prefix]


def _both(first: Sql, second: Sql) -> Sql:
    return Sql(f"{first.text} AND {second.text}", (*first.values, *second.values))


def _number(value: Value) -> Sql:
    signs = {"eq": "=", "ne": "<>", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "sa": ">", "eb": "<"}
    unit = " AND x.v1 = ?" if value.text else ""
    return Sql(f"x.n1 {signs[value.prefix]} ?{unit}", (value.number, *([value.text] if value.text else [])))


def _literal(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _sort_key(sort: Sort) -> Sql:
    if sort.param == "_lastUpdated":
        return Sql("r.updated")
    if sort.param == "_id":
        return Sql("r.id")
    pick = "max" if sort.descending else "min"
    # A resource without a value comes last in both directions.
    last = "" if sort.descending else _LAST
    return Sql(f"COALESCE((SELECT {pick}(x.v1) FROM idx x WHERE x.rid = r.rid AND x.param = ?), ?)", (sort.param, last))


def _after(sorts: Sequence[Sort], keys: Sequence[Sql], cursor: Sequence[str]) -> Sql:
    """Rows behind the one the page before ended with, in the order of the sort and then of rid."""
    if len(cursor) != len(sorts) + 1:
        raise SearchError("_cursor belongs to another search; follow the link next as it is")
    parts: list[str] = []
    values: list[Any] = []
    for length in range(len(keys) + 1):
        same = "".join(f"{key.text} = ? AND " for key in keys[:length])
        for key, at in zip(keys[:length], cursor, strict=False):
            values += [*key.values, at]
        if length < len(keys):
            sign = "<" if sorts[length].descending else ">"
            parts.append(f"({same}{keys[length].text} {sign} ?)")
            values += [*keys[length].values, cursor[length]]
        else:
            parts.append(f"({same}r.rid > ?)")
            values.append(int(cursor[-1]))
    return Sql("(" + " OR ".join(parts) + ")", tuple(values))
