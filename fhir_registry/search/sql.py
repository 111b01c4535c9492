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
from fhir_registry.search.parameters import parameters_of
from fhir_registry.search.query import Filter, Query, SearchError, Sort, Value

FEW: Final = 10_000
"""So many rows are put in order in 10 ms; more are walked, where the first page is mostly found at once."""
MANY: Final = 2000
ADDRESS: Final = "CAST(t.type || '/' || t.id AS TEXT)"
"""What a reference to a row ``t`` of ``resource`` says; the index ``resource_address`` has it."""
_LAST: Final = "\U0010ffff"
_OWN_COLUMNS: Final = {"_lastUpdated": "r.updated", "_id": "r.id"}
"""Parameters one can sort by that are columns of ``resource``."""
_WALKED: Final = frozenset({"string", "date", "uri"})
"""Types whose values differ, and whose index rows all have one: tokens have many rows of one value to sort by rid."""
_NO_VALUE: Final = " "
"""Cursor at resources without a value: no folded string, date or URI is a space."""
Probe = Callable[[str, Sequence[Any]], int]
"""How many rows (at most ``FEW``) an index condition finds."""


@dataclass(frozen=True)
class Sql:
    """``few``: the condition is met by few rows, found from the index."""

    text: str
    values: tuple[Any, ...] = ()
    few: bool = False


@dataclass(frozen=True)
class Dialect:
    """What differs between databases.

    ``indexed``: how many characters of a value the index holds; 0: all of them. ``each``: what keeps a planner from
    joining a subquery that is meant to be asked for one row after the other, in order, until a page is full. ``once``:
    a column among the rows of a subquery that is asked once, before; also where the database has no statistics yet.
    """

    indexed: int = 0
    each: str = ""
    once: str = "{column} IN ({rows})"

    def indexed_column(self, column: str) -> str:
        """The part of a column that the index holds."""
        return f"left({column}, {self.indexed})" if self.indexed else column

    def among(self, column: str, rows: str) -> str:
        return self.once.format(column=column, rows=rows)

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

    def pages(self, query: Query) -> list[Sql]:
        """Texts to run one after the other until there are enough rows; the last value, the limit, is to be added.

        Columns rid, id and one key for each of ``query.sort``.
        """
        where = self._where(query)
        # Many rows: walked in the order of the index.
        if len(query.sort) == 1 and not where.few:
            known = parameters_of(query.type)[query.sort[0].param]
            if known.code not in _OWN_COLUMNS and known.type in _WALKED:
                return _walk(query, where, self.dialect)
        keys = [_sort_key(sort) for sort in query.sort]
        if _checked(query):
            after = _after(query.sort, keys, query.cursor)
            where = Sql(f"{where.text} AND {after.text}", (*where.values, *after.values))
        order = ", ".join(
            [*(f"k{n} {'DESC' if s.descending else 'ASC'}" for n, s in enumerate(query.sort)), "r.rid ASC"]
        )
        columns = "".join(f", {key.text} AS k{n}" for n, key in enumerate(keys))
        values = [v for key in keys for v in key.values]
        text = f"SELECT r.rid, r.id{columns} FROM resource r WHERE {where.text} ORDER BY {order} LIMIT ?"
        return [Sql(text, (*values, *where.values))]

    def count(self, query: Query) -> Sql:
        """How many resources match in all."""
        if len(query.filters) == 1 and _is_in_index(query.filters[0]):
            # Only current resources have rows there.
            inside = self._inside(query.type, query.filters[0])
            return Sql(f"SELECT count(DISTINCT x.rid) {inside.text}", inside.values)
        where = self._where(query)
        return Sql(f"SELECT count(*) FROM resource r WHERE {where.text}", where.values)

    def _where(self, query: Query) -> Sql:
        conditions = [
            Sql("r.type = ? AND r.deleted = 0", (query.type,)),
            *(self._condition(query.type, item) for item in query.filters),
        ]
        values = tuple(v for c in conditions for v in c.values)
        return Sql(" AND ".join(c.text for c in conditions), values, any(c.few for c in conditions))

    def _condition(self, kind: str, item: Filter, r: str = "r") -> Sql:
        """The condition on a resource of type ``kind`` whose row has the alias ``r``."""
        if item.chain is not None:
            target, inner = item.chain
            found = self._condition(target, inner, "t")
            rows = (
                f"SELECT c.rid FROM idx c JOIN resource t ON {self.dialect.indexed_column('c.v1')} = {ADDRESS} "
                f"WHERE c.type = ? AND c.param = ? AND t.type = ? AND t.deleted = 0 AND {found.text}"
            )
            values = (kind, item.param.code, target, *found.values)
            return Sql(self.dialect.among(f"{r}.rid", rows), values, found.few)
        code = item.param.code
        if code == "_id" and not item.modifier:
            marks = ", ".join("?" for _ in item.values)
            return Sql(f"{r}.id IN ({marks})", tuple(v.text for v in item.values), few=True)
        if item.modifier == "missing":
            there = f"SELECT 1 FROM idx x WHERE x.rid = {r}.rid AND x.param = ?{self.dialect.each}"
            return Sql(f"{'NOT ' if item.values[0].text == 'true' else ''}EXISTS ({there})", (code,))
        test = self._any(item)
        exists = Sql(
            f"EXISTS (SELECT 1 FROM idx x WHERE x.rid = {r}.rid AND x.param = ? AND ({test.text}){self.dialect.each})",
            (code, *test.values),
        )
        if item.modifier == "not":
            return Sql(f"NOT {exists.text}", exists.values)
        inside = self._inside(kind, item)
        few = code == "identifier" or self.probe(f"SELECT 1 {inside.text} LIMIT {FEW}", inside.values) < FEW
        if not few:
            return exists
        return Sql(self.dialect.among(f"{r}.rid", f"SELECT x.rid {inside.text}"), inside.values, few=True)

    def _inside(self, kind: str, item: Filter) -> Sql:
        """The rows of the index that meet a filter."""
        test = self._any(item)
        return Sql(
            f"FROM idx x WHERE x.type = ? AND x.param = ? AND ({test.text})", (kind, item.param.code, *test.values)
        )

    def _any(self, item: Filter) -> Sql:
        tests = [self._test(item, value) for value in item.values]
        return Sql(" OR ".join(f"({t.text})" for t in tests), tuple(v for t in tests for v in t.values))

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


