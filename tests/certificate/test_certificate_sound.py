"""Certificates of whole graphs against exact rational results, and of single operators against mpmath."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from exact_case import exact, network, one_node
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler_kernels.errors import UnsupportedError, UsageError, VerificationFailed
from evidence.certificate.decisions import parse_threshold
from evidence.certificate.evaluate import evaluate_balls
from evidence.certificate.report import certify
from evidence.reference import run
from evidence.reference.graph import RefGraph, RefNode


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 3.0]))
def test_the_bound_holds_the_true_error_of_every_layer(seed: int, scale: float) -> None:
    graph, inputs = network(seed, scale)
    values = run(graph, inputs, "ca1", keep="all")
    true = exact(graph, inputs)
    made = certify(graph, inputs, {"z": values["z"]}, layers=True)
    for row in made.layers or []:
        tensor = next(n.output for n in graph.nodes if n.node == row["node"])
        errors = [abs(Fraction(float(a)) - t) for a, t in zip(values[tensor].flat, true[tensor].flat, strict=True)]
        assert max(errors) <= Fraction(float(row["bound"]))  # type: ignore[arg-type]
        assert max(errors) <= Fraction(float(row["forward_bound"]))  # type: ignore[arg-type]
        assert float(row["bound"]) <= float(max(errors)) * 1.001 + 1e-25  # type: ignore[arg-type]
    for k in range(3):
        error = abs(Fraction(float(values["z"][0, k])) - true["z"][0, k])
        assert error <= Fraction(float(made.bounds["z"][0, k]))


def test_an_engine_that_is_wrong_by_one_bit_gets_a_larger_bound() -> None:
    graph, inputs = network(3)
    right = run(graph, inputs)["z"]
    wrong = right.copy()
    wrong[0, 1] = np.nextafter(wrong[0, 1], np.float32(np.inf))
    apart = float(wrong[0, 1]) - float(right[0, 1])
    one, other = (certify(graph, inputs, {"z": z}).bounds["z"] for z in (right, wrong))
    assert max(one[0, 1], other[0, 1]) >= apart / 2
    assert one[0, 0] == other[0, 0]
    with pytest.raises(VerificationFailed, match="differ in their bits"):
        certify(graph, inputs, {"z": wrong}, layers=True)


@pytest.mark.parametrize("seed", range(12))
def test_a_threshold_within_the_rounding_error_is_never_certified(seed: int) -> None:
    """The threshold is put between the engine's number and the exact one, or on the engine's number itself."""
    graph, inputs = network(seed)
    engine = run(graph, inputs)["z"]
    true = exact(graph, inputs)["z"]
    for k in range(3):
        a, t = float(engine[0, k]), true[0, k]
        if Fraction(a) == t:
            continue
        # ">= a" holds for the engine; for the exact number it holds if that is larger.
        made = certify(
            graph, inputs, {"z": engine}, [parse_threshold(f"z[0,{k}]>={a!r}"), parse_threshold(f"z[0,{k}]<={a!r}")]
        )
        assert [d["status"] == "certified" for d in made.decisions] == [t > Fraction(a), t < Fraction(a)]
        assert not made.certified
        far = certify(graph, inputs, {"z": engine}, [parse_threshold(f"z[0,{k}]>={a - abs(a) - 1}")])
        assert far.certified


def test_what_is_exactly_on_the_threshold_but_not_known_exactly_is_not_certified() -> None:
    """3 (1/3) is 1, but a ball around 1/3 has a radius at every precision."""
    f = "float32"
    graph = one_node("reciprocal", (1,), {})
    node = RefNode("mul", ("y", "w"), "z", (1,), f, {}, "times", "z")
    graph = RefGraph("third", graph.inputs, {"w": np.array([3], np.float32)}, (*graph.nodes, node), (("z", "z"),))
    x = {"x": np.array([3], np.float32)}
    made = certify(graph, x, run(graph, x), [parse_threshold("z[0]>=1")])
    assert made.decisions[0]["status"] == "not certified"
    assert 0 < float(made.outputs[0]["radius"]) < 1e-30  # type: ignore[arg-type]


def test_the_largest_class() -> None:
    graph, inputs = network(5)
    engine = run(graph, inputs)["z"]
    made = certify(graph, inputs, {"z": engine}, largest=["z"])
    true = exact(graph, inputs)["z"]
    assert made.decisions[0]["status"] == "certified"
    assert made.decisions[0]["class"] == max(range(3), key=lambda k: true[0, k])
    swapped = engine.copy()
    swapped[0, int(np.argmin(engine))] = engine.max() + 1
    assert certify(graph, inputs, {"z": swapped}, largest=["z"]).decisions[0]["status"] == "changed by rounding"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("z", "not of the form"),
        ("z>=nan", "not of the form"),
        ("z>=1e999", "not of the form"),
        ("q>=1", "no output 'q'"),
        ("z[0]>=1", "give 2 numbers"),
        ("z[0,3]>=1", "within it"),
    ],
)
def test_a_bad_threshold_is_one_sentence(text: str, words: str) -> None:
    graph, inputs = network(1)
    with pytest.raises(UsageError, match=words):
        certify(graph, inputs, run(graph, inputs), [parse_threshold(text)])


def test_an_operator_without_certificate_is_refused_by_name() -> None:
    graph = one_node("atanh", (2,), {})
    with pytest.raises(UnsupportedError, match="operator 'atanh'"):
        evaluate_balls(graph, {"x": np.zeros(2, np.float32)}, 6)
