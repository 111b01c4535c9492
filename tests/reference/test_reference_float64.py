"""The binary64 yardstick: the vectors' graphs in it agree with CA-1 to binary32's precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evidence.reference import run
from evidence.reference.vector_model import Vector
from evidence.reference.vector_nodes import reference_graph
from evidence.reference.vectors import expected_output, load_vectors
from evidence.vector_engines import onnx_array

# Extremes that binary32 cannot hold, and the function body whose overflow comes at another place in binary64.
EXTREME = ("special", "wide", "overflow", "underflow", "subnormal", "infinities", "softplus", "pow_scalar")
EXTREME += ("edges", "sinh_float32", "cosh_float32", "bitcast", "reduceprod_float16")
# 700 steps of feedback enlarge every rounding; the direction and outputs are tested on shorter sequences.
LONG = ("x700x",)
# Relative differences by element type: the yardstick does not round to half types at all. Integers wrap and are no
# approximation of anything.
STEPS = {"float32": 2e-6, "float64": 2e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
VECTORS = [
    v
    for v in load_vectors(Path(__file__).parents[2] / "docs" / "vectors" / "ca1.json")
    if not any(word in v.name for word in (*EXTREME, *LONG)) and v.expected.dtype in STEPS
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.name)
def test_float64_is_the_same_function(vector: Vector) -> None:
    graph, inputs = reference_graph(vector.onnx_model_parts())
    exact = run(graph, inputs, "float64")["y"]
    canonical = expected_output(vector)
    assert exact.dtype == np.float64
    assert exact.shape == canonical.shape
    scale = np.abs(exact[np.isfinite(exact)]).max(initial=0)
    rtol = STEPS[vector.expected.dtype]
    found = onnx_array(canonical).astype(np.float64)
    if canonical.dtype.itemsize == 2:  # a half type overflows where binary64 does not
        exact = np.where(np.isinf(found) & (np.abs(exact) > 6e4), found, exact)
        scale = np.abs(exact[np.isfinite(exact)]).max(initial=0)
    np.testing.assert_allclose(found, exact, rtol=rtol, atol=rtol / 2 * scale)


def test_binary64_sums_are_closer_to_the_truth() -> None:
    """A sum that cancels in binary32 does not in the yardstick."""
    vector = next(v for v in VECTORS if v.name == "gemm_k5000")
    parts = vector.onnx_model_parts()
    graph, inputs = reference_graph(parts)
    a, b, c = (v.astype(np.longdouble) for v in (inputs["a"], parts.initializers["b"], parts.initializers["c"]))
    exact = run(graph, inputs, "float64")["y"]
    np.testing.assert_allclose(exact, (a @ b + c).astype(np.float64), rtol=1e-12)
