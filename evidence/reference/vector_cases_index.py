"""Vectors of indexing, ordering, counting and trees (CA-1.4): duplicates, ties, NaN, places outside, element types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evidence.reference.vector_cases import Case, binary32, given, integers, random
from evidence.reference.vector_model import VectorInput

VERSION = "CA-1.4"
SPECIAL = [np.nan, 1.0, -0.0, 0.0, -np.inf, np.inf, 1.0, np.nan, 1e-40, -2.0, 0.5, -2.0]
"""Ties, both zeros, infinities, a subnormal number and two NaN."""


def _case(name: str, op: str, inputs: Sequence[VectorInput], opset: int = 21, output: int = 0, **attrs: Any) -> Case:
    return Case(name, op, attrs, tuple(inputs), opset, VERSION, output=output)


def _places(name: str, values: Sequence[int], *shape: int, dtype: str = "int64") -> VectorInput:
    named = {} if dtype == "int64" else {"dtype": dtype}
    return VectorInput(name, shape, False, {"values": list(values), **named})


def gathers() -> Iterator[Case]:
    """Reading by index."""
    for dtype in ("float32", "float64", "float16", "bfloat16", "int8", "uint64", "bool"):
        values = [n % 2 if dtype[0] in "ub" else n % 5 - 2 for n in range(12)]
        where = _places("i", [2, -1, 0, -3, 0, 1], 2, 3, dtype="int32" if dtype == "float64" else "int64")
        yield _case(f"gather_{dtype}", "Gather", [given("x", values, 3, 4, dtype=dtype), where], axis=0)
    x = given("x", SPECIAL, 3, 4)
    far = 2**62
    for label, one, many, tuples, batch in (
        ("", [3, 3, -4, 0], [0, 3, -2, -4, 1, 1], [0, 3, -1, -4, 2, 0], [1, -1, 3]),
        ("_outside", [3, 4, -5, far], [0, 7, -2, -8, -far, 1], [0, 3, -1, -9, 5, 0], [1, -1, 9]),
    ):
        yield _case(f"gather_axis_1{label}", "Gather", [x, _places("i", one, 4)], axis=1)
        yield _case(f"gather_elements{label}", "GatherElements", [x, _places("i", many, 2, 3)], axis=1)
        yield _case(f"gather_nd{label}", "GatherND", [x, _places("i", tuples, 3, 2)])
        yield _case(f"gather_nd_batch{label}", "GatherND", [x, _places("i", batch, 3, 1)], batch_dims=1)
    yield _case("gather_nd_slices", "GatherND", [x, _places("i", [2, 0, -3], 3, 1)])


def scatters() -> Iterator[Case]:
    """Writing by index: duplicates in order, places outside."""
    inside, outside = [1, 1, 0, -1, 1, 2, -3, 0], [1, 1, 0, -1, 1, 9, -4, -(2**62)]
    for reduction in ("none", "add", "mul", "max", "min"):
        for dtype in ("float32", "float64", "float16", "int8"):
            x, u = random("x", 3, 4, dtype=dtype), random("u", 2, 4, dtype=dtype)
            if dtype == "int8":
                x, u = given("x", range(-6, 6), 3, 4, dtype=dtype), given("u", range(30, 38), 2, 4, dtype=dtype)
            operands = [x, _places("i", inside, 2, 4), u]
            yield _case(
                f"scatter_elements_{reduction}_{dtype}", "ScatterElements", operands, axis=0, reduction=reduction
            )
        tuples = _places("i", [0, 1, 0, 1, 2, -1, 1, 0], 4, 2)
        operands = [random("x", 3, 4), tuples, random("u", 4)]
        yield _case(f"scatter_nd_{reduction}", "ScatterND", operands, reduction=reduction)
    operands = [given("x", SPECIAL, 3, 4), _places("i", outside, 2, 4), random("u", 2, 4)]
    yield _case("scatter_elements_outside", "ScatterElements", operands, axis=0, reduction="max")
    operands = [given("x", SPECIAL, 3, 4), _places("i", [0, 4, 3, 0, -4, 1, 1, 1], 4, 2), random("u", 4)]
    yield _case("scatter_nd_outside", "ScatterND", operands, reduction="min")
    operands = [random("x", 3, 2, 4), _places("i", [1, -3, 1], 3, 1), random("u", 3, 2, 4)]
    yield _case("scatter_nd_slices", "ScatterND", operands)
    for mode, first in (("linear", [2, 1]), ("circular", [3, 1])):
        operands = [random("x", 2, 4, 3), random("u", 2, 2, 3), _places("i", first, 2)]
        yield _case(f"tensor_scatter_{mode}", "TensorScatter", operands, opset=24, mode=mode)


def orders() -> Iterator[Case]:
    """TopK, ArgMax, ArgMin, cumulative sums."""
    for largest in (0, 1):
        for dtype in ("float32", "float64", "float16", "bfloat16", "int8", "uint16"):
            special = "float" in dtype and dtype != "bfloat16"
            values = SPECIAL if special else [3, 1, 3, 0, 7, 7, 1, 2, 5, 5, 3, 0]
            for output in (0, 1):
                operands = [given("x", values, dtype=dtype), integers("k", [9])]
                label = f"topk_{('smallest', 'largest')[largest]}_{dtype}_{('values', 'indices')[output]}"
                yield _case(label, "TopK", operands, opset=24, output=output, largest=largest)
    yield _case("topk_axis_0", "TopK", [random("x", 40, 3), integers("k", [7])], output=1, axis=0)
    for op in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            for axis in (0, 1):
                flags = {"axis": axis, "select_last_index": last, "keepdims": last}
                plain = given("x", [1, 3, 3, -2, -2, 3, 1, -2, 1, 1, 3, 3], 3, 4)
                yield _case(f"{op.lower()}_{axis}_{last}", op, [plain], **flags)
                yield _case(f"{op.lower()}_special_{axis}_{last}", op, [given("x", SPECIAL, 3, 4)], **flags)
        yield _case(f"{op.lower()}_bfloat16", op, [given("x", [1, 2, 2, -3, -3, 0], 2, 3, dtype="bfloat16")], axis=1)
    for op in ("CumSum", "CumProd"):
        for exclusive in (0, 1):
            for reverse in (0, 1):
                x = random("x", 5, 9, kind="positive", shift=0)
                flags = {"exclusive": exclusive, "reverse": reverse}
                yield _case(f"{op.lower()}_{exclusive}{reverse}", op, [x, integers("a", [1])], opset=26, **flags)
        for dtype in ("float64", "float16", "int32", "int64"):
            x = random("x", 7, 2, dtype=dtype) if "float" in dtype else given("x", range(90, 104), 7, 2, dtype=dtype)
            yield _case(f"{op.lower()}_{dtype}", op, [x, integers("a", [0])], opset=26)
    yield _case("cumsum_zeros", "CumSum", [given("x", [-0.0, -0.0, 0.0, -0.0]), integers("a", [0])])


def counts() -> Iterator[Case]:
    """Results whose size depends on the data, and pooling indices."""
    yield _case("nonzero", "NonZero", [given("x", SPECIAL, 3, 4)])
    yield _case("nonzero_bool", "NonZero", [given("x", [1, 0, 0, 1, 1, 0], 3, 2, dtype="bool")])
    values = [2.0, -0.0, 5.0, 2.0, 0.0, -1.0, 5.0]
    for output, label in enumerate(("values", "indices", "inverse", "counts")):
        yield _case(f"unique_{label}", "Unique", [given("x", values)], output=output)
        yield _case(f"unique_special_{label}", "Unique", [given("x", [np.nan, *values, np.nan])], output=output)
        yield _case(f"unique_{label}_int8", "Unique", [given("x", [3, -1, 3, 3, 0, -1], dtype="int8")], output=output)
    boxes = [0, 0, 1, 1, 1, 1.1, 0, 0.1, 0, 0.1, 1, 1.1, 0, 10, 1, 11, 1, 11.1, 0, 10.1, 0, 10, 1, 11]
    scores = [0.9, 0.75, 0.6, 0.9, 0.5, 0.9, 0.1, 0.9, 0.9, np.nan, 0.3, 0.95]
    for center in (0, 1):
        for n, (overlap, lowest) in enumerate(((0.5, 0.0), (0.0, 0.55), (0.9, 0.2))):
            operands = [given("b", boxes, 1, 6, 4), given("s", scores, 1, 2, 6), integers("m", [3])]
            operands += [given("o", [overlap], 1), given("l", [lowest], 1)]
            yield _case(f"nms_{center}_{n}", "NonMaxSuppression", operands, center_point_box=center)
    ties = [float(n % 4) for n in range(40)]
    some = [np.nan if n in (13, 14, 30) else v for n, v in enumerate(ties)]
    window: dict[str, Any] = {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 1]}
    for order in (0, 1):
        for label, values in (("", ties), ("special_", some)):
            x = given("x", values, 1, 2, 4, 5)
            yield _case(f"max_pool_indices_{label}{order}", "MaxPool", [x], output=1, storage_order=order, **window)
    yield _case("trilu_upper", "Trilu", [random("x", 2, 4, 5), _places("k", [-1], 1)])
    yield _case("trilu_lower", "Trilu", [given("x", range(20), 4, 5, dtype="int16"), _places("k", [2], 1)], upper=0)
    yield _case("einsum_matmul", "Einsum", [random("a", 3, 70), random("b", 70, 4)], equation="ij,jk->ik")
    yield _case("einsum_sum_first", "Einsum", [random("a", 3, 5), random("b", 40, 5)], equation="ij,kj->i")
    operands = [random("a", 1, 2, 3, 20), random("b", 1, 2, 4, 20)]
    yield _case("einsum_attention", "Einsum", operands, equation="bhqd,bhkd->bhqk")


def trees() -> Iterator[Case]:
    """Two trees in every aggregation; the sum tells binary64 from binary32."""
    nodes = {
        "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2, 3, 4],
        "nodes_featureids": [0, 0, 0, 1, 0, 2, 0, 0], "nodes_values": [0.25, 0, 0, -0.5, 0, 0.0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_GT", "LEAF", "BRANCH_NEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0, 2, 0, 3, 0, 0], "nodes_falsenodeids": [2, 0, 0, 1, 0, 4, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 1, 0, 0],
        "target_treeids": [0, 0, 0, 1, 1, 1], "target_nodeids": [1, 1, 2, 1, 3, 4], "target_ids": [0, 1, 1, 0, 1, 0],
        "target_weights": [binary32(w) for w in (0.1, 0.2, -0.3, 1e-8, 0.7, -1e-9)],
    }  # fmt: skip
    rows = [0.5, -1.0, 0.0, np.nan, 0.0, 1.0, 0.25, np.nan, np.nan, -2.0, 1.0, np.nan]
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        for dtype in ("float32", "float64"):
            attrs = {**nodes, "n_targets": 2, "aggregate_function": how, "base_values": [0.125, -0.5]}
            x = given("x", rows, 4, 3, dtype=dtype)
            yield Case(
                f"trees_{how.lower()}_{dtype}", "TreeEnsembleRegressor", attrs, (x,), 3, VERSION, domain="ai.onnx.ml"
            )


def index() -> Iterator[Case]:
    """The whole family."""
    for family in (gathers, scatters, orders, counts, trees):
        yield from family()
