"""Graphs of docs/ir.md for the recurrent operators of ONNX: a node per direction, joined along a second axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evidence.reference.graph import RefGraph
from evidence.reference.vector_graph import GraphOf
from evidence.reference.vector_model import Array, OnnxParts

OPERATORS = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
_PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "Relu": (None, None), "Tanh": (None, None), "Sigmoid": (None, None), "Softsign": (None, None),
    "Softplus": (None, None), "Affine": (1.0, 0.0), "LeakyRelu": (0.01, None), "ThresholdedRelu": (1.0, None),
    "ScaledTanh": (1.0, 1.0), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, None),
}  # fmt: skip


def recurrent_graph(parts: OnnxParts) -> tuple[RefGraph, dict[str, Array]]:
    """The graph of output Y (T, D, B, H); sequence lengths are constants."""
    graph = GraphOf(parts)
    given = [*parts.inputs, *[""] * (8 - len(parts.inputs))]
    names = [graph.wide(name) if name else "" for name in (*given[:4], *given[5:])]
    time, batch, hidden = *graph.shapes[given[0]][:2], int(parts.attributes["hidden_size"])
    lengths = parts.initializers[given[4]] if given[4] else np.full(batch, time)
    joined: list[str] = []
    reverses = _DIRECTIONS[str(parts.attributes.get("direction", "forward"))]
    for d, reverse in enumerate(reverses):
        x = _mirrored(graph, names[0], lengths) if reverse and given[4] else names[0]
        operands = [x, *(_cut(graph, name, d) if name else "" for name in names[1:])]
        while not operands[-1]:
            operands.pop()
        attrs = _attrs(parts, reverse and not given[4], d, len(reverses))
        y = graph.node(OPERATORS[parts.op_type], operands, (time, batch, hidden), **attrs)
        if given[4]:
            y = _mirrored(graph, y, lengths) if reverse else y
            inside = graph.constant((np.arange(time)[:, None] < lengths)[..., None])
            zero = graph.constant(np.zeros((), graph.types[y]))
            y = graph.node("where", [inside, y, zero], (time, batch, hidden), graph.types[y])
        joined.append(graph.node("reshape", [y], (time, 1, batch, hidden)))
    result = graph.node("concat", joined, (time, len(joined), batch, hidden), axis=1)
    return graph.finish(result, graph.half)


def _attrs(parts: OnnxParts, reverse: bool, direction: int, directions: int) -> dict[str, Any]:
    given, op = parts.attributes, parts.op_type
    attrs: dict[str, Any] = {"reverse": reverse}
    if "clip" in given:
        attrs["clip"] = given["clip"]
    if op == "LSTM":
        attrs |= {"state": "h", "input_forget": bool(given.get("input_forget", 0))}
    if op == "GRU":
        attrs["linear_before_reset"] = bool(given.get("linear_before_reset", 0))
    if "activations" in given:
        attrs |= _activations(given, direction, _FUNCTIONS[op])
    return attrs


def _activations(given: Mapping[str, Any], direction: int, count: int) -> dict[str, Any]:
    """The three attributes of one direction; parameters are taken in order by the functions that have one."""
    rest = [list(given.get(key, [])) for key in ("activation_alpha", "activation_beta")]
    rows = []
    for name in given["activations"]:
        pair = [
            0.0 if default is None else (left.pop(0) if left else default)
            for default, left in zip(_PARAMETERS[name], rest, strict=True)
        ]
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
        rows.append((snake, *pair))
    own = rows[direction * count : (direction + 1) * count]
    names, alphas, betas = zip(*own, strict=True)
    return {"activations": " ".join(names), "alphas": list(alphas), "betas": list(betas)}


def _cut(graph: GraphOf, name: str, direction: int) -> str:
    """``name[direction]``."""
    rest = graph.shapes[name][1:]
    starts: Sequence[int] = [direction, *[0] * len(rest)]
    part = graph.node("slice", [name], (1, *rest), starts=list(starts), steps=[1] * (len(rest) + 1))
    return graph.node("reshape", [part], rest)


def _mirrored(graph: GraphOf, x: str, lengths: Array) -> str:
    """``x`` (T, B, N) with the first steps of each sequence in reverse order."""
    time, batch, size = graph.shapes[x]
    steps = np.arange(time)[:, None]
    source = np.where(steps < lengths, lengths - 1 - steps, steps)
    index = np.stack([source, np.broadcast_to(np.arange(batch), source.shape)], axis=-1)
    return graph.node("gather_nd", [x, graph.constant(index.astype(np.int64))], (time, batch, size), batch_dims=0)
