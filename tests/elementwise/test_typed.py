"""Casts between all element types, arithmetic and comparisons in each: engine, reference, NumPy or exact integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from elementwise_models import FLOATS, SIGNED, TYPES, UNSIGNED, Array, dtype_of, failures, model_of

from evidence.conformance.cases import Case

COUNT = 300


def extreme(rng: np.random.Generator, dtype: str) -> Array:
    """Values over the whole range of the type, with its edges and, for floating-point types, those of the integers."""
    target = dtype_of(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, COUNT).astype(bool)
    if dtype in FLOATS:
        values = rng.standard_normal(COUNT) * 10.0 ** rng.integers(-46, 45, COUNT)
        values[:12] = [np.nan, np.inf, -np.inf, 0, -0.0, 65519.9999, 65520, -65504, 6e-8, 2.0**63, -(2.0**63), 2.0**64]
        values[12:90] = rng.integers(-300, 300, 78) + 0.5 * rng.integers(0, 2, 78)
        with np.errstate(all="ignore"):
            return values.astype(target)
    row = np.iinfo(target)
    values = rng.integers(row.min, row.max, COUNT, dtype=target, endpoint=True)
    values[:4] = [row.min, row.max, 0, 1]
    return values


def cast(x: Array, to: str) -> Array:
    """What docs/arithmetic.md says of casts, element by element with Python's integers."""
    target = dtype_of(to)
    if to == "bool":
        return np.asarray(x.astype(np.float64) != 0) if x.dtype.kind not in "iu" else x != 0
    if to in FLOATS or x.dtype.kind in "iub":
        with np.errstate(all="ignore"):
            return x.astype(np.float64).astype(target) if to == "float16" else x.astype(target)
    row = np.iinfo(target)
    exact = [0 if v != v else v for v in x.astype(np.float64).tolist()]
    whole = [row.min if v <= row.min else row.max if v >= row.max else int(v) for v in exact]
    return np.array(whole, dtype=target)


def quotient(a: Array, b: Array) -> Array:
    """Towards zero; 0 for a division by zero; the lowest value divided by -1 wraps."""
    bits = 8 * a.dtype.itemsize
    out = []
    for n, d in zip(a.tolist(), b.tolist(), strict=True):
        q = 0 if d == 0 else abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1)
        q %= 1 << bits
        out.append(q - (1 << bits) if a.dtype.kind == "i" and q >> (bits - 1) else q)
    return np.array(out, dtype=a.dtype)


ARITHMETIC: dict[str, Callable[[Array, Array], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum, "Less": np.less,
    "LessOrEqual": np.less_equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Equal": np.equal,
}  # fmt: skip


def case_of_type(dtype: str) -> Case:
    rng = np.random.default_rng(TYPES.index(dtype))
    x, y = extreme(rng, dtype), extreme(rng, dtype)[::-1].copy()
    nodes, expected = [], {}
    for to in TYPES:
        code = onnx.helper.np_dtype_to_tensor_dtype(dtype_of(to))
        nodes.append(onnx.helper.make_node("Cast", ["x"], [f"to_{to}"], to=code, name=f"to_{to}"))
        expected[f"to_{to}"] = cast(x, to)
    with np.errstate(all="ignore"):
        for op, function in ARITHMETIC.items():
            if dtype != "bool" or op == "Equal":
                nodes.append(onnx.helper.make_node(op, ["x", "y"], [op], name=op))
                expected[op] = np.asarray(function(x, y))
        if dtype != "bool":
            nodes.append(onnx.helper.make_node("Div", ["x", "y"], ["Div"], name="Div"))
            expected["Div"] = np.asarray(x / y) if dtype in FLOATS else quotient(x, y)
    inputs = {"x": x, "y": y}
    return Case(dtype, "Cast", model_of(nodes, inputs, expected, {}, 21), inputs, expected, rtol=0.0, atol=0.0)


def test_every_type() -> None:
    assert failures([case_of_type(dtype) for dtype in TYPES]) == []


def test_a_wrong_expectation_is_found() -> None:
    case = case_of_type("int8")
    changed = {**case.expected, "Div": case.expected["Div"] + np.int8(1)}  # type: ignore[operator]
    (text,) = failures([Case("changed", "Cast", case.model, case.inputs, changed, rtol=0.0, atol=0.0)])
    assert "output 'Div'" in text


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_quotient_is_numpys_where_numpy_has_one(dtype: str) -> None:
    """The yardstick of this file itself."""
    rng = np.random.default_rng(1)
    a, b = extreme(rng, dtype), extreme(rng, dtype)
    plain = (b != 0) & ~((b == -1) & (a == np.iinfo(dtype).min)) if dtype in SIGNED else b != 0
    a, b = a[plain], b[plain]
    assert (quotient(a, b) == (a - np.fmod(a, b)) // b).all()
