"""Graphs of docs/ir.md for the recurrent operators of ONNX: a node per direction, joined along a second axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evidence.reference.graph import RefGraph, RefNode, RefTensor
from evidence.reference.vector_model import Array, OnnxParts

OPERATORS = {"LSTM": "lstm", "GRU": "gru", "RNN": "rnn"}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def recurrent_graph(parts: OnnxParts) -> tuple[RefGraph, dict[str, Array]]:
    """The graph of output Y (T, D, B, H) and its runtime inputs, which are cut at the direction by ``slice``."""
    arrays: Mapping[str, Array] = {**parts.graph_inputs, **parts.initializers}
    op = OPERATORS[parts.op_type]
    given = [name if i != 4 else "" for i, name in enumerate(parts.inputs)]
    given += [""] * (8 - len(given))
    order = [given[0], given[1], given[2], given[3], given[5], given[6], given[7]]  # without sequence_lens
    time, batch, hidden = *arrays[given[0]].shape[:2], int(parts.attributes["hidden_size"])
    weights: dict[str, Array] = {}
    nodes: list[RefNode] = []
    joined: list[str] = []
    for d, reverse in enumerate(_DIRECTIONS[str(parts.attributes.get("direction", "forward"))]):
        operands = [order[0]]
        for name in order[1:]:
            operands.append(f"{name}.{d}" if name else "")
            if name in parts.initializers:
                weights[operands[-1]] = parts.initializers[name][d]
            elif name:
                nodes += _cut(name, arrays[name], d, operands[-1])
        while not operands[-1]:
            operands.pop()
        shape = (time, batch, hidden)
        nodes.append(RefNode(op, tuple(operands), f"s{d}", shape, "float32", _attrs(op, parts.attributes, reverse)))
        joined.append(f"y{d}")
        nodes.append(RefNode("reshape", (f"s{d}",), joined[-1], (time, 1, batch, hidden), "float32", {}))
    full = (time, len(joined), batch, hidden)
    nodes.append(RefNode("concat", tuple(joined), "y", full, "float32", {"axis": 1}))
    inputs = tuple(RefTensor(n, n, a.shape, a.dtype.name) for n, a in parts.graph_inputs.items())
    return RefGraph("vector", inputs, weights, tuple(nodes), (("y", "y"),)), dict(parts.graph_inputs)


def _attrs(op: str, given: Mapping[str, Any], reverse: bool) -> dict[str, Any]:
    attrs: dict[str, Any] = {"reverse": reverse}
    if "clip" in given:
        attrs["clip"] = given["clip"]
    if op == "lstm":
        attrs |= {"state": "h", "input_forget": bool(given.get("input_forget", 0))}
    if op == "gru":
        attrs["linear_before_reset"] = bool(given.get("linear_before_reset", 0))
    return attrs


def _cut(name: str, array: Array, direction: int, result: str) -> list[RefNode]:
    rest = tuple(array.shape[1:])
    starts = [direction, *[0] * len(rest)]
    attrs = {"starts": starts, "steps": [1] * array.ndim}
    return [
        RefNode("slice", (name,), f"{result}.cut", (1, *rest), "float32", attrs),
        RefNode("reshape", (f"{result}.cut",), result, rest, "float32", {}),
    ]
