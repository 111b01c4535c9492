"""Test inputs for tensors that steer shapes: axes, shapes, bounds and counts the frozen graph was compiled for.

Random values there would only be refused. Inputs that other operations compute on before they steer are left alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.graph import RefGraph, RefNode

Array = npt.NDArray[Any]
Values = dict[str, Sequence[float]]


def steering_inputs(graph: RefGraph) -> dict[str, Array]:
    """Values the graph accepts, by input name, for every graph input that an operation compares with its shape."""
    known = {t.id: t for t in graph.inputs}
    shapes = {t.id: t.shape for t in graph.inputs} | {k: w.shape for k, w in graph.weights.items()}
    shapes |= {n.output: n.shape for n in graph.nodes}
    found: Values = {}
    made = {n.output: n for n in graph.nodes}
    for node in graph.nodes:
        for value_id, values in _wanted(node, shapes, graph.weights):
            if value_id in known:
                found.setdefault(value_id, values)
        if node.op == "resize_by":
            for value_id, place, value in _resized(node, shapes, made):
                if value_id in known:
                    count = math.prod(known[value_id].shape)
                    now = list(found.get(value_id, [1] * count))
                    found[value_id] = [*now[:place], value, *now[place + 1 :]]
    return {
        known[i].name: np.array(values).astype(known[i].dtype).reshape(known[i].shape) for i, values in found.items()
    }


def _wanted(
    node: RefNode, shapes: Mapping[str, tuple[int, ...]], weights: Mapping[str, Array]
) -> Iterator[tuple[str, Sequence[float]]]:
    """Operands of ``node`` that steer it, with values that give its stated shape."""
    inputs = (*node.inputs, "", "", "")
    if node.op == "checked":
        count = math.prod(shapes[inputs[1]])
        yield inputs[1], list(node.attrs["expected"])[:: max(1, len(node.attrs["expected"]) // count)]
    elif node.op == "by_axes":
        mask = node.attrs["masks"][0]
        yield inputs[0], [a for a in range(node.attrs["rank"]) if mask >> a & 1]
    elif node.op == "slice_at":
        x, count = shapes[inputs[0]], math.prod(shapes[inputs[1]])
        axes = _axes(inputs[3], weights, x, node.shape, count)
        yield inputs[3], list(axes)
        yield inputs[1], [0] * count
        yield inputs[2], [node.shape[a] for a in axes]
        yield inputs[4], [1] * count
    elif node.op == "pad_by":
        x, count = shapes[inputs[0]], math.prod(shapes[inputs[1]]) // 2
        axes = _axes(inputs[3], weights, x, node.shape, count)
        yield inputs[3], list(axes)
        yield inputs[1], [0] * count + [node.shape[a] - x[a] for a in axes]
    elif node.op == "range":
        for operand, value in zip(inputs[:3], (0, node.shape[0], 1), strict=True):
            yield operand, [value]
    elif node.op == "col2im":
        yield inputs[1], list(_block(node, shapes[inputs[0]]))


def _resized(
    node: RefNode, shapes: Mapping[str, tuple[int, ...]], made: Mapping[str, RefNode]
) -> Iterator[tuple[str, int, float]]:
    """Operand, place and value that give a resize its stated shape: whole regions, scales inside what rounds to the
    sizes, or, where ``rounded`` scales are the ratio of other sizes, those sizes."""
    scales, roi = (*node.inputs, "", "")[1:3]
    steps = frozenset("cast div reduce_min reduce_max expand".split())
    while node.attrs["rounded"] and scales in made and made[scales].op in steps:
        scales = made[scales].inputs[0]
    for k, axis in zip(node.attrs["entries"], node.attrs["axes"], strict=True):
        size, out = shapes[node.inputs[0]][axis], node.shape[axis]
        if scales:
            yield scales, k, out if node.attrs["rounded"] else 1.0 if size == out else (out + 0.25) / size
        if roi:
            yield roi, k, 0.0
            yield roi, math.prod(shapes[roi]) // 2 + k, 1.0


def _axes(
    operand: str, weights: Mapping[str, Array], x: tuple[int, ...], out: tuple[int, ...], count: int
) -> list[int]:
    """Axes the operand names: a constant's, the first ones where it is absent, else those whose size changes first."""
    if operand in weights:
        return [int(a) % len(x) for a in weights[operand].reshape(-1)]
    if not operand:
        return list(range(count))
    return sorted(range(len(x)), key=lambda a: (x[a] == out[a], a))[:count]


def _block(node: RefNode, x: tuple[int, ...]) -> tuple[int, ...]:
    image, n = node.shape[2:], len(node.shape) - 2
    taps = x[1] // node.shape[1]
    strides, dilations, pads = (node.attrs[k] for k in ("strides", "dilations", "pads"))
    for block in itertools.product(*(range(1, taps + 1) for _ in range(n))):
        spans = [image[a] + pads[a] + pads[n + a] - dilations[a] * (b - 1) - 1 for a, b in enumerate(block)]
        counts = [s // strides[a] + 1 if s >= 0 else 0 for a, s in enumerate(spans)]
        if math.prod(block) == taps and math.prod(counts) == x[2]:
            return block
    return (1,) * n
