"""Fusion of elementwise graphs, affine views and constant powers: what the passes may and may not join."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_bits import WAYS, compiled, differing, model, tensors
from onnx import helper

from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Op, TensorType, make_attrs
from compiler_kernels.ir.views import contiguous, moved, written_view
from compiler_kernels.passes.buffers import elementwise_operands
from compiler_kernels.passes.fuse import FuseElementwise
from compiler_kernels.passes.infra import run_passes
from compiler_kernels.stages.frontend import freeze


def fused(nodes: Sequence[Any], constants: dict[str, Any], outputs: Sequence[str] = ("y",)) -> list[list[str]]:
    """Kinds of every statement's body after fusion, for inputs x and z of shape (4, 6)."""
    given = {n: tensors(i, (4, 6)) for i, n in enumerate("xz")}
    module, store = import_onnx(model(nodes, given, constants, outputs), filename="m.onnx")
    frozen, _ = freeze(module, store)
    found, _ = run_passes(frozen, store, (FuseElementwise(),))
    return [[o.kind for o in op.body] or [op.kind] for op in found.main.ops]


def node(op: str, inputs: str, output: str, **attrs: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], **attrs)


ONE = {"one": np.array(1, dtype=np.float32), "c": np.array(1.4142135, dtype=np.float32)}


def test_a_value_read_twice_inside_fuses() -> None:
    nodes = [node("Div", "x c", "a"), node("Erf", "a", "b"), node("Add", "b one", "d"), node("Mul", "x d", "y")]
    assert fused(nodes, ONE) == [["div", "erf", "add", "mul"]]
    square = [node("Relu", "x", "a"), node("Mul", "a a", "b"), node("Mul", "b a", "y")]
    assert fused(square, {}) == [["relu", "mul", "mul"]]


def test_a_value_read_outside_ends_the_group() -> None:
    nodes = [node("Relu", "x", "a"), node("Neg", "a", "b"), node("Mul", "a b", "y"), node("Exp", "a", "w")]
    assert fused(nodes, {}, ("y", "w")) == [["relu"], ["neg", "mul"], ["exp"]]
    output_inside = [node("Relu", "x", "a"), node("Neg", "a", "y")]
    assert fused(output_inside, {}, ("a", "y")) == [["relu"], ["neg"]]


def test_two_branches_of_one_value_fuse_as_one() -> None:
    nodes = [node("Relu", "x", "a"), node("Sigmoid", "a", "b"), node("Tanh", "a", "d"), node("Mul", "b d", "y")]
    assert fused(nodes, {}) == [["relu", "sigmoid", "tanh", "mul"]]


def test_a_branch_through_another_operation_does_not_fuse() -> None:
    nodes = [node("Relu", "x", "a"), node("Softmax", "a", "b", axis=1), node("Mul", "a b", "y")]
    assert fused(nodes, {}) == [["relu"], ["softmax"], ["mul"]]


def test_a_sum_joins_the_group_of_its_first_operand_only() -> None:
    nodes = [node("Relu", "x", "a"), node("Exp", "z", "b"), node("Add", "b a", "y")]
    assert fused(nodes, {}) == [["relu"], ["exp", "add"]]


def test_operands_that_may_be_overwritten() -> None:
    t = TensorType((4, 6))
    body = (
        Op("op.matmul", ("p", "q"), "a", t), Op("op.add", ("a", "r"), "b", t), Op("op.mul", ("b", "p"), "y", t)
    )  # fmt: skip
    assert elementwise_operands(Op("fused.x", ("p", "q", "r"), "y", t, body=body)) == {"r"}
    turned = (Op("op.transpose", ("p",), "a", t), Op("op.add", ("a", "r"), "y", t))
    assert elementwise_operands(Op("fused.x", ("p", "r"), "y", t, body=turned)) == {"r"}
    written = (Op("op.add", ("p", "r"), "a", t), Op("op.transpose", ("a",), "y", t))
    assert elementwise_operands(Op("fused.x", ("p", "r"), "y", t, body=written)) == set()


def _factors(rng: random.Random, count: int) -> tuple[int, ...]:
    found: list[int] = []
    while count > 1:
        part = rng.choice([k for k in range(2, count + 1) if count % k == 0])
        found.append(part)
        count //= part
    return (*found, *[1] * rng.randint(0, 2))


def _move(rng: random.Random, value: Any) -> tuple[Op, Any]:
    kind = rng.choice(["transpose", "reshape", "slice", "expand"])
    attrs: dict[str, Any] = {}
    if kind == "transpose":
        attrs["perm"] = tuple(rng.sample(range(value.ndim), value.ndim))
        after = value.transpose(attrs["perm"])
    elif kind == "reshape":
        after = value.reshape(_factors(rng, value.size))
    elif kind == "expand":
        after = np.broadcast_to(value, tuple(3 if d == 1 and rng.random() < 0.5 else d for d in value.shape))
    else:
        attrs["starts"] = tuple(rng.randrange(d) for d in value.shape)
        attrs["steps"] = tuple(rng.randint(1, 2) for _ in value.shape)
        cut = tuple(slice(a, None, s) for a, s in zip(attrs["starts"], attrs["steps"], strict=True))
        after = value[cut]
    return Op(f"op.{kind}", ("x",), "y", TensorType(after.shape), make_attrs(attrs)), after


@pytest.mark.parametrize("seed", range(5))
def test_views_are_what_numpy_reads(seed: int) -> None:
    rng, affine = random.Random(seed), 0
    for _ in range(2000):
        dims = tuple(rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 4)))
        value = np.arange(prod(dims)).reshape(dims)
        view = contiguous("x", dims)
        for _ in range(rng.randint(1, 4)):
            op, value = _move(rng, value)
            after = moved(view, op)
            if after is None:
                break
            view = after
            places = sum((i * s for i, s in zip(np.indices(value.shape), view.steps, strict=True)), start=view.offset)
            np.testing.assert_array_equal(np.broadcast_to(places, value.shape), value)
            affine += 1
    assert affine > 3000


def test_written_views() -> None:
    """Element i of the value before the moves is found in y where the view says."""
    transpose = Op("op.transpose", ("a",), "b", TensorType((2, 5, 3, 4)), make_attrs({"perm": (0, 2, 1, 3)}))
    reshape = Op("op.reshape", ("b",), "c", TensorType((10, 12)))
    view = written_view([transpose, reshape], (2, 3, 5, 4))
    assert view is not None
    value = np.arange(120).reshape(2, 3, 5, 4)
    y = value.transpose(0, 2, 1, 3).reshape(-1)
    places = sum(i * s for i, s in zip(np.indices(value.shape), view.steps, strict=True))
    np.testing.assert_array_equal(y[places], value)


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.name)
def test_powers_of_two_and_three(way: Any, tmp_path: Path) -> None:
    nets = []
    for exponent in (2.0, 3.0, 2.5):
        x = tensors(3, (5, 20), special=True)
        constants = {"e": np.array([exponent], dtype=np.float32)}
        nets.append(compiled(f"pow_{exponent}", model([node("Pow", "x e", "y")], {"x": x}, constants, ["y"]), {"x": x}))
    kinds = [[o.kind for f in n.module.graphs[1:] for o in f.ops] for n in nets]
    assert kinds == [["mul"], ["mul", "mul"], ["pow"]]
    assert differing(nets, way, tmp_path) == {}
