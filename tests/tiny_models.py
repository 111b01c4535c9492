"""A model and a policy small enough to build in seconds (a module of its own: several folders have a ``conftest``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ModelMaker = Callable[..., Path]

POLICY = """\
version: 1
model: {name: tiny, version: "1.0"}
inputs:
  image: {shape: [1, 1, 8, 8], finite: true, range: [0.0, 1.0]}
outputs:
  prob: {finite: true}
"""


def tiny_model_bytes(seed: int = 0, batch: int | str = "N") -> bytes:
    """Conv, Relu, GlobalAveragePool, Flatten, Gemm, Softmax: image [batch, 1, 8, 8] to prob [batch, 2]."""
    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["g"], "pool"),
        helper.make_node("Flatten", ["g"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "m", "n"], ["l"], "gemm"),
        helper.make_node("Softmax", ["l"], ["prob"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 1, 8, 8])],
        [helper.make_tensor_value_info("prob", TensorProto.FLOAT, [batch, 2])],
        [weight("w", 4, 1, 3, 3), weight("b", 4), weight("m", 4, 2), weight("n", 2)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
