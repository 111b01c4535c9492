"""The algebra of sizes against integers: every form evaluates to what its construction says, and reads back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_kernels.errors import IRError
from compiler_kernels.ir.dims import (
    Expr,
    Size,
    as_dim,
    ceildiv,
    evaluate,
    floordiv,
    maximum,
    minimum,
    quotient,
    substitute,
    symbol,
)
from compiler_kernels.ir.dims_text import parse_dim

NAMES = ("batch", "height", "w.1")
Tree = tuple[str, "Tree | int | str", "Tree | int | str"]
leaves = st.one_of(st.integers(-40, 40), st.sampled_from(NAMES))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
        st.tuples(st.sampled_from(["//", "%", "ceildiv"]), inner, st.integers(-9, 9).filter(bool)),
        st.tuples(st.sampled_from(["//", "%"]), inner, st.sampled_from(NAMES)),
    ),
    max_leaves=7,
)
bindings = st.fixed_dictionaries({name: st.integers(1, 50) for name in NAMES})
OPS: dict[str, Callable[[Size, Size], Size]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: floordiv(a, b),
    "%": lambda a, b: a % b,
    "min": lambda a, b: minimum(a, b),
    "max": lambda a, b: maximum(a, b),
    "ceildiv": lambda a, b: ceildiv(a, b),
}
PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
    "ceildiv": lambda a, b: -(-a // b),
}


def built(tree: object) -> Size:
    if isinstance(tree, str):
        return symbol(tree)
    if isinstance(tree, int):
        return tree
    op, a, b = tree  # type: ignore[misc]
    return OPS[op](built(a), built(b))


def plain(tree: object, values: dict[str, int]) -> int:
    if isinstance(tree, str):
        return values[tree]
    if isinstance(tree, int):
        return tree
    op, a, b = tree  # type: ignore[misc]
    return PLAIN[op](plain(a, values), plain(b, values))


@given(trees, bindings)
@settings(max_examples=400, deadline=None)
def test_forms_evaluate_as_integers_do(tree: object, values: dict[str, int]) -> None:
    size = built(tree)
    assert evaluate(size, values) == plain(tree, values)
    assert substitute(size, values) == plain(tree, values)


@given(trees)
@settings(max_examples=400, deadline=None)
def test_text_reads_back(tree: object) -> None:
    size = built(tree)
    again = parse_dim(str(size))
    assert str(again) == str(size)
    assert as_dim(again) == (size if isinstance(size, int) else str(size))


@given(trees, trees)
@settings(max_examples=200, deadline=None)
def test_forms_do_not_depend_on_the_order_of_operands(a: object, b: object) -> None:
    x, y = built(a), built(b)
    assert str(x + y) == str(y + x)
    assert str(x * y) == str(y * x)
    assert str((x + y) - y) == str(x)
    assert str(minimum(x, y, x)) == str(minimum(y, x))
    assert str(floordiv(12 * x + 5, 4)) == str(3 * x + 1)


def test_known_forms() -> None:
    h, b = symbol("height"), symbol("batch")
    assert str((h + 1) // 2 * 3) == "3 * ((height + 1) // 2)"
    assert str(h // 2 // 2) == "height // 4"
    assert str((h // 2 + b) // 3) == "(2 * batch + height) // 6"
    assert str((6 * h + 9) // 4) == "height + height // 2 + 2"
    assert str(-(h // 2)) == "-(height // 2)"
    assert str(h % 32) == "height - 32 * (height // 32)"
    assert (b * h * 3) // (3 * h) is not None and str((b * h * 3) // (3 * h)) == "batch"
    assert (h - h + 3) == 3 and isinstance(h - h + 3, int)
    assert quotient(h * h + 3 * h + 2, h + 1) is not None and str(quotient(h * h + 3 * h + 2, h + 1)) == "height + 2"
    assert quotient(h + 1, b) is None


@pytest.mark.parametrize("text", ["", "a +", "(a", "a b", "1 // 0", "a $ b", "min()", "ceildiv(a)", "a, b", "(" * 3000])
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(IRError, match="size"):
        parse_dim(text)


def test_expressions_are_immutable() -> None:
    h = symbol("height")
    with pytest.raises(AttributeError, match="immutable"):
        h.text = "x"
    assert isinstance(h, Expr) and len({h, symbol("height")}) == 1
    with pytest.raises(TypeError, match="not a size"):
        as_dim(1.5)
