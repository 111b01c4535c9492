"""The plain functions for FHIRPath give what fhirpathpy gives, for every expression of the definitions served here."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_registry_validation import DEVICE

from benchmarks.registry_home import model
from fhir_registry.definitions.types import r5
from fhir_registry.search.parameters import SERVED, parameters_of
from fhir_registry.validation.paths import _plain, _UnsureError, compiled, evaluate


def expressions() -> list[str]:
    """Of the invariants and search parameters of every served type and of the types within them."""
    found: dict[str, None] = {}
    waiting, seen = list(SERVED), set()
    while waiting:
        structure = r5().structure(name := waiting.pop())
        if name in seen or structure is None:
            continue
        seen.add(name)
        for element in structure.elements.values():
            found.update(dict.fromkeys(rule.expression for rule in element.constraints))
            waiting += [kind.code for kind in element.kinds]
    for kind in SERVED:
        found.update(dict.fromkeys(item.expression for item in parameters_of(kind).values()))
    return list(found)


def plain(expression: str, value: Any) -> list[Any] | None:
    step = _plain(expression)
    try:
        return None if step is None else step([value])
    except _UnsureError:
        return None


def engine(expression: str, value: Any) -> list[Any] | None:
    path = compiled(expression)
    try:
        return None if path is None else list(path(value, {"resource": value, "rootResource": value}))
    except Exception:
        return None


def compared(expression: str, value: Any) -> bool:
    """Whether both answer; then both answer the same."""
    ours, theirs = plain(expression, value), engine(expression, value)
    if ours is None or theirs is None:
        return False
    assert ours == theirs, (expression, value)
    return True


ALL = expressions()


def test_resources_give_the_same() -> None:
    for resource in (DEVICE, model(7), model(10)):
        for expression in ALL:
            compared(expression, resource)
        mine = [item.expression for item in parameters_of("DeviceDefinition").values()]
        assert [e for e in mine if plain(e, resource) is None and e != "id"] == []  # nothing waits for the engine


def test_most_expressions_are_plain() -> None:
    beyond = [expression for expression in ALL if _plain(expression) is None]
    assert len(beyond) < len(ALL) / 5, beyond


texts = st.sampled_from(["x", "", "http://x", "#a", "home", "Reference", "constraint", "A1", "a b"])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_values_give_the_same(data: st.DataObject) -> None:
    expression = data.draw(st.sampled_from(ALL))
    names = sorted({name for name in re.findall(r"[a-z]\w*", expression) if name not in ("exists", "empty", "not")})
    if len(names) > 30:
        names = names[:30]
    leaves = st.one_of(texts, st.booleans(), st.integers(0, 3))
    values = st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.dictionaries(st.sampled_from(names or ["x"]), inner, min_size=1, max_size=4),
            st.lists(st.dictionaries(st.sampled_from(names or ["x"]), inner, min_size=1), min_size=1, max_size=3),
        ),
        max_leaves=12,
    )
    value = data.draw(st.dictionaries(st.sampled_from(names or ["x"]), values, min_size=1, max_size=6))
    compared(expression, value)


@pytest.mark.parametrize(
    ("expression", "value", "wanted"),
    [
        ("a.exists() implies b.exists()", {"a": 1}, [False]),
        ("a.b = 'x'", {"a": [{"b": "x"}]}, [True]),
        ("a.where(b = 'x').c", {"a": [{"b": "x", "c": 1}, {"b": "y", "c": 2}]}, [1]),
        ("(a | b).first()", {"b": ["x", "y"]}, ["x"]),
        ("a.exists()", {"_a": {"id": "1"}}, [True]),
        ("a.all(b = 'x')", {"a": []}, [True]),
        ("a > 1", {"a": 2}, [True]),
        ("a.count()", {"a": [1, 2]}, [2]),
    ],
)
def test_values(expression: str, value: Any, wanted: list[Any]) -> None:
    assert evaluate(expression, value, {}) == wanted
    assert engine(expression, value) == wanted


def test_what_no_engine_parses_is_said() -> None:
    assert evaluate("'x", {}, {}) is None
