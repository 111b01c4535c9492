"""Random small ONNX models with residual adds, views, fan-out, in-place chances and several outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]


class Builder:
    """Grows a graph of 4-D tensors statement by statement from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        channels, size = int(self.rng.choice([1, 3, 8, 12, 16])), int(self.rng.choice([4, 5, 8]))
        self.input = ("x", (1, channels, size, size))
        self.values: list[tuple[str, tuple[int, ...]]] = [self.input]

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        array = (self.rng.standard_normal(shape) / max(1, np.sqrt(np.prod(shape[1:])))).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def emit(self, op: str, operands: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], name=f"n{len(self.nodes)}", **attrs))
        self.values.append((name, shape))
        return name

    def pick(self, shape: tuple[int, ...] | None = None) -> tuple[str, tuple[int, ...]]:
        pool = [v for v in self.values if shape is None or v[1] == shape]
        return pool[int(self.rng.integers(len(pool)))]

    def step(self) -> None:
        name, shape = self.pick()
        kind = self.rng.choice(["conv", "unary", "binary", "pool", "bn", "concat", "reshape", "channel"])
        n, c, h, w = shape
        if kind == "conv":
            out, k = int(self.rng.choice([4, 8, 16, 20])), int(self.rng.choice([1, 3]))
            bias = [self.weight(out)] if self.rng.random() < 0.5 else []
            operands = [name, self.weight(out, c, k, k), *bias]
            self.emit("Conv", operands, (n, out, h, w), pads=[k // 2] * 4)
        elif kind == "unary":
            self.emit(str(self.rng.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Abs"])), [name], shape)
        elif kind == "binary":
            other, _ = self.pick(shape)
            self.emit(str(self.rng.choice(["Add", "Sub", "Mul", "Max", "Min"])), [name, other], shape)
        elif kind == "pool" and h > 2:
            op = str(self.rng.choice(["MaxPool", "AveragePool"]))
            out = (h - 2) // 2 + 1
            self.emit(op, [name], (n, c, out, out), kernel_shape=[2, 2], strides=[2, 2])
        elif kind == "bn":
            parts = [self.weight(c), self.weight(c), self.weight(c)]
            variance = numpy_helper.from_array(
                self.rng.random(c).astype(np.float32) + np.float32(0.5), f"w{len(self.weights)}"
            )
            self.weights.append(variance)
            self.emit("BatchNormalization", [name, *parts, variance.name], shape)
        elif kind == "concat":
            pool = [v for v in self.values if v[1][2:] == shape[2:]]
            other, other_shape = pool[int(self.rng.integers(len(pool)))]
            if c + other_shape[1] <= 48:
                self.emit("Concat", [name, other], (n, c + other_shape[1], h, w), axis=1)
        elif kind == "reshape":
            target = numpy_helper.from_array(np.array([1, c, w, h], dtype=np.int64), f"w{len(self.weights)}")
            self.weights.append(target)
            self.emit("Reshape", [name, target.name], (1, c, w, h))
        elif kind == "channel":
            self.emit("Mul", [name, self.weight(1, c, 1, 1)], shape)


def random_model(seed: int, steps: int = 12) -> bytes:
    """A serialised model (opset 17) with one input ``x`` and one to three outputs, one of which may be inner."""
    builder = Builder(seed)
    while len(builder.nodes) < steps:
        builder.step()
    outputs = [builder.values[-1]]
    for _ in range(int(builder.rng.integers(3))):
        extra = builder.values[1 + int(builder.rng.integers(len(builder.values) - 1))]
        if extra not in outputs:
            outputs.append(extra)
    graph = helper.make_graph(
        builder.nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, builder.input[1])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        builder.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
