"""Models for the tests of the doors (a module of its own: several folders have a ``conftest``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHARED = Path(__file__).resolve().parents[3] / "shared" / "models"
"""Real models beside the checkout; they are not part of the project."""


def two_branches(batch: str = "N") -> bytes:
    """Two inputs ``a`` [N, 6] and ``b`` [N, 6]; outputs ``sum`` = tanh(a W) + b and ``gate`` = sigmoid(b)."""
    weight = np.random.default_rng(5).standard_normal((6, 6)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["a", "w"], ["m"], "matmul"),
        helper.make_node("Tanh", ["m"], ["t"], "tanh"),
        helper.make_node("Add", ["t", "b"], ["sum"], "add"),
        helper.make_node("Sigmoid", ["b"], ["gate"], "sigmoid"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "branches",
        [info("a", TensorProto.FLOAT, [batch, 6]), info("b", TensorProto.FLOAT, [batch, 6])],
        [info("sum", TensorProto.FLOAT, [batch, 6]), info("gate", TensorProto.FLOAT, [batch, 6])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="doors")
    model.model_version, model.doc_string, model.domain = 4, "two branches", "org.example"
    entry = model.metadata_props.add()
    entry.key, entry.value = "labels", "a,b"
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def odd_signature() -> bytes:
    """Every kind of dimension and several types; nothing computes: for reading signatures only."""
    info = helper.make_tensor_value_info
    inputs = [
        info("half", TensorProto.FLOAT16, ["batch", None, 3]),
        info("ids", TensorProto.INT64, [1, "seq"]),
        info("mask", TensorProto.BOOL, []),
        info("wide", TensorProto.DOUBLE, [2]),
        info("bytes", TensorProto.UINT8, [2, 2]),
        info("weight", TensorProto.FLOAT, [2]),
    ]
    nodes = [helper.make_node("Identity", [i.name], [f"{i.name}_out"], i.name) for i in inputs]
    outputs = [onnx.ValueInfoProto.FromString(i.SerializeToString()) for i in inputs]
    for item in outputs:
        item.name += "_out"
    graph = helper.make_graph(nodes, "odd", inputs, outputs, [numpy_helper.from_array(np.zeros(2, "f4"), "weight")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())
