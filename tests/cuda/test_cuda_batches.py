"""A row of a batch has the bits it has alone: on the GPU as anywhere."""

from __future__ import annotations

import emulation
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.compile import freeze_model


def _model() -> bytes:
    """x [N, 16, 12, 12] through two convolutions that have a Winograd form, a pool and a product, to y [N, 3]."""
    rng = np.random.default_rng(4)
    shapes = {"w1": (32, 16, 3, 3), "w2": (16, 32, 3, 3), "m": (576, 3)}
    weights = [numpy_helper.from_array((rng.standard_normal(s) / 12).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "second", pads=[1] * 4),
        helper.make_node("MaxPool", ["c"], ["d"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["d"], ["e"], "flatten"),
        helper.make_node("Gemm", ["e", "m"], ["y"], "product"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16, 12, 12])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])]
    graph = helper.make_graph(nodes, "batches", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _arithmetic(batch):
    frozen = freeze_model(_model(), {"x": (batch, 16, 12, 12)})
    return [op.str_("arithmetic") if op.has("arithmetic") else "direct" for op in frozen.module.main.ops]


def test_the_arithmetic_of_a_convolution_does_not_depend_on_the_batch():
    assert _arithmetic(1) == _arithmetic(3) == _arithmetic(32)


@pytest.mark.parametrize("batch", [2, 3])
def test_rows_of_a_batch_equal_the_engine_s_rows_alone(batch):
    module, store = emulation.lowered(_model(), {"x": (batch, 16, 12, 12)})
    x = emulation.random_input(module.main.inputs[0].type, batch)
    got = emulation.run_module(module, store, [x])["y"]
    one = emulation.engine_outputs
    for row in range(batch):
        alone = one(_model(), {"x": x[row : row + 1]}, input_shapes={"x": (1, 16, 12, 12)})["y"]
        assert alone.tobytes() == got[row : row + 1].tobytes()
