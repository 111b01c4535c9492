"""Small random graphs, and their exact results as rationals, by plain loops that share nothing with the balls."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference import RefGraph
from evidence.reference.graph import RefNode, RefTensor

Array = npt.NDArray[Any]


def rational(values: Array) -> Array:
    """Object array of fractions."""
    out = np.empty(values.shape, dtype=object)
    for place in np.ndindex(values.shape):
        out[place] = Fraction(float(values[place]))
    return out


def _conv(node: RefNode, x: Array, w: Array, b: Array) -> Array:
    out = np.empty(node.shape, dtype=object)
    pads, strides, group = node.attrs["pads"], node.attrs["strides"], node.attrs["group"]
    per_group = w.shape[0] // group
    for n, m, i, j in np.ndindex(node.shape):
        total = Fraction(0) + b[m]
        for c, u, v in np.ndindex(w.shape[1:]):
            y, z = i * strides[0] + u - pads[0], j * strides[1] + v - pads[1]
            if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]:
                total += x[n, m // per_group * w.shape[1] + c, y, z] * w[m, c, u, v]
        out[n, m, i, j] = total
    return out


def _max_pool(node: RefNode, x: Array) -> Array:
    out = np.empty(node.shape, dtype=object)
    for n, c, i, j in np.ndindex(node.shape):
        out[n, c, i, j] = max(x[n, c, 2 * i + u, 2 * j + v] for u, v in itertools.product(range(2), range(2)))
    return out


def exact(graph: RefGraph, inputs: dict[str, Array]) -> dict[str, Array]:
    """Every node's exact value."""
    values = {k: rational(w) for k, w in graph.weights.items()} | {t.id: rational(inputs[t.name]) for t in graph.inputs}
    for node in graph.nodes:
        a = [values[name] for name in node.inputs]
        relu = np.frompyfunc(lambda v: max(v, Fraction(0)), 1, 1)
        values[node.output] = {
            "conv": lambda n=node, a=a: _conv(n, *a),
            "max_pool": lambda n=node, a=a: _max_pool(n, *a),
            "relu": lambda a=a, relu=relu: relu(a[0]),
            "add": lambda a=a: a[0] + a[1],
            "mul": lambda a=a: a[0] * a[1],
            "div": lambda a=a: a[0] / a[1],
            "global_average_pool": lambda a=a: a[0].sum(axis=(2, 3), keepdims=True) / Fraction(a[0][0, 0].size),
            "reshape": lambda n=node, a=a: a[0].reshape(n.shape),
            "gemm": lambda a=a: a[0].dot(a[1]) + a[2],
        }[node.op]()
    return values


def network(seed: int, scale: float = 1.0) -> tuple[RefGraph, dict[str, Array]]:
    """conv, relu, max_pool, grouped or strided conv, add, mul, global_average_pool, gemm, division: all rational."""
    rng = np.random.default_rng(seed)

    def weights(*shape: int) -> Array:
        spread = rng.standard_normal(shape) * np.exp(rng.standard_normal(shape) * scale)
        return spread.astype(np.float32)

    group = int(rng.choice([1, 2]))
    attrs = {"group": 1, "strides": [1, 1], "dilations": [1, 1], "pads": [1, 1, 1, 1]}
    stride = int(rng.choice([1, 2]))
    side = (4 - 1) // stride + 1
    second = {**attrs, "group": group, "strides": [stride, stride]}
    w = {
        "w0": weights(4, 2, 3, 3), "b0": weights(4), "w1": weights(4, 4 // group, 3, 3), "b1": weights(4),
        "m": weights(1, 4, 1, 1), "g": weights(4, 3), "c": weights(3), "d": np.abs(weights(3)) + np.float32(0.5),
    }  # fmt: skip
    f, plain = "float32", {"alpha": 1.0, "beta": 1.0, "trans_a": 0, "trans_b": 0}
    nodes = (
        RefNode("conv", ("x", "w0", "b0"), "a", (1, 4, 8, 8), f, attrs, "n0", "a"),
        RefNode("relu", ("a",), "r", (1, 4, 8, 8), f, {}, "n1", "r"),
        RefNode("max_pool", ("r",), "p", (1, 4, 4, 4), f, {"kernel": [2, 2], "strides": [2, 2], "pads": [0] * 4,
                "dilations": [1, 1], "ceil_mode": 0}, "n2", "p"),
        RefNode("conv", ("p", "w1", "b1"), "e", (1, 4, side, side), f, second, "n3", "e"),
        RefNode("mul", ("e", "m"), "s", (1, 4, side, side), f, {}, "n4", "s"),
        RefNode("add", ("e", "s"), "t", (1, 4, side, side), f, {}, "n5", "t"),
        RefNode("relu", ("t",), "q", (1, 4, side, side), f, {}, "n6", "q"),
        RefNode("global_average_pool", ("q",), "v", (1, 4, 1, 1), f, {}, "n7", "v"),
        RefNode("reshape", ("v",), "h", (1, 4), f, {}, "n8", "h"),
        RefNode("gemm", ("h", "g", "c"), "y", (1, 3), f, plain, "n9", "y"),
        RefNode("div", ("y", "d"), "z", (1, 3), f, {}, "n10", "z"),
    )  # fmt: skip
    graph = RefGraph("small", (RefTensor("x", "x", (1, 2, 8, 8), f),), w, nodes, (("z", "z"),))
    return graph, {"x": rng.standard_normal((1, 2, 8, 8)).astype(np.float32)}


def one_node(op: str, shape: tuple[int, ...], attrs: dict[str, Any], **weights: Array) -> RefGraph:
    """A graph of one operator on the input ``x`` and the weights in their order; the output is ``y``."""
    node = RefNode(op, ("x", *weights), "y", shape, "float32", attrs, "node", "y")
    return RefGraph("one", (RefTensor("x", "x", shape, "float32"),), weights, (node,), (("y", "y"),))
