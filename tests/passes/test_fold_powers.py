"""Powers of constants are folded where binary64 holds them exactly, and left to the engine elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.compile import freeze_model


def _kinds(base, exponent):
    nodes = [helper.make_node("Pow", ["b", "e"], ["p"]), helper.make_node("Mul", ["x", "p"], ["y"])]
    value = helper.make_tensor_value_info
    constants = [numpy_helper.from_array(np.asarray(v, np.float32), n) for n, v in (("b", base), ("e", exponent))]
    inputs, outputs = [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, [4])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    frozen = freeze_model(model.SerializeToString())
    weights = [frozen.store.get(w) for w in frozen.module.main.weights]
    return [op.kind for op in frozen.module.main.ops], weights


@pytest.mark.parametrize(
    ("base", "exponent", "value"),
    [(64.0, -0.5, 0.125), (16.0, 0.25, 2.0), (1.5, 3.0, 3.375), ([4.0, 9.0, 1.0, 0.25], 0.5, [2, 3, 1, 0.5])],
)
def test_an_exact_power_is_a_constant(base, exponent, value):
    kinds, weights = _kinds(base, exponent)
    assert kinds == ["mul"]
    assert [w.tolist() for w in weights] == [np.float32(value).tolist()]


@pytest.mark.parametrize(
    ("base", "exponent"),
    [(2.0, 0.5), (3.0, -1.0), (-8.0, 2.0), (0.0, 2.0), (1.5, 64.0), (2.0, 300.0), ([4.0, 2.0, 1.0, 1.0], 0.5)],
)
def test_any_other_power_stays(base, exponent):
    assert _kinds(base, exponent)[0] == ["pow", "mul"]
