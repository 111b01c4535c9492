"""One-node models: builder and the table of cases, one row per operator form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Operand = tuple[int, ...] | np.ndarray | None


def f(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """A float32 constant."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def one_node(op: str, operands: list[Operand], opset: int, outputs: int = 1, **attrs: object) -> bytes:
    """A model of one node: a tuple is the shape of a run-time input, an array an initialiser, ``None`` absent."""
    names, inputs, constants = [], [], []
    for index, operand in enumerate(operands):
        names.append("" if operand is None else f"x{index}")
        if isinstance(operand, np.ndarray):
            constants.append(numpy_helper.from_array(operand, names[-1]))
        elif operand is not None:
            inputs.append(helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, operand))
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(op, names, results, name="the_node", **attrs)
    declared = [helper.make_tensor_value_info(r, TensorProto.FLOAT, None) for r in results]
    graph = helper.make_graph([node], "case", inputs, declared, constants)
    return model_bytes(graph, opset)


def model_bytes(graph: onnx.GraphProto, opset: int, **more: object) -> bytes:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, **more)
    return bytes(model.SerializeToString())


@dataclass(frozen=True)
class Case:
    """One operator form; ``kinds`` are the L0 operations it must become."""

    op: str
    operands: tuple[Operand, ...]
    opset: int
    kinds: tuple[str, ...]
    attrs: Mapping[str, object] = field(default_factory=dict)
    outputs: int = 1
    positive: bool = False

    @property
    def name(self) -> str:
        shapes = "_".join("x".join(map(str, getattr(o, "shape", o))) for o in self.operands if o is not None)
        extra = "_".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.op}-{self.opset}-{shapes}-{extra}".replace(" ", "")


X4 = (1, 4, 6, 7)
CASES: list[Case] = []


def case(op: str, operands: list[Operand], opset: int, kinds: str, *, outputs: int = 1, **attrs: object) -> None:
    positive = op in ("Log", "Sqrt", "Reciprocal", "Pow")
    CASES.append(Case(op, tuple(operands), opset, tuple(kinds.split()), attrs, outputs, positive))


for opset in (7, 13, 17, 21):
    case("Relu", [X4], opset, "relu")
    case("Add", [X4, f(4, 1, 1)], opset, "add")
for name in "Sigmoid Tanh Erf Exp Log Sqrt Neg Abs Reciprocal Floor Ceil Softplus".split():
    case(name, [X4], 13, name.lower())
case("HardSwish", [X4], 14, "hard_swish")
case("LeakyRelu", [X4], 16, "leaky_relu")
case("Elu", [X4], 7, "elu", alpha=0.3)
case("HardSigmoid", [X4], 13, "hard_sigmoid")
case("HardSigmoid", [X4], 13, "hard_sigmoid", alpha=0.3, beta=0.1)
case("Gelu", [X4], 20, "gelu")
case("Gelu", [X4], 20, "gelu", approximate="tanh")
case("Mish", [X4], 18, "softplus tanh mul")
case("PRelu", [X4, f(4, 1, 1)], 16, "prelu")
case("Sub", [X4, X4], 14, "sub")
case("Mul", [X4, (7,)], 14, "mul")
case("Div", [X4, f(1, low=1, high=2)], 14, "div")
case("Pow", [X4, np.array(2, dtype=np.int64)], 13, "pow")
case("Pow", [X4, np.array(0.5, dtype=np.float32)], 7, "pow")
case("Sum", [X4, (1, 4, 1, 1), X4], 8, "add add")
case("Mean", [X4, X4, X4], 13, "add add div")
case("Max", [X4, X4, X4], 8, "max max")
case("Min", [X4, X4], 13, "min")
case("Max", [X4, X4], 7, "max")
case("Clip", [X4], 7, "clip", min=0.0, max=6.0)
case("Clip", [X4], 10, "clip", min=0.5)
case("Clip", [X4, None, np.array(1.0, np.float32)], 11, "clip")
case("Clip", [X4, np.array(-1.0, np.float32), np.array(1.0, np.float32)], 13, "clip")

W = f(6, 2, 3, 3)
case("Conv", [X4, W], 11, "conv", group=2)
case("Conv", [X4, W, f(6)], 11, "conv", group=2, pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2])
for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
    case("Conv", [(1, 4, 7, 8), f(3, 4, 3, 2)], 11, "conv", auto_pad=mode, strides=[2, 3])
    case("MaxPool", [(1, 4, 7, 8)], 12, "max_pool", auto_pad=mode, kernel_shape=[3, 2], strides=[2, 3])
    case("AveragePool", [(1, 4, 7, 8)], 11, "average_pool", auto_pad=mode, kernel_shape=[3, 2], strides=[2, 2])
    case("ConvTranspose", [(1, 4, 5, 6), f(4, 3, 3, 2)], 11, "conv_transpose", auto_pad=mode, strides=[2, 2])
