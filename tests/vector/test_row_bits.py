"""Softmax, normalisation, reductions and moves on plain values: bits of all instruction sets against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from graph_bits import WAYS, Array, compiled, differing, model, tensors
from onnx import helper
from vector_targets import Way

from evidence.vector_engines import Compiled

WIDTHS = (1, 3, 4, 15, 16, 17, 33, 100, 197, 1024, 1040, 3001, 9000)


def _one(name: str, op: str, x: Array, constants: dict[str, Array] | None = None, **attrs: object) -> Compiled:
    constants = constants or {}
    node = helper.make_node(op, ["x", *constants], ["y"], **attrs)
    return compiled(name, model([node], {"x": x}, constants, ["y"], 18), {"x": x})


def rows() -> Iterator[Compiled]:
    for n in WIDTHS:
        x = tensors(n, (2, 3, n)) * np.float32(4)
        s, b = tensors(n + 1, (n,)), tensors(n + 2, (n,))
        yield _one(f"softmax_{n}", "Softmax", x, axis=-1)
        yield _one(f"log_softmax_{n}", "LogSoftmax", x, axis=-1)
        yield _one(f"softmax_special_{n}", "Softmax", tensors(n, (8, n), special=True), axis=-1)
        yield _one(f"layer_norm_{n}", "LayerNormalization", x, {"s": s, "b": b}, axis=-1)
        yield _one(f"layer_norm_no_bias_{n}", "LayerNormalization", tensors(n, (5, n), special=True), {"s": s}, axis=-1)
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"):
            data = tensors(n, (4, 2, n), special=op in ("ReduceMax", "ReduceMin"))
            yield _one(f"{op}_{n}", op, data, {"axes": np.array([-1])}, keepdims=0)
    yield _one("layer_norm_two_axes", "LayerNormalization", tensors(1, (3, 5, 7)),
               {"s": tensors(2, (5, 7)), "b": tensors(3, (5, 7))}, axis=1)  # fmt: skip
    yield _one("sum_two_axes", "ReduceSum", tensors(1, (3, 5, 700)), {"axes": np.array([1, 2])})


def moves() -> Iterator[Compiled]:
    x = tensors(1, (2, 3, 5, 20), special=True)
    yield _one("transpose", "Transpose", x, perm=[0, 2, 1, 3])
    yield _one("transpose_last", "Transpose", x, perm=[3, 0, 1, 2])
    yield _one("expand", "Expand", tensors(2, (3, 1)), {"shape": np.array([2, 3, 17])})
    ends = {"starts": np.array([1, 3]), "ends": np.array([3, 19]), "axes": np.array([1, 3])}
    yield _one("slice", "Slice", x, ends)
    y = tensors(3, (2, 1, 5, 20))
    for axis, other in ((1, y), (3, tensors(4, (2, 3, 5, 7)))):
        nodes = [helper.make_node("Concat", ["x", "z"], ["y"], axis=axis)]
        given = {"x": x, "z": other}
        yield compiled(f"concat_{axis}", model(nodes, given, {}, ["y"]), given)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("MatMul", ["w", "x"], ["m"]),
        helper.make_node("Mul", ["t", "c"], ["u"]),
        helper.make_node("Sigmoid", ["u"], ["v"]),
        helper.make_node("ReduceSum", ["m", "axes"], ["n"], keepdims=0),
        helper.make_node("Add", ["v", "n"], ["y"]),
    ]
    constants = {"c": tensors(5, (5, 1, 20)), "w": tensors(6, (2, 3, 4, 5)), "axes": np.array([0, 1, 2])}
    yield compiled("through_moves", model(nodes, {"x": x}, constants, ["y"]), {"x": x})


@lru_cache
def nets() -> tuple[Compiled, ...]:
    return (*rows(), *moves())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_bits_of_rows(way: Way, tmp_path: Path) -> None:
    assert differing(nets(), way, tmp_path) == {}
