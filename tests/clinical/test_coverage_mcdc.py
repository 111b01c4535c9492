"""The measure of MC/DC against its definitions, by all values of all conditions."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.coverage.mcdc import Pair, Record, Tree, children, evaluate, indices, measure, unmasked


def _numbered(tree: Tree, counter: list[int]) -> Tree:
    if isinstance(tree, int):
        counter[0] += 1
        return counter[0] - 1
    return (*tree[: 2 if tree[0] == "at_least" else 1], *(_numbered(c, counter) for c in children(tree)))


def _grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    operands = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        operands.map(lambda o: ("and", *o)),
        operands.map(lambda o: ("or", *o)),
        inner.map(lambda o: ("not", o)),
        operands.flatmap(lambda o: st.integers(1, len(o)).map(lambda k: ("at_least", k, *o))),
    )


TREES = st.recursive(st.just(0), _grown, max_leaves=5).map(lambda t: _numbered(t, [0]))


def _plain(tree: Tree, values: tuple[bool, ...]) -> bool:
    """The outcome without short circuit, by Python's own operators."""
    if isinstance(tree, int):
        return values[tree]
    found = [_plain(c, values) for c in children(tree)]
    return {"and": all, "or": any, "not": lambda f: not f[0]}.get(str(tree[0]), lambda f: sum(f) >= tree[1])(found)  # type: ignore[operator,no-untyped-call]


@settings(deadline=None, max_examples=60)
@given(TREES)
def test_short_circuit_changes_no_outcome(tree: Tree) -> None:
    count = len(list(indices(tree)))
    for values in product((False, True), repeat=count):
        record = evaluate(tree, values)
        assert record.outcome == _plain(tree, values)
        assert record.values & ~record.evaluated == 0
        # what was not evaluated cannot matter
        for others in product((False, True), repeat=count):
            merged = tuple(v if record.evaluated >> i & 1 else o for i, (v, o) in enumerate(zip(values, others)))  # noqa: B905
            assert _plain(tree, merged) == record.outcome


@settings(deadline=None, max_examples=60)
@given(TREES)
def test_unmasked_is_what_can_change_the_outcome(tree: Tree) -> None:
    count = len(list(indices(tree)))
    for values in product((False, True), repeat=count):
        record = evaluate(tree, values)
        for index in range(count):
            if not record.evaluated >> index & 1:
                assert not unmasked(tree, record) >> index & 1
                continue
            matters = False
            for others in product((False, True), repeat=count):
                merged = [v if record.evaluated >> i & 1 else o for i, (v, o) in enumerate(zip(values, others))]  # noqa: B905
                before = _plain(tree, tuple(merged))
                merged[index] = not merged[index]
                matters |= _plain(tree, tuple(merged)) != before
            assert bool(unmasked(tree, record) >> index & 1) == matters


@settings(deadline=None, max_examples=60)
@given(TREES, st.data())
def test_pairs_by_their_definition(tree: Tree, data: st.DataObject) -> None:
    count = len(list(indices(tree)))
    rows = st.tuples(*[st.booleans()] * count)
    records = [evaluate(tree, v) for v in data.draw(st.lists(rows, max_size=12))]
    found = measure(tree, count, enumerate(records))
    assert found.hits == len(records)
    for index, condition in enumerate(found.conditions):
        unique, masking = set(), set()
        for (i, a), (j, b) in product(enumerate(records), repeat=2):
            if a.value(index) is not True or b.value(index) is not False or a.outcome == b.outcome:
                continue
            rest = [(a.value(k), b.value(k)) for k in range(count) if k != index]
            if all(x is None or y is None or x == y for x, y in rest):
                unique.add(Pair(i, j))
            if unmasked(tree, a) & unmasked(tree, b) & 1 << index:
                masking.add(Pair(i, j))
        assert (condition.unique_cause is None) == (not unique) and (condition.unique_cause in unique or not unique)
        assert (condition.masking is None) == (not masking) and (condition.masking in masking or not masking)
        # a pair by unique cause is one by masking
        assert unique <= masking


@settings(deadline=None, max_examples=60)
@given(TREES)
def test_all_rows_cover_conditions_that_occur_once(tree: Tree) -> None:
    count = len(list(indices(tree)))
    rows = [(i, evaluate(tree, v)) for i, v in enumerate(product((False, True), repeat=count))]
    for condition in measure(tree, count, rows).conditions:
        assert condition.unique_cause is not None and condition.masking is not None


def test_the_textbook_example() -> None:
    """(a and b) or c: the four vectors of unique-cause MC/DC, and that three are too few."""
    tree: Tree = ("or", ("and", 0, 1), 2)
    rows = [(True, True, False), (False, True, False), (True, False, False), (True, False, True)]
    records = list(enumerate(evaluate(tree, row) for row in rows))
    assert [c.unique_cause for c in measure(tree, 3, records).conditions] == [Pair(0, 1), Pair(0, 2), Pair(3, 2)]
    assert [c.unique_cause for c in measure(tree, 3, records[:3]).conditions] == [Pair(0, 1), Pair(0, 2), None]
    assert records[0][1] == Record(0b011, 0b011, True)