def _is_in_index(item: Filter) -> bool:
    """Whether a filter is met by what rows of the index hold."""
    return item.chain is None and item.modifier not in ("missing", "not") and item.param.code != "_id"


def _both(first: Sql, second: Sql) -> Sql:
    return Sql(f"{first.text} AND {second.text}", (*first.values, *second.values))


def _number(value: Value) -> Sql:
    signs = {"eq": "=", "ne": "<>", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "sa": ">", "eb": "<"}
    unit = " AND x.v1 = ?" if value.text else ""
    return Sql(f"x.n1 {signs[value.prefix]} ?{unit}", (value.number, *([value.text] if value.text else [])))


def _literal(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _sort_key(sort: Sort) -> Sql:
    if sort.param in _OWN_COLUMNS:
        return Sql(_OWN_COLUMNS[sort.param])
    pick = "max" if sort.descending else "min"
    # A resource without a value comes last in both directions.
    last = "" if sort.descending else _LAST
    return Sql(f"COALESCE((SELECT {pick}(x.v1) FROM idx x WHERE x.rid = r.rid AND x.param = ?), ?)", (sort.param, last))


def _walk(query: Query, where: Sql, dialect: Dialect) -> list[Sql]:
    """The index in order, at the first value of each resource; then the resources without a value."""
    (sort,) = query.sort
    way, sign = ("DESC", ">") if sort.descending else ("ASC", "<")
    after, rid = (query.cursor[0], int(query.cursor[1])) if _checked(query) else (None, 0)
    further = "<" if sort.descending else ">"
    from_there, behind = Sql(""), Sql("")
    if after is not None:
        found = dialect.compare("x.v1", f"{further}=", after)
        from_there = Sql(f" AND {found.text}", found.values)
        behind = Sql(f" AND (x.v1 {further} ? OR r.rid > ?)", (after, rid))
    # Values that begin alike stand together in an index of beginnings, and are sorted there.
    begins = f"{dialect.indexed_column('x.v1')} {way}, " if dialect.indexed else ""
    other = "SELECT 1 FROM idx y WHERE y.rid = x.rid AND y.param = x.param"
    keyed = Sql(
        "SELECT r.rid, r.id, x.v1 AS k0 FROM idx x JOIN resource r ON r.rid = x.rid "
        f"WHERE x.type = ? AND x.param = ?{from_there.text} AND {where.text} "
        f"AND NOT EXISTS ({other} AND y.v1 {sign} x.v1{dialect.each}) "
        f"AND NOT EXISTS ({other} AND y.v1 = x.v1 AND y.v2 < x.v2{dialect.each})"
        f"{behind.text} ORDER BY {begins}x.v1 {way}, x.rid ASC LIMIT ?",
        (query.type, sort.param, *from_there.values, *where.values, *behind.values),
    )
    bare = Sql(
        f"SELECT r.rid, r.id, ? AS k0 FROM resource r WHERE {where.text} AND r.rid > ? "
        f"AND NOT EXISTS (SELECT 1 FROM idx x WHERE x.rid = r.rid AND x.param = ?{dialect.each}) "
        "ORDER BY r.rid ASC LIMIT ?",
        (_NO_VALUE, *where.values, rid if after == _NO_VALUE else 0, sort.param),
    )
    return [bare] if after == _NO_VALUE else [keyed, bare]


def _checked(query: Query) -> bool:
    """Whether there is a cursor, which fits the sort."""
    if query.cursor and len(query.cursor) != len(query.sort) + 1:
        raise SearchError("_cursor belongs to another search; follow the link next as it is")
    return bool(query.cursor)


def _after(sorts: Sequence[Sort], keys: Sequence[Sql], cursor: Sequence[str]) -> Sql:
    """Rows behind the one the page before ended with, in the order of the sort and then of rid."""
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
