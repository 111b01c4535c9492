"""Integer and quantised graphs: ties, values in doubt, and integers that could wrap."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from exact_case import one_node

from compiler_kernels.errors import UnsupportedError
from evidence.certificate import fixed, selection
from evidence.certificate.ball import Ball, BallArithmetic
from evidence.certificate.evaluate import evaluate_balls, one
from evidence.certificate.report import certify
from evidence.reference import run
from evidence.reference.graph import RefGraph, RefNode, RefTensor

AR = BallArithmetic(7)
Array = npt.NDArray[Any]


def _node(op: str, dtype: str, count: int, **attrs: Any) -> RefNode:
    return RefNode(op, ("a", "b"), "y", (count,), dtype, attrs, op, "y")


def _round_half_even(value: Fraction) -> int:
    return round(value)  # Python rounds fractions to even


@pytest.mark.parametrize("scale", [0.25, 0.1, 0.0078125])
def test_quantisation_is_exact_ties_included(scale: float) -> None:
    wide = np.float32(scale)
    x = np.concatenate([np.arange(-40, 41, dtype=np.float32) * wide * np.float32(0.5), np.float32([1e9, -1e9, 0.3])])
    zero = np.array(3, np.int8)
    node = _node("quantize", "int8", len(x), to="int8")
    found = selection.quantize(AR, node, AR.number(x), AR.number(np.asarray(wide)), zero)
    assert isinstance(found, np.ndarray)  # nothing in doubt: the operands are exact numbers
    exact = [min(127, max(-128, _round_half_even(Fraction(float(v)) / Fraction(float(wide))) + 3)) for v in x]
    assert found.tolist() == exact


@pytest.mark.parametrize("radius", [1e-12, 0.01, 0.3, 5.0])
def test_a_step_within_the_ball_keeps_both_sides(radius: float) -> None:
    centres = np.array([0.4999, 0.5, 0.7, 1.5, -2.5, 126.9, 127.4, 140.0])
    x = Ball(AR.number(centres).centre, np.full(len(centres), radius))
    found = selection.quantize(AR, _node("quantize", "int8", len(centres), to="int8"), x, AR.fraction(1), None)
    ball = found if isinstance(found, Ball) else AR.number(found)
    for k, c in enumerate(centres):
        for place in (-1, Fraction(-1, 2), 0, Fraction(1, 3), 1):
            exact = min(127, max(-128, _round_half_even(Fraction(float(c)) + Fraction(radius) * place)))
            assert abs(fixed.to_fraction(ball.centre, (k,)) - exact) <= Fraction(float(ball.radius[k]))


@pytest.mark.parametrize("kind", ["floor", "ceil", "trunc", "round"])
@pytest.mark.parametrize("radius", [0.0, 1e-9, 0.4, 3.0])
def test_steps_of_every_kind(kind: str, radius: float) -> None:
    import math

    function = {"floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round}[kind]
    centres = np.array([-3.0, -2.5, -0.5, -1e-9, 0.0, 0.5, 1.0, 1.5, 2.999999999, 7.25])
    ball = selection.whole(AR, Ball(AR.number(centres).centre, np.full(len(centres), radius)), kind)
    assert radius > 0 or not ball.radius.any()
    for k, c in enumerate(centres):
        for place in (-1, Fraction(-1, 3), 0, Fraction(1, 2), 1):
            exact = function(Fraction(float(c)) + Fraction(radius) * place)
            assert abs(fixed.to_fraction(ball.centre, (k,)) - exact) <= Fraction(float(ball.radius[k]))


def test_integers_in_doubt_that_could_wrap_are_unknown() -> None:
    a = Ball(AR.number(np.array([100.0, 100.0, 3.0])).centre, np.array([30.0, 10.0, 0.5]))
    b = AR.number(np.array([0.0, 10.0, 1.0]))
    found = one(AR, _node("add", "int8", 3), [a, b], "int8")
    assert isinstance(found, Ball)
    assert np.isinf(found.radius).tolist() == [True, False, False]
    for op in ("div", "pow", "mod", "bit_and"):
        unknown = one(AR, _node(op, "int32", 3), [a, b], "int32")
        assert isinstance(unknown, Ball)
        assert np.isinf(unknown.radius).all()
    cast = one(AR, _node("cast", "uint8", 3, to="uint8"), [AR.sub(a, AR.fraction(101)), None], "int32")
    assert isinstance(cast, Ball)
    assert np.isinf(cast.radius).all()  # negative numbers wrap in a cast between integer types


def test_a_quantised_graph_is_bounded_and_doubt_is_named() -> None:
    """x / scale on a tie is decided exactly; what comes from an inexact operation and lies on a tie is in doubt."""
    f = "float32"
    nodes = (
        RefNode("reciprocal", ("x",), "r", (2,), f, {}, "r", "r"),
        RefNode("mul", ("r", "three"), "t", (2,), f, {}, "t", "t"),
        RefNode("quantize", ("t", "scale", "zero"), "q", (2,), "int8", {"to": "int8"}, "q", "q"),
        RefNode("dequantize", ("q", "scale", "zero"), "y", (2,), f, {}, "y", "y"),
    )
    weights: dict[str, Array] = {
        "three": np.float32([3, 3]), "scale": np.array(2, np.float32), "zero": np.array(0, np.int8),
    }  # fmt: skip
    graph = RefGraph("q", (RefTensor("x", "x", (2,), f),), weights, nodes, (("y", "y"),))
    x = {"x": np.float32([3.0, 0.7])}  # 3 (1/3) / 2 is a tie, and no ball around 1/3 shows it; 3 / 0.7 / 2 is none
    made = certify(graph, x, run(graph, x))
    assert made.doubts and "step" in made.doubts[0][1]
    assert made.bounds["y"][0] >= 2.0
    assert made.bounds["y"][1] < 1e-6


def test_an_index_in_doubt_makes_what_it_selects_unknown() -> None:
    graph = one_node("reciprocal", (2,), {})
    nodes = (
        *graph.nodes,
        RefNode("mul", ("y", "w"), "p", (2,), "float32", {}, "p", "p"),
        RefNode("arg_max", ("p",), "i", (1,), "int64", {"axis": 0, "keepdims": 1, "select_last": 0}, "i", "i"),
        RefNode("gather", ("x", "i"), "g", (1,), "float32", {"axis": 0}, "g", "g"),
    )
    near = RefGraph("i", graph.inputs, {"w": np.float32([3, 7])}, nodes, (("g", "g"),))
    found = evaluate_balls(near, {"x": np.float32([3, 7])}, 7)  # both products are 1
    ball = found.values["g"]
    assert isinstance(ball, Ball)
    assert np.isinf(ball.radius).all()
    assert found.reasons
    clear = evaluate_balls(near, {"x": np.float32([3, 9])}, 7).values["g"]
    assert isinstance(clear, Ball)
    assert clear.exact


def test_no_certificate_of_sums_that_are_too_long() -> None:
    graph = RefGraph(
        "long", (RefTensor("x", "x", (1, 40000), "float32"),), {"w": np.zeros((40000, 1), np.float32)},
        (RefNode("matmul", ("x", "w"), "y", (1, 1), "float32", {}, "m", "y"),), (("y", "y"),),
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="sum of 40000 products"):
        evaluate_balls(graph, {"x": np.zeros((1, 40000), np.float32)}, 7)
