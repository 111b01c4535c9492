"""Reference graphs of the vectors of vector_cases_shapes: composites as nodes, run-time operands, stated shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evidence.reference.graph import RefGraph
from evidence.reference.vector_graph import HALVES, GraphOf
from evidence.reference.vector_model import Array, OnnxParts

Built = tuple[RefGraph, dict[str, Array]]


def _axes(parts: OnnxParts, arrays: dict[str, Array], rank: int) -> list[int]:
    names = [n for n in parts.inputs if n]
    given = arrays[names[1]].reshape(-1).tolist() if len(names) > 1 else parts.attributes.get("axes", [])
    if not given and not parts.attributes.get("noop_with_empty_axes", 0):
        given = range(rank)
    return sorted(int(a) % rank for a in given)


def reduction(parts: OnnxParts) -> Built:
    """ReduceX: the steps of its body around one reduction, which an empty set of axes leaves out."""
    graph = GraphOf(parts)
    x = parts.inputs[0]
    own, shape = graph.types[x], graph.shapes[x]
    axes, keep = _axes(parts, graph.arrays, len(shape)), bool(parts.attributes.get("keepdims", 1))
    kind = parts.op_type.removeprefix("Reduce")
    value = graph.wide(x)
    wide = graph.types[value]
    if kind == "L1" and not wide.startswith("uint"):
        value = graph.same("abs", value)
    if kind in ("L2", "SumSquare"):
        value = graph.same("mul", value, value)
    if kind == "LogSumExp":
        value = graph.same("exp", graph.cast(value, "float64"))
    if axes:
        name = {"Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod"}.get(kind, "sum")
        out = tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)
        value = graph.node(f"reduce_{name}", [value], out, axes=axes, keepdims=int(keep))
    if kind == "L2":
        real = value if "float" in wide else graph.cast(value, "float64")
        value = graph.cast(graph.same("sqrt", real), wide)
    if kind in ("LogSum", "LogSumExp"):
        value = graph.same("log", value)
        value = graph.cast(value, wide)
    return graph.finish(value, own if own in HALVES else "")


def slice_at(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    names = [*parts.inputs, "", ""][:5]
    starts, ends = (graph.arrays[n].tolist() for n in names[1:3])
    shape = list(graph.shapes[names[0]])
    axes = graph.arrays[names[3]].tolist() if names[3] else list(range(len(starts)))
    steps = graph.arrays[names[4]].tolist() if names[4] else [1] * len(starts)
    for axis, begin, end, step in zip(axes, starts, ends, steps, strict=True):
        size = shape[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first, last = (min(max(v + size if v < 0 else v, low), high) for v in (begin, end))
        shape[axis] = len(range(max(first, 0), last, step))
    return graph.finish(graph.node("slice_at", [n for n in names if n], shape, message="another shape"))


def pad_by(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    x, pads, value, axes = [*parts.inputs, "", ""][:4]
    shape, amounts = list(graph.shapes[x]), graph.arrays[pads].tolist()
    named = graph.arrays[axes].tolist() if axes else list(range(len(shape)))
    for k, axis in enumerate(named):
        shape[axis] += amounts[k] + amounts[len(named) + k]
    fill = value or graph.constant(np.zeros((), graph.arrays[x].dtype))
    operands = [x, pads, fill, axes] if axes else [x, pads, fill]
    mode = parts.attributes.get("mode", "constant")
    return graph.finish(graph.node("pad_by", operands, shape, mode=mode, message="another shape"))


def range_(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    start, limit, delta = (graph.arrays[n].item() for n in parts.inputs)
    exact = isinstance(start, int)
    count = -((start - limit) // delta) if exact else math.ceil((limit - start) / delta)
    return graph.finish(graph.node("range", list(parts.inputs), (max(0, count),), message="another shape"))


def col2im(parts: OnnxParts) -> Built:
    graph = GraphOf(parts)
    x, image, block = parts.inputs
    sizes = [int(n) for n in graph.arrays[image]]
    n = len(sizes)
    defaults = {"strides": [1] * n, "dilations": [1] * n, "pads": [0] * 2 * n}
    attrs: dict[str, Any] = {key: list(parts.attributes.get(key, value)) for key, value in defaults.items()}
    batch, rows, _ = graph.shapes[x]
    shape = (batch, rows // math.prod(int(b) for b in graph.arrays[block]), *sizes)
    return graph.finish(graph.node("col2im", [x, block], shape, message="another shape", **attrs))


SHAPE_GRAPHS = {
    **{f"Reduce{k}": reduction for k in "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()},
    "Slice": slice_at,
    "Pad": pad_by,
    "Range": range_,
    "Col2Im": col2im,
}
"""Builders by ONNX operator; Slice and Pad of constant bounds stay one static operation (vector_nodes)."""
