"""Reductions of every element type through compiled engines, against NumPy in wider types, at several opsets."""

from __future__ import annotations

import numpy as np
from made_cases import Array, case, ints, random_array

from evidence.conformance import Case, Kind, run_jobs

FLOATS = ("float32", "float64", "float16", "bfloat16")
SUMMED = ("int32", "int64", "uint32", "uint64")
ORDERED = (*SUMMED, "int8", "uint8", "bool")


def wide(x: Array) -> Array:
    return x.astype(np.longdouble) if x.dtype.name in FLOATS else x


def reduced(op: str, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """By NumPy; integers wrap in their type, means of integers truncate."""
    kind = op.removeprefix("Reduce")
    if kind in ("Max", "Min"):
        if x.dtype == np.bool_:
            return np.asarray((np.any if kind == "Max" else np.all)(x, axis=axes, keepdims=keepdims))
        return np.asarray((np.max if kind == "Max" else np.min)(x, axis=axes, keepdims=keepdims))
    v = wide(x)
    with np.errstate(all="ignore"):
        if kind in ("L1", "L2", "SumSquare"):
            v = np.abs(v) if kind == "L1" else v * v
        if kind == "LogSumExp":
            v = np.exp(v)
        if kind == "Prod":
            total = np.prod(v, axis=axes, keepdims=keepdims, dtype=v.dtype)
        else:
            total = np.sum(v, axis=axes, keepdims=keepdims, dtype=v.dtype)
        if kind == "Mean":
            count = int(np.prod([x.shape[a] for a in axes]))
            total = total / count if x.dtype.name in FLOATS else np.trunc(total.astype(np.longdouble) / count)
        if kind == "L2":
            total = np.sqrt(total.astype(np.longdouble) if x.dtype.name in FLOATS else total.astype(np.float64))
        if kind in ("LogSum", "LogSumExp"):
            total = np.log(total)
    return np.asarray(total).astype(x.dtype)


def tolerance(dtype: str) -> dict[str, float]:
    return {
        "float64": {"rtol": 1e-13, "atol": 1e-14},
        "float32": {"rtol": 2e-6, "atol": 1e-6},
        "float16": {"rtol": 2e-3, "atol": 1e-3},
        "bfloat16": {"rtol": 1.6e-2, "atol": 1e-2},
    }.get(dtype, {"rtol": 0, "atol": 0})


def _case(name: str, op: str, dtype: str, rng: np.random.Generator, run_time: bool, opset: int = 20) -> Case:
    rank = int(rng.integers(1, 5))
    x = random_array(rng, [*rng.integers(2, 5, rank - 1), rng.choice([3, 17, 150])], dtype)
    if op == "ReduceLogSum" or (op == "ReduceL2" and dtype not in FLOATS):
        x = np.abs(x) if dtype in FLOATS else (x % 30).astype(x.dtype)
    axes = tuple(sorted(int(a) for a in rng.permutation(rank)[: rng.integers(1, rank + 1)]))
    keepdims = bool(rng.integers(0, 2))
    want = {"y": reduced(op, x, axes, keepdims)}
    named = [a - rank * int(rng.integers(0, 2)) for a in axes]
    attrs = {"keepdims": int(keepdims)}
    if opset < (13 if op == "ReduceSum" else 18):
        return case(name, op, {"x": x}, want, attrs={**attrs, "axes": named}, opset=opset, **tolerance(dtype))
    inputs = {"x": x, "axes": ints(*named)}
    constants = [] if run_time else ["axes"]
    return case(name, op, inputs, want, attrs=attrs, opset=opset, constants=constants, **tolerance(dtype))


def all_cases(rounds: int) -> list[Case]:
    rng = np.random.default_rng(11)
    plain = "ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare".split()
    jobs = [(op, dtype) for op in plain for dtype in (*FLOATS, *SUMMED)]
    jobs += [(op, dtype) for op in ("ReduceMax", "ReduceMin") for dtype in (*FLOATS, *ORDERED)]
    jobs += [(op, dtype) for op in ("ReduceLogSum", "ReduceLogSumExp") for dtype in FLOATS]
    made = [
        _case(f"{op}_{dtype}_{n}", op, dtype, rng, run_time=bool(n % 2)) for n in range(rounds) for op, dtype in jobs
    ]
    made += [_case(f"{op}_11", op, "float32", rng, False, opset=11) for op in (*plain, "ReduceMax")]
    return made


def test_reductions() -> None:
    outcomes = run_jobs([(c, "as-is") for c in all_cases(1)])
    assert [(o.name, o.kind, o.detail) for o in outcomes if o.kind is not Kind.PASSED] == []
    assert len(outcomes) > 70


def test_without_axes() -> None:
    """None or empty means all axes or, with noop_with_empty_axes, the steps around the sum on every element."""
    x = np.array([[1.5, -2.0], [0.25, 3.0]], dtype=np.float32)
    noop = {"noop_with_empty_axes": 1}
    cases = [
        case("all_sum", "ReduceSum", {"x": x}, {"y": np.array([[2.75]], np.float32)}),
        case("all_flat", "ReduceSum", {"x": x}, {"y": np.array(2.75, np.float32)}, attrs={"keepdims": 0}),
        case("noop_sum", "ReduceSum", {"x": x}, {"y": x}, attrs=noop),
        case("noop_l1", "ReduceL1", {"x": x}, {"y": np.abs(x)}, attrs=noop),
        case("noop_square", "ReduceSumSquare", {"x": x, "a": ints()}, {"y": x * x}, attrs=noop),
        case("noop_log", "ReduceLogSum", {"x": np.abs(x)}, {"y": np.log(np.abs(x))}, attrs=noop),
        case("empty_all", "ReduceMax", {"x": x, "a": ints()}, {"y": np.array([[3.0]], np.float32)}),
        case("scalar", "ReduceMean", {"x": np.array(2.5, np.float64)}, {"y": np.array(2.5, np.float64)}),
        case("no_elements", "ReduceMin", {"x": np.zeros((2, 0), np.int32), "a": ints(1)},
             {"y": np.full((2, 1), 2**31 - 1, np.int32)}),
    ]  # fmt: skip
    outcomes = run_jobs([(c, "as-is") for c in cases])
    assert [(o.name, o.kind, o.detail) for o in outcomes if o.kind is not Kind.PASSED] == []


def test_negative_zero_and_nan() -> None:
    """A sum of -0 only is +0 (absent lanes add +0), an extreme keeps the first of equals and NaN wins."""
    zeros = np.full((2, 3), -0.0, np.float32)
    mixed = np.array([[1.0, np.nan, 5.0], [0.0, -0.0, 0.0]], np.float64)
    cases = [
        case("zeros", "ReduceSum", {"x": zeros, "a": ints(1)}, {"y": np.zeros((2, 1), np.float32)}),
        case("nan", "ReduceMax", {"x": mixed, "a": ints(1)}, {"y": np.array([[np.nan], [0.0]])}),
        case("nan_min", "ReduceMin", {"x": mixed, "a": ints(1)}, {"y": np.array([[np.nan], [0.0]])}),
    ]
    outcomes = run_jobs([(c, "as-is") for c in cases])
    assert [(o.name, o.kind, o.detail) for o in outcomes if o.kind is not Kind.PASSED] == []