case("Conv", [(1, 4, 20), f(4, 1, 5)], 7, "conv", group=4, pads=[2, 2])
case("Conv", [(1, 2, 5, 6, 7), f(3, 2, 2, 3, 1)], 11, "conv", pads=[0, 1, 0, 1, 0, 0])
T = f(4, 3, 3, 2)
case("ConvTranspose", [(1, 4, 5, 6), T, f(3)], 11, "conv_transpose", strides=[2, 2], pads=[1, 0, 1, 1])
case("ConvTranspose", [(1, 4, 5, 6), T], 11, "conv_transpose", strides=[3, 2], output_padding=[2, 1])
case("ConvTranspose", [(1, 4, 5, 6), T], 11, "conv_transpose", strides=[2, 2], output_shape=[10, 11])
case("ConvTranspose", [(1, 4, 5, 6), T], 11, "conv_transpose", strides=[2, 2], group=2, dilations=[2, 1])
case("ConvTranspose", [(1, 2, 9), f(2, 2, 4)], 11, "conv_transpose", strides=[2], pads=[1, 1])
case("ConvTranspose", [(1, 2, 3, 4, 3), f(2, 2, 2, 2, 2)], 11, "conv_transpose", strides=[2, 2, 2])
case("MaxPool", [X4], 8, "max_pool", kernel_shape=[2, 2])
case("MaxPool", [X4], 12, "max_pool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], ceil_mode=1)
case("MaxPool", [(1, 2, 9)], 12, "max_pool", kernel_shape=[3], dilations=[2])
case("MaxPool", [(1, 2, 4, 5, 6)], 12, "max_pool", kernel_shape=[2, 2, 2], strides=[2, 2, 2])
case("AveragePool", [X4], 7, "average_pool", kernel_shape=[2, 2], pads=[1, 1, 0, 0], count_include_pad=1)
pooled = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
case("AveragePool", [(1, 1, 4, 4)], 19, "average_pool", count_include_pad=1, **pooled)
case("AveragePool", [(1, 1, 4, 4)], 19, "average_pool", **pooled)
case("GlobalAveragePool", [X4], 13, "global_average_pool")
case("GlobalMaxPool", [(2, 3, 9)], 13, "global_max_pool")

case("Gemm", [(3, 5), f(5, 4), f(4)], 13, "gemm")
case("Gemm", [(5, 3), f(4, 5)], 11, "gemm", transA=1, transB=1, alpha=0.5)
case("Gemm", [(3, 5), (5, 4), (3, 1)], 13, "gemm", beta=0.25)
case("MatMul", [(2, 3, 5), f(5, 4)], 13, "matmul")
case("MatMul", [(5,), (2, 5, 4)], 13, "matmul")
case("Softmax", [(2, 3, 4)], 11, "reshape softmax reshape")
case("Softmax", [(2, 3, 4)], 11, "softmax", axis=2)
case("Softmax", [(2, 3, 4)], 13, "softmax", axis=1)
case("LogSoftmax", [(2, 3, 4)], 13, "log_softmax")
P = [f(4, seed=1), f(4, seed=2), f(4, seed=3), f(4, seed=4, low=0.5)]
case("BatchNormalization", [X4, *P], 7, "batch_normalization")
case("BatchNormalization", [X4, *P], 15, "batch_normalization", epsilon=0.01)
case("InstanceNormalization", [X4, *P[:2]], 7, "instance_normalization")
case("GroupNormalization", [X4, *P[:2]], 21, "group_normalization", num_groups=2)
case("LayerNormalization", [X4, f(6, 7), f(6, 7)], 17, "layer_normalization", axis=-2)
case("LayerNormalization", [X4, f(7)], 17, "layer_normalization")
case("LayerNormalization", [X4, f(1, 7), f(7)], 17, "layer_normalization", axis=2)
for kind in ("Mean", "Sum", "Max", "Min"):
    case(f"Reduce{kind}", [X4], 11, f"reduce_{kind.lower()}", axes=[-1, 1], keepdims=0)
    case(f"Reduce{kind}", [X4, i(2)], 18, f"reduce_{kind.lower()}")
    case(f"Reduce{kind}", [X4], 18, f"reduce_{kind.lower()}", keepdims=0)
case("ReduceSum", [X4, i(1, 2)], 13, "reduce_sum")
case("ReduceMean", [X4, i()], 18, "reshape", noop_with_empty_axes=1)

case("Concat", [X4, f(1, 2, 6, 7), X4], 13, "concat", axis=-3)
case("Split", [X4], 11, "slice slice", outputs=2, axis=1)
case("Split", [X4, i(1, 3)], 13, "slice slice", outputs=2, axis=1)
case("Split", [X4], 18, "slice slice slice", outputs=3, axis=3, num_outputs=3)
case("Slice", [X4], 9, "slice", starts=[1, -3], ends=[9, -1], axes=[1, 3])
case("Slice", [X4, i(1, 5), i(2**62, -(2**62)), i(1, 3), i(2, -2)], 13, "slice")
case("Reshape", [X4, i(0, -1, 14)], 13, "reshape")
case("Flatten", [X4], 13, "reshape", axis=-1)
case("Squeeze", [(1, 3, 1, 4)], 11, "reshape", axes=[0])
case("Squeeze", [(1, 3, 1, 4), i(-2)], 13, "reshape")
case("Squeeze", [(1, 3, 1, 4)], 13, "reshape")
case("Unsqueeze", [(3, 4)], 11, "reshape", axes=[0, 3])
case("Unsqueeze", [(3, 4), i(-1, 1)], 13, "reshape")
case("Transpose", [X4], 13, "transpose")
case("Transpose", [X4], 13, "transpose", perm=[0, 2, 3, 1])
case("Expand", [(4, 1, 7), i(2, 1, 6, 1)], 13, "expand")
case("Gather", [X4, np.array(-2)], 13, "slice reshape", axis=1)
case("Gather", [X4, i(3, 2, 1)], 13, "slice", axis=1)
case("Pad", [X4], 10, "pad", pads=[0, 0, 1, 2, 0, 0, 0, 3], value=1.5)
case("Pad", [X4, i(0, 0, 1, -2, 0, 1, -1, 3)], 11, "slice pad")
case("Pad", [X4, i(2, 1), None, i(3)], 18, "pad", mode="reflect")
case("Pad", [X4, i(0, 0, 2, 1, 0, 0, 3, 1)], 13, "pad", mode="edge")
case("Pad", [X4, i(0, 0, 2, 1, 0, 0, 3, 1)], 19, "pad", mode="wrap")
case("DepthToSpace", [(1, 8, 2, 3)], 13, "reshape transpose reshape", blocksize=2)
case("DepthToSpace", [(1, 8, 2, 3)], 13, "reshape transpose reshape", blocksize=2, mode="CRD")
case("SpaceToDepth", [(1, 2, 4, 6)], 13, "reshape transpose reshape", blocksize=2)
case("SpaceToDepth", [(1, 2, 4, 6)], 28, "reshape transpose reshape", blocksize=2, mode="CRD")
case("Identity", [X4], 13, "reshape")
case("Dropout", [X4], 12, "reshape")

UP = np.array([1, 1, 2, 3], np.float32)
case("Upsample", [(1, 2, 3, 4)], 7, "resize", mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])
case("Upsample", [(1, 2, 3, 4), UP], 9, "resize", mode="linear")
case("Resize", [(1, 2, 3, 4), UP], 10, "resize", mode="nearest")
for how in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
    for mode in ("linear", "nearest"):
        attrs = {"mode": mode, "coordinate_transformation_mode": how}
        case("Resize", [(1, 2, 3, 4), None, UP], 13, "resize", **attrs)
        case("Resize", [(1, 2, 5, 7), None, None, i(1, 2, 3, 9)], 13, "resize", **attrs)
for near in ("round_prefer_ceil", "floor", "ceil"):
    case("Resize", [(1, 2, 3, 4), None, UP], 13, "resize", mode="nearest", nearest_mode=near)
ROI = np.array([0, 0, 0.25, 0.2, 1, 1, 0.8, 1.25], np.float32)
crop = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
case("Resize", [(1, 2, 6, 8), ROI, None, i(1, 2, 4, 5)], 13, "resize", **crop)
case("Resize", [(1, 2, 3, 4), np.array([], np.float32), UP], 11, "resize", mode="linear")
case("Resize", [(1, 2, 4, 6, 5), None, None, i(8, 7, 9)], 18, "resize", mode="linear", axes=[2, 3, 4])
case("Resize", [(1, 2, 4, 6), None, None, i(7, 7)], 18, "resize", mode="linear", axes=[2, 3])
