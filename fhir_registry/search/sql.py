"""A query as SQL over the tables ``resource`` and ``idx`` (``fhir_registry.store.tables``).

Text for any database with ``?`` as placeholder; values never enter the text. Rows are found either from the index
(``IN``) or by walking resources in order and asking the index about each (``EXISTS``): the first is fast where few
match, the second where many do and a page needs some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fhir_registry.search.extract import local_target
from fhir_registry.search.query import Filter, Query, SearchError, Sort, Value

MANY: Final = 2000
Probe = Callable[[str, Sequence[Any]], int]
"""How many rows (at most ``MANY``) an index condition finds."""


@dataclass(frozen=True)
class Sql:
    text: str
    values: tuple[Any, ...] = ()


def page_sql(query: Query, probe: Probe) -> Sql:
    """Columns rid, id and one key for each of ``query.sort``; ``count + 1`` rows in order."""
    conditions = [
        Sql("r.type = ? AND r.deleted = 0", (query.type,)),
        *(_condition(query.type, f, probe) for f in query.filters),
    ]
    keys = [_sort_key(query.type, sort) for sort in query.sort]
    if query.cursor:
        conditions.append(_after(query.sort, keys, query.cursor))
    where = " AND ".join(c.text for c in conditions)
    order = ", ".join([*(f"k{n} {'DESC' if s.descending else 'ASC'}" for n, s in enumerate(query.sort)), "r.rid ASC"])
    columns = "".join(f", {key.text} AS k{n}" for n, key in enumerate(keys))
    values = [v for key in keys for v in key.values] + [v for c in conditions for v in c.values]
    text = f"SELECT r.rid, r.id{columns} FROM resource r WHERE {where} ORDER BY {order} LIMIT ?"
    return Sql(text, (*values, query.count + 1))


def count_sql(query: Query, probe: Probe) -> Sql:
    """How many resources match in all."""
    conditions = [
        Sql("r.type = ? AND r.deleted = 0", (query.type,)),
        *(_condition(query.type, f, probe) for f in query.filters),
    ]
    text = " AND ".join(c.text for c in conditions)
    return Sql(f"SELECT count(*) FROM resource r WHERE {text}", tuple(v for c in conditions for v in c.values))


def _condition(kind: str, item: Filter, probe: Probe, r: str = "r") -> Sql:
    """The condition on a resource of type ``kind`` whose row has the alias ``r``."""
    if item.chain is not None:
        target, inner = item.chain
        found = _condition(target, inner, probe, "t")
        text = (
            f"{r}.rid IN (SELECT c.rid FROM idx c JOIN resource t ON c.v1 = t.type || '/' || t.id "
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
    tests = [_test(item, value) for value in item.values]
    test = " OR ".join(f"({t.text})" for t in tests)
    values = tuple(v for t in tests for v in t.values)
    exists = Sql(f"EXISTS (SELECT 1 FROM idx x WHERE x.rid = {r}.rid AND x.param = ? AND ({test}))", (code, *values))
    if item.modifier == "not":
        return Sql(f"NOT {exists.text}", exists.values)
    inside = f"FROM idx x WHERE x.type = ? AND x.param = ? AND ({test})"
    few = code == "identifier" or probe(f"SELECT 1 {inside} LIMIT {MANY}", (kind, code, *values)) < MANY
    return Sql(f"{r}.rid IN (SELECT x.rid {inside})", (kind, code, *values)) if few else exists


def _test(item: Filter, value: Value) -> Sql:
    kind, modifier = item.param.type, item.modifier
    if kind == "token":
        if value.system is None:
            return Sql("x.v1 = ?", (value.text,))
        if not value.text:
            return Sql("x.v2 = ?", (value.system,))
        return Sql("x.v1 = ? AND x.v2 = ?", (value.text, value.system))
    if kind == "string":
        if modifier == "exact":
            return Sql("x.v2 = ?", (value.text,))
        if modifier == "contains":
            return Sql("x.v1 LIKE ? ESCAPE '!'", (f"%{_literal(value.text)}%",))
        # A range, unlike LIKE, uses the index.
        return Sql("x.v1 >= ? AND x.v1 < ?", (value.text, value.text + "\U0010ffff"))
    if kind == "reference":
        if "://" in value.text or value.text.startswith("urn:"):
            return Sql("x.v2 = ?", (value.text,))
        if local_target(value.text) is not None:
            return Sql("x.v1 = ?", ("/".join(local_target(value.text) or ()),))
        targets = sorted(item.param.target)
        if not targets:
            return Sql("x.v2 = ?", (value.text,))
        marks = ", ".join("?" for _ in targets)
        return Sql(f"x.v1 IN ({marks})", tuple(f"{target}/{value.text}" for target in targets))
    if kind == "uri":
        if modifier == "below":
            return Sql("x.v1 >= ? AND x.v1 < ?", (value.text, value.text + "\U0010ffff"))
        return Sql("x.v1 = ?", (value.text,))
    if kind == "date":
        return _date(value)
    return _number(value)


def _date(value: Value) -> Sql:
    """The range of the resource, v1 to v2, against that of the search (search.html, prefixes)."""
    low, high = value.text, value.high
    tests = {
        "eq": Sql("x.v1 >= ? AND x.v2 <= ?", (low, high)),
        "ne": Sql("NOT (x.v1 >= ? AND x.v2 <= ?)", (low, high)),
        "gt": Sql("x.v2 > ?", (high,)),
        "lt": Sql("x.v1 < ?", (low,)),
        "ge": Sql("(x.v2 > ? OR (x.v1 >= ? AND x.v2 <= ?))", (high, low, high)),
        "le": Sql("(x.v1 < ? OR (x.v1 >= ? AND x.v2 <= ?))", (low, low, high)),
        "sa": Sql("x.v1 >= ?", (high,)),
        "eb": Sql("x.v2 <= ?", (low,)),
    }
    return tests[value.prefix]


def _number(value: Value) -> Sql:
    signs = {"eq": "=", "ne": "<>", "gt": ">", "lt": "<", "ge": ">=", "le": "<=", "sa": ">", "eb": "<"}
    unit = " AND x.v1 = ?" if value.text else ""
    return Sql(f"x.n1 {signs[value.prefix]} ?{unit}", (value.number, *([value.text] if value.text else [])))


def _literal(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _sort_key(kind: str, sort: Sort) -> Sql:
    if sort.param == "_lastUpdated":
        return Sql("r.updated")
    if sort.param == "_id":
        return Sql("r.id")
    pick = "max" if sort.descending else "min"
    # A resource without a value comes last in both directions.
    last = "" if sort.descending else "\U0010ffff"
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
