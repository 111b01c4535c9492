"""LSTM, GRU and RNN: bits of all instruction sets against the reference, every direction, output and option."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_bits import WAYS, compiled, differing, model, tensors
from onnx import helper
from vector_targets import Way

from evidence.vector_engines import Compiled

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _net(
    op: str,
    output: int,
    sizes: tuple[int, int, int, int],
    direction: str = "forward",
    special: bool = False,
    **options: Any,
) -> Compiled:
    time, batch, inputs, hidden = sizes
    d, g = 2 if direction == "bidirectional" else 1, GATES[op]
    x = tensors(1, (time, batch, inputs), special)
    constants = {"w": tensors(2, (d, g * hidden, inputs)), "r": tensors(3, (d, g * hidden, hidden)) / np.float32(3)}
    given = {"x": x}
    operands = ["x", "w", "r"]
    if options.pop("bias", True):
        constants["b"] = tensors(4, (d, 2 * g * hidden))
    operands += ["b" if "b" in constants else "", ""]
    if options.pop("states", False):
        for n, name in enumerate(("h0", "c0") if op == "LSTM" else ("h0",)):
            given[name] = tensors(5 + n, (d, batch, hidden))
            operands.append(name)
    if options.pop("peepholes", False):
        constants["p"] = tensors(7, (d, 3 * hidden))
        operands += [""] * (7 - len(operands)) + ["p"]
    if options.pop("runtime", False):
        given |= {k: constants.pop(k) for k in ("w", "r")}
    while not operands[-1]:
        operands.pop()
    node = helper.make_node(
        op, operands, [*["", "", ""][:output], "y"], hidden_size=hidden, direction=direction, **options
    )
    name = f"{op}_{output}_{direction}_{sizes}_{sorted(options)}_{len(operands)}"
    return compiled(name, model([node], given, constants, ["y"]), given)


def cells() -> Iterator[Compiled]:
    for op in GATES:
        for direction in ("forward", "reverse", "bidirectional"):
            yield _net(op, 0, (5, 1, 7, 16), direction)
            yield _net(op, 1, (4, 3, 9, 21), direction, states=True)
        for sizes in ((3, 1, 1, 1), (3, 2, 20, 5), (2, 1, 70, 64), (2, 17, 8, 33), (2, 1, 5, 130)):
            yield _net(op, 0, sizes, bias=False)
        yield _net(op, 0, (3, 2, 6, 20), "reverse", special=True)
        yield _net(op, 0, (3, 2, 6, 20), "bidirectional", clip=0.25)
        yield _net(op, 0, (3, 2, 6, 20), runtime=True, states=True)
    for direction in ("reverse", "bidirectional"):
        yield _net("LSTM", 2, (4, 2, 6, 20), direction, peepholes=True)
        yield _net("LSTM", 2, (4, 1, 6, 16), direction, states=True, input_forget=1)
        yield _net("GRU", 0, (4, 2, 6, 20), direction, linear_before_reset=1)
        yield _net("GRU", 1, (4, 1, 6, 48), direction, linear_before_reset=1, states=True, bias=False)
        yield _net("GRU", 0, (3, 2, 70, 9), direction, linear_before_reset=1, runtime=True)
        yield _net("LSTM", 2, (3, 2, 6, 66), direction, peepholes=True, runtime=True)


@lru_cache
def nets() -> tuple[Compiled, ...]:
    return tuple(cells())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_bits_of_recurrent_cells(way: Way, tmp_path: Path) -> None:
    assert differing(nets(), way, tmp_path) == {}


def test_two_layers_with_a_projection() -> None:
    """A frozen net of two bidirectional layers keeps one statement per direction and its products with x before it."""
    d, h = 2, 8
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["s"], hidden_size=h, direction="bidirectional"),
        helper.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "shape"], ["u"]),
        helper.make_node("LSTM", ["u", "w2", "r"], ["y"], hidden_size=h, direction="bidirectional"),
    ]
    constants = {
        "w": tensors(1, (d, 4 * h, 6)), "r": tensors(2, (d, 4 * h, h)), "w2": tensors(3, (d, 4 * h, d * h)),
        "shape": np.array([0, 0, -1]),
    }  # fmt: skip
    given = {"x": tensors(4, (5, 1, 6))}
    net = compiled("two", model(nodes, given, constants, ["y"]), given)
    kinds = [[op.kind for op in f.ops] for f in net.module.graphs[1:]]
    assert sum(k == ["lstm_steps"] for k in kinds) >= 2
    assert not any("lstm" in k for k in kinds)
