"""Small ONNX models, built operator by operator."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto, helper, numpy_helper


@dataclass
class Builder:
    """One ONNX model of several independent parts, so that a test compiles once."""

    seed: int = 0
    nodes: list = field(default_factory=list)
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    constants: list = field(default_factory=list)

    def fresh(self) -> str:
        return f"v{len(self.nodes) + len(self.inputs) + len(self.constants)}"

    def input(self, *shape: int) -> str:
        name = self.fresh()
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, *shape: int, dtype=np.float32, values=None) -> str:
        name = self.fresh()
        if values is None:
            values = np.random.default_rng([self.seed, len(self.constants)]).standard_normal(shape)
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def op(self, kind: str, *operands: str, outputs: int = 1, **attributes) -> str:
        name = self.fresh()
        names = [name, *(f"{name}_{n}" for n in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, operands, names, **attributes))
        return name

    def output(self, name: str) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def model(self, opset: int = 17) -> bytes:
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.constants)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9
        ).SerializeToString()
