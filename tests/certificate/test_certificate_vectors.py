"""Every operator against the vector file of CA-1: the engine's bits lie within a few roundings of the exact result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler_kernels.errors import UnsupportedError
from evidence.certificate.ball import Ball, BallArithmetic, distance
from evidence.certificate.evaluate import CERTIFIED, evaluate_balls
from evidence.reference.graph import RefGraph
from evidence.reference.typed import from_bfloat16
from evidence.reference.vector_model import Vector
from evidence.reference.vector_nodes import reference_graph
from evidence.reference.vectors import expected_output, load_vectors

FILE = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "ca1.json"
Array = npt.NDArray[Any]
NO_BOUND = (
    "edges", "special", "run_time", "_open", "causal", "mask", "sequence_lengths", "pow_int32", "pow_float32_int",
    "pow_scalar", "and_nan", "exp_wide", "tf_crop", "2d_crop", "mul_float64", "div_float64", "less_float",
    "less_bfloat", "equal_float", "equal_bfloat", "sin_float", "cos_float",
    "scores_mode3", "attention_float16", "attention_bfloat16",
)  # fmt: skip
"""Parts of names: overflow, infinities and NaN among the values, of which a certificate says that it knows nothing."""
ROUNDINGS = {"float32": 2.0**-16, "float64": 2.0**-43, "float16": 2.0**-9, "bfloat16": 2.0**-6}


LEAST = {"float32": 1e-30, "float64": 1e-30, "float16": 1e-7, "bfloat16": 1e-30}


@pytest.fixture(scope="module")
def vectors() -> list[Vector]:
    return load_vectors(FILE)


def _narrowest(graph: RefGraph) -> str:
    types = {n.dtype for n in graph.nodes} | {t.dtype for t in graph.inputs}
    return next((t for t in ("bfloat16", "float16", "float32", "float64") if t in types), "float32")


def check(vector: Vector) -> str:
    graph, inputs = reference_graph(vector.onnx_model_parts())
    words = 7
    try:
        found = evaluate_balls(graph, inputs, words).values["y"]
    except UnsupportedError as error:
        assert any(node.op not in CERTIFIED for node in graph.nodes) or "activation" in str(error)
        return "refused"
    expected = expected_output(vector)
    expected = from_bfloat16(expected) if expected.dtype.kind == "V" else expected
    if not isinstance(found, Ball):
        assert (found == expected).all()
        return "exact"
    bound = distance(BallArithmetic(words), found, expected)
    finite = np.isfinite(expected)
    assert not np.isfinite(bound[~finite]).any()  # an overflow or NaN of the engine never has a bound
    if any(part in vector.name for part in NO_BOUND):
        return "no bound asked for"
    wide = np.abs(expected.astype(np.float64))
    largest = float(np.max(wide[finite], initial=0.0))
    allowed = ROUNDINGS[_narrowest(graph)] * np.maximum(wide, 0.5 * largest) + LEAST[_narrowest(graph)]
    assert (bound[finite] <= allowed[finite]).all(), (vector.name, float(np.max(bound[finite])), found.radius.max())
    return "bounded"


def _checked(chosen: list[Vector]) -> Counter[str]:
    with np.errstate(all="ignore"):
        return Counter(check(vector) for vector in chosen)


def test_some_of_the_vectors(vectors: list[Vector]) -> None:
    found = _checked(vectors[3::25])
    assert found["bounded"] > 30
    assert found["exact"] > 3


@pytest.mark.slow
def test_all_vectors(vectors: list[Vector]) -> None:
    found = _checked(vectors)
    assert found["bounded"] > 1000
