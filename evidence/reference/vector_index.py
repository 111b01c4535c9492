"""Reference graphs of the indexing, ordering, counting and classical operators, for their vectors (since CA-1.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefGraph
from evidence.reference.interpreter import interpret
from evidence.reference.vector_graph import GraphOf
from evidence.reference.vector_model import Array, OnnxParts

Built = tuple[RefGraph, dict[str, Array]]


def _lookup(op: str, axis: int | None) -> Callable[[OnnxParts], Built]:
    """Gather and Scatter in their forms: one node; with a reduction half types widen."""

    def build(parts: OnnxParts) -> Built:
        g, a = GraphOf(parts), parts.attributes
        names = list(parts.inputs)
        x = g.shapes[names[0]]
        attrs: dict[str, Any] = {} if axis is None else {"axis": int(a.get("axis", axis)) % len(x)}
        shape: Sequence[int] = x
        if op == "gather":
            shape = (*x[: attrs["axis"]], *g.shapes[names[1]], *x[attrs["axis"] + 1 :])
        elif op == "gather_elements":
            shape = g.shapes[names[1]]
        elif op == "gather_nd":
            attrs["batch_dims"] = int(a.get("batch_dims", 0))
            where = g.shapes[names[1]]
            shape = (*where[:-1], *x[attrs["batch_dims"] + where[-1] :])
        elif op == "tensor_scatter":
            attrs["mode"] = a.get("mode", "linear")
        else:
            attrs["reduction"] = a.get("reduction", "none")
        dtype = ""
        if attrs.get("reduction", "none") != "none":
            names[0], names[2] = g.wide(names[0]), g.wide(names[2])
            dtype = g.types[parts.inputs[0]]
        return g.finish(g.node(op, names, shape, **attrs), dtype)

    return build


def _top_k(parts: OnnxParts) -> Built:
    g, x = GraphOf(parts), parts.inputs[0]
    shape = list(g.shapes[x])
    axis = int(parts.attributes.get("axis", -1)) % len(shape)
    shape[axis] = k = int(g.arrays[parts.inputs[1]][0])
    largest = bool(parts.attributes.get("largest", 1))
    found = g.node("topk_indices", [g.wide(x)], shape, "int64", axis=axis, k=k, largest=largest)
    return g.finish(found if parts.output_index else g.node("gather_elements", [x, found], shape, axis=axis))


def _arg(op: str) -> Callable[[OnnxParts], Built]:
    def build(parts: OnnxParts) -> Built:
        g, a = GraphOf(parts), parts.attributes
        x = g.wide(parts.inputs[0])
        shape = list(g.shapes[x])
        axis, keep = int(a.get("axis", 0)) % len(shape), bool(a.get("keepdims", 1))
        shape[axis : axis + 1] = [1] if keep else []
        last = bool(a.get("select_last_index", 0))
        return g.finish(g.node(op, [x], shape, "int64", axis=axis, keepdims=keep, select_last=last))

    return build


def _running(op: str) -> Callable[[OnnxParts], Built]:
    def build(parts: OnnxParts) -> Built:
        g, a = GraphOf(parts), parts.attributes
        x = g.wide(parts.inputs[0])
        axis = int(g.arrays[parts.inputs[1]].reshape(-1)[0]) % len(g.shapes[x])
        flags: dict[str, Any] = {key: bool(a.get(key, 0)) for key in ("exclusive", "reverse")}
        return g.finish(g.node(op, [x], g.shapes[x], axis=axis, **flags), g.types[parts.inputs[0]])

    return build


def _cut(g: GraphOf, name: str, sizes: Sequence[int]) -> str:
    """The first elements of every axis: what a model with declared sizes is compiled for."""
    rank = len(sizes)
    return g.node("slice", [name], sizes, starts=[0] * rank, steps=[1] * rank)


def _nonzero(parts: OnnxParts) -> Built:
    g, x = GraphOf(parts), parts.inputs[0]
    shape = g.shapes[x]
    found = g.node("nonzero", [g.wide(x)], (max(1, len(shape)), math.prod(shape)), "int64")
    return g.finish(_cut(g, found, (max(1, len(shape)), int(np.count_nonzero(g.arrays[x])))))


def _unique(parts: OnnxParts) -> Built:
    """Sorted, flattened: steps as in section 14."""
    g = GraphOf(parts)
    n = math.prod(g.shapes[parts.inputs[0]])
    count = np.unique(g.arrays[parts.inputs[0]], equal_nan=False).size
    x = g.node("reshape", [parts.inputs[0]], (n,))
    order = g.node("sort_rows", [g.node("reshape", [g.wide(x)], (n, 1))], (n,), "int64")
    row = g.node("gather", [g.wide(x), order], (n,), axis=0)
    ends = [g.node("slice", [row], (n - 1,), starts=[s], steps=[1]) for s in (0, 1)]
    differs = g.node("logical_not", [g.node("equal", ends, (n - 1,), "bool")], (n - 1,))
    first = g.node("concat", [g.constant(np.ones(1, bool)), differs], (n,), axis=0)
    if parts.output_index == 1 or parts.output_index == 0:
        marks = g.node("reshape", [g.node("nonzero", [first], (1, n), "int64")], (n,))
        chosen = g.node("gather", [order, marks], (n,), axis=0)
        y = chosen if parts.output_index else g.node("gather", [x, chosen], (n,), axis=0)
        return g.finish(_cut(g, y, (count,)))
    numbers = g.node("cum_sum", [g.cast(first, "int64")], (n,), axis=0, exclusive=False, reverse=False)
    run = g.same("sub", numbers, g.constant(np.array([1])))
    zeros = g.constant(np.zeros(n, np.int64))
    group = g.node("scatter_elements", [zeros, order, run], (n,), axis=0, reduction="none")
    if parts.output_index == 2:
        return g.finish(group)
    ones = g.constant(np.ones(n, np.int64))
    y = g.node("scatter_elements", [zeros, group, ones], (n,), axis=0, reduction="add")
    return g.finish(_cut(g, y, (count,)))


def _suppression(parts: OnnxParts) -> Built:
    g = GraphOf(parts)
    boxes, scores, most, *thresholds = parts.inputs
    batch, classes, count = g.shapes[scores]
    limit = min(count, int(g.arrays[most][0]))
    order = g.node("topk_indices", [scores], (batch, classes, count), "int64", axis=2, k=count, largest=True)
    center = bool(parts.attributes.get("center_point_box", 0))
    names = [boxes, scores, order, most, *thresholds]
    kept = g.node("non_max_suppression", names, (batch, classes, limit), "int64", center_point=center, limit=limit)
    room = batch * classes * limit
    at_least = g.node("greater_or_equal", [kept, g.constant(np.array([0]))], (batch, classes, limit), "bool")
    places = g.node("transpose", [g.node("nonzero", [at_least], (3, room), "int64")], (room, 3), perm=[1, 0])
    box = g.node("reshape", [g.node("gather_nd", [kept, places], (room,), batch_dims=0)], (room, 1))
    y = g.node("concat", [_cut(g, places, (room, 2)), box], (room, 3), axis=1)
    values = interpret(ARITHMETICS["ca1"], g.finish(at_least)[0], parts.graph_inputs, keep="all")
    return g.finish(_cut(g, y, (int(np.count_nonzero(values[at_least])), 3)))


def _trilu(parts: OnnxParts) -> Built:
    g, x = GraphOf(parts), parts.inputs[0]
    rows, columns = g.shapes[x][-2:]
    apart = g.constant(np.arange(columns) - np.arange(rows)[:, None])
    kept = "greater_or_equal" if parts.attributes.get("upper", 1) else "less_or_equal"
    mask = g.node(kept, [apart, parts.inputs[1]], (rows, columns), "bool")
    zero = g.constant(np.zeros((), g.arrays[x].dtype))
    return g.finish(g.node("where", [mask, x, zero], g.shapes[x], g.types[x]))


def _einsum(parts: OnnxParts) -> Built:
    """The equations that have vectors, each written out as section 14 says."""
    g = GraphOf(parts)
    a, b = parts.inputs
    (m, k), other = g.shapes[a][-2:], g.shapes[b]
    equation = parts.attributes["equation"]
    if equation == "ij,kj->i":  # k is summed first
        summed = g.node(
            "reduce_sum", [g.node("transpose", [b], other[::-1], perm=[1, 0])], (k,), axes=[1], keepdims=False
        )
        rows = [g.node("reshape", [a], (1, m, k)), g.node("reshape", [summed], (1, k, 1))]
        return g.finish(g.node("reshape", [g.node("matmul", rows, (1, m, 1))], (m,)))
    if equation == "ij,jk->ik":
        return g.finish(g.node("matmul", [a, b], (m, other[1])))
    swapped = (*other[:-2], other[-1], other[-2])  # bhqd,bhkd->bhqk
    turned = g.node("transpose", [b], swapped, perm=[0, 1, 3, 2])
    return g.finish(g.node("matmul", [a, turned], (*g.shapes[a][:-1], other[-2])))


def pool_indices(parts: OnnxParts) -> Built:
    """The second output of MaxPool."""
    g, a = GraphOf(parts), parts.attributes
    x = g.wide(parts.inputs[0])
    rank = len(g.shapes[x]) - 2
    attrs = {
        "kernel": a["kernel_shape"],
        "strides": a.get("strides", [1] * rank),
        "pads": a.get("pads", [0] * 2 * rank),
    }
    attrs |= {"dilations": a.get("dilations", [1] * rank), "ceil_mode": bool(a.get("ceil_mode", 0))}
    attrs["column_major"] = bool(a.get("storage_order", 0))
    spatial = [
        (n + attrs["pads"][i] + attrs["pads"][rank + i] - attrs["dilations"][i] * (attrs["kernel"][i] - 1) - 1)
        // attrs["strides"][i] + 1
        for i, n in enumerate(g.shapes[x][2:])
    ]  # fmt: skip
    return g.finish(g.node("max_pool_indices", [x], (*g.shapes[x][:2], *spatial), "int64", **attrs))


def _forest(parts: OnnxParts) -> Built:
    """TreeEnsembleRegressor whose nodes are numbered tree after tree, the root first."""
    g, a = GraphOf(parts), parts.attributes
    x = parts.inputs[0]
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "LEAF")
    names = list(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True))
    inner = [n for n, mode in enumerate(a["nodes_modes"]) if mode != "LEAF"]
    leaf = [n for n, mode in enumerate(a["nodes_modes"]) if mode == "LEAF"]
    place = {names[n]: i for i, n in enumerate(inner)} | {names[n]: -1 - i for i, n in enumerate(leaf)}
    entries = list(zip(a["target_treeids"], a["target_nodeids"], a["target_ids"], a["target_weights"], strict=True))
    nodes: list[list[int]] = []
    leaves: list[list[int]] = []
    targets: list[int] = []
    weights: list[float] = []
    for n in inner:
        tree = names[n][0]
        ends = [place[(tree, a[f"nodes_{key}nodeids"][n])] for key in ("true", "false")]
        missing = a["nodes_missing_value_tracks_true"][n]
        nodes.append([a["nodes_featureids"][n], modes.index(a["nodes_modes"][n]), *ends, missing, 0, 0])
    for n in leaf:
        mine = [(k, w) for tree, node, k, w in entries if (tree, node) == names[n]]
        leaves.append([len(targets), len(mine)])
        targets += [k for k, _ in mine]
        weights += [w for _, w in mine]
    dtype, count = g.arrays[x].dtype, int(a.get("n_targets", 1))
    tables = [
        np.array([place[(tree, 0)] for tree in dict.fromkeys(a["nodes_treeids"])], np.int32),
        np.array(nodes, np.int32), np.array([a["nodes_values"][n] for n in inner], np.float32).astype(dtype),
        np.array(leaves, np.int32), np.array(targets, np.int32), np.array(weights, np.float32).astype(dtype),
        np.zeros(1, dtype), np.array(a.get("base_values", [0.0] * count), np.float32).astype(dtype),
    ]  # fmt: skip
    how = a.get("aggregate_function", "SUM").lower()
    operands = [x, *(g.constant(t) for t in tables)]
    y = g.node("tree_ensemble", operands, (g.shapes[x][0], count), targets=count, aggregate=how)
    return g.finish(g.cast(y, "float32"))


BUILDERS: dict[str, Callable[[OnnxParts], Built]] = {
    "Gather": _lookup("gather", 0),
    "GatherElements": _lookup("gather_elements", 0),
    "GatherND": _lookup("gather_nd", None),
    "ScatterElements": _lookup("scatter_elements", 0),
    "ScatterND": _lookup("scatter_nd", None),
    "TensorScatter": _lookup("tensor_scatter", -2),
    "TopK": _top_k,
    "ArgMax": _arg("arg_max"),
    "ArgMin": _arg("arg_min"),
    "CumSum": _running("cum_sum"),
    "CumProd": _running("cum_prod"),
    "NonZero": _nonzero,
    "Unique": _unique,
    "NonMaxSuppression": _suppression,
    "Trilu": _trilu,
    "Einsum": _einsum,
    "TreeEnsembleRegressor": _forest,
}
"""By ONNX name; MaxPool asks ``pool_indices`` for its second output."""
