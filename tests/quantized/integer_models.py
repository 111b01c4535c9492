"""Random integer convolutions and products with the requantisation behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT}


@dataclass(frozen=True)
class Drawn:
    op: str
    model: ModelProto
    inputs: dict[str, Array]


def draw(seed: int) -> Drawn:
    """QLinearConv of one group or several and one or two axes, QLinearMatMul, or a quantised Conv between floats."""
    rng = np.random.default_rng(seed)
    return [_convolution, _product, _product, _between_floats][seed % 4 if seed % 8 else 0](rng)


def _integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape, dtype=dtype)


def _scales(rng: np.random.Generator, count: int) -> Array:
    return rng.uniform(1e-3, 2e-2, count).astype(np.float32) if count else np.float32(rng.uniform(1e-3, 2e-2))


def _model(op: str, nodes: list[Any], inputs: dict[str, Array], constants: dict[str, Array], to: str) -> Drawn:
    graph = helper.make_graph(
        nodes,
        "drawn",
        [helper.make_tensor_value_info(n, TYPES[a.dtype.name], a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info("y", TYPES[to], None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return Drawn(op, model, inputs)


def _window(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Sizes of the image, of the kernel, and attributes."""
    axes = int(rng.integers(1, 3))
    size = tuple(int(v) for v in rng.integers(9, 34, axes))
    kernel = tuple(int(v) for v in rng.integers(1, 4, axes))
    attributes = {
        "strides": [int(v) for v in rng.integers(1, 3, axes)],
        "dilations": [int(v) for v in rng.integers(1, 3, axes)],
        "pads": [int(v) for v in rng.integers(0, 3, 2 * axes)],
    }
    return size, kernel, attributes


def _convolution(rng: np.random.Generator) -> Drawn:
    size, kernel, attributes = _window(rng)
    group = int(rng.choice([1, 1, 1, 3, 16]))
    most = 20 if group == 1 else 3
    channels, outputs = (int(v) * group for v in (rng.integers(1, most), rng.choice([1, 5, 16, 20, 33, 40][:most])))
    kind = str(rng.choice(["int8", "uint8"]))
    count = outputs if rng.random() < 0.7 else 0
    constants: dict[str, Array] = {
        "sx": _scales(rng, 0), "zx": _integers(rng, (), kind) if rng.random() < 0.7 else np.zeros((), kind),
        "w": _integers(rng, (outputs, channels // group, *kernel), "int8"),
        "sw": _scales(rng, count), "zw": np.zeros(count, "int8") if count else np.zeros((), "int8"),
        "sy": np.float32(0.05 * channels), "zy": _integers(rng, (), kind),
    }  # fmt: skip
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    if rng.random() < 0.7:
        constants["b"] = rng.integers(-5000, 5000, outputs, dtype=np.int32)
        names.append("b")
    node = helper.make_node("QLinearConv", names, ["y"], name="conv", group=group, **attributes)
    x = _integers(rng, (int(rng.integers(1, 3)), channels, *size), kind)
    return _model("QLinearConv", [node], {"x": x}, constants, kind)


def _product(rng: np.random.Generator) -> Drawn:
    lead = tuple(int(v) for v in rng.integers(1, 4, rng.integers(0, 2)))
    rows, depth, columns = int(rng.integers(1, 120)), int(rng.integers(1, 90)), int(rng.integers(1, 300))
    kind = str(rng.choice(["int8", "uint8"]))
    count = columns if rng.random() < 0.5 else 0
    zero = np.zeros((), kind) if rng.random() < 0.4 else _integers(rng, (), kind)
    constants: dict[str, Array] = {
        "sa": _scales(rng, 0), "za": zero, "b": _integers(rng, (depth, columns), "int8"),
        "sb": _scales(rng, count), "zb": np.zeros(count, "int8") if count else np.zeros((), "int8"),
        "sy": np.float32(0.02 * depth), "zy": _integers(rng, (), kind),
    }  # fmt: skip
    node = helper.make_node("QLinearMatMul", ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["y"], name="product")
    return _model("QLinearMatMul", [node], {"a": _integers(rng, (*lead, rows, depth), kind)}, constants, kind)


def _between_floats(rng: np.random.Generator) -> Drawn:
    """x -> Q -> DQ -> Conv -> Relu -> Q -> DQ, as exporters write it."""
    size, kernel, attributes = _window(rng)
    channels, outputs = int(rng.integers(1, 12)), int(rng.choice([3, 16, 24]))
    constants: dict[str, Array] = {
        "sx": np.float32(0.03), "zx": np.array(rng.integers(-9, 9), np.int8), "sy": np.float32(0.2), "zy": np.int8(-7),
        "w": _integers(rng, (outputs, channels, *kernel), "int8"), "sw": _scales(rng, outputs),
        "zw": np.zeros(outputs, "int8"),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "sx", "zx"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wf"], axis=0),
        helper.make_node("Conv", ["xf", "wf"], ["c"], name="conv", **attributes),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "sy", "zy"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "sy", "zy"], ["y"]),
    ]
    x = rng.normal(size=(1, channels, *size)).astype(np.float32)
    return _model("Conv", nodes, {"x": x}, constants, "float32")
