"""The binary64 yardstick: the vectors' graphs in it agree with CA-1 to binary32's precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evidence.reference import run
from evidence.reference.vector_model import Vector
from evidence.reference.vector_nodes import reference_graph
from evidence.reference.vectors import expected_output, load_vectors

# Extremes that binary32 cannot hold, and the function body whose overflow comes at another place in binary64.
EXTREME = ("special", "wide", "overflow", "underflow", "subnormal", "infinities", "softplus", "pow_scalar")
# 700 steps of feedback enlarge every rounding; the direction and outputs are tested on shorter sequences.
LONG = ("x700x",)
VECTORS = [
    v
    for v in load_vectors(Path(__file__).parents[2] / "docs" / "vectors" / "ca1.json")
    if not any(word in v.name for word in (*EXTREME, *LONG))
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.name)
def test_float64_is_the_same_function(vector: Vector) -> None:
    graph, inputs = reference_graph(vector.onnx_model_parts())
    exact = run(graph, inputs, "float64")["y"]
    canonical = expected_output(vector)
    assert exact.dtype == np.float64
    assert exact.shape == canonical.shape
    scale = np.abs(exact[np.isfinite(exact)]).max(initial=0)
    np.testing.assert_allclose(canonical, exact, rtol=2e-6, atol=1e-6 * scale)


def test_binary64_sums_are_closer_to_the_truth() -> None:
    """A sum that cancels in binary32 does not in the yardstick."""
    vector = next(v for v in VECTORS if v.name == "gemm_k5000")
    parts = vector.onnx_model_parts()
    graph, inputs = reference_graph(parts)
    a, b, c = (v.astype(np.longdouble) for v in (inputs["a"], parts.initializers["b"], parts.initializers["c"]))
    exact = run(graph, inputs, "float64")["y"]
    np.testing.assert_allclose(exact, (a @ b + c).astype(np.float64), rtol=1e-12)
