"""Random networks of several nodes: what fusion, layouts, joins and joined launches meet in no test of one operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from differential import Array
from draw_windows import chance, integers
from onnx import TensorProto, helper, numpy_helper

MOST_ELEMENTS = 6000
"""Of one value: the emulator and the reference take their time."""


@dataclass
class Network:
    """Nodes so far, and the shapes of the values a further node may read."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    shapes: dict[str, list[int]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def input(self, shape: list[int]) -> None:
        name = f"in{len(self.inputs)}"
        self.inputs[name] = self.rng.standard_normal(shape).astype(np.float32)
        self.shapes[name] = shape

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def normal(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape))

    def pick(self, *ranks: int) -> str:
        """A value of one of these ranks, the latest most likely; "" where there is none."""
        fitting = [n for n, s in self.shapes.items() if len(s) in ranks]
        if not fitting:
            return ""
        return fitting[-1] if chance(self.rng, 0.6) else str(self.rng.choice(fitting))

    def add(self, op: str, operands: list[str], outputs: int = 1, **attributes: Any) -> str:
        """The first result of a node; "" (and no node) where the model would be invalid, empty or large."""
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        node = helper.make_node(op, operands, names, name=f"n{len(self.nodes)}", **attributes)
        try:
            found = self._shapes_with(node)
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError):
            return ""
        if any(n not in found or not all(found[n]) or np.prod(found[n]) > MOST_ELEMENTS for n in names):
            return ""
        self.nodes.append(node)
        self.shapes |= {n: found[n] for n in names}
        self.read |= set(operands)
        return names[0]

    def _shapes_with(self, node: onnx.NodeProto) -> dict[str, list[int]]:
        known = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in node.input if n in self.shapes
        ]
        out = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in node.output]
        needed = [c for c in self.constants if c.name in node.input]
        model = _model(helper.make_graph([node], "g", known, out, needed))
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        return {
            o.name: [d.dim_value for d in o.type.tensor_type.shape.dim]
            for o in inferred.graph.output
            if o.type.tensor_type.HasField("shape") and o.type.tensor_type.elem_type == TensorProto.FLOAT
        }

    def model(self) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in self.inputs.items()]
        ends = [n for n in self.shapes if n not in self.read and n not in self.inputs]
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ends]
        return _model(helper.make_graph(self.nodes, "drawn", inputs, outputs, self.constants))


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _fits(sizes: list[int], kernel: list[int], more: dict[str, Any]) -> bool:
    """Whether a window fits into the padded sizes (the shape inference of onnx does not ask)."""
    dilations = more.get("dilations", [1] * len(sizes))
    pads = [a + b for a, b in zip(more["pads"], more["pads"][len(sizes) :], strict=False)]
    return all(n + p > d * (k - 1) for n, p, k, d in zip(sizes, pads, kernel, dilations, strict=True))


def _conv(net: Network) -> str:
    x, rng = net.pick(3, 4, 5), net.rng
    if not x:
        return ""
    channels, axes = net.shapes[x][1], len(net.shapes[x]) - 2
    group = channels if chance(rng, 0.2) else int(rng.choice([g for g in (1, 1, 1, 2, 3) if channels % g == 0]))
    outer = group * int(rng.integers(1, max(2, 40 // group)))
    kernel = integers(rng, 1, 3 if axes > 1 else 9, axes) if chance(rng, 0.5) else [3] * axes
    plain = chance(rng, 0.5)
    more = {
        "strides": [1] * axes if plain else integers(rng, 1, 2, axes),
        "dilations": [1] * axes if plain else integers(rng, 1, 2, axes),
        "pads": [k // 2 for k in kernel] * 2 if plain else integers(rng, 0, 2, 2 * axes),
    }
    if not _fits(net.shapes[x][2:], kernel, more):
        return ""
    operands = [x, net.normal(outer, channels // group, *kernel), *([net.normal(outer)] if chance(rng, 0.7) else [])]
    return net.add("Conv", operands, group=group, kernel_shape=kernel, **more)


def _transposed(net: Network) -> str:
    x, rng = net.pick(3, 4, 5), net.rng
    if not x:
        return ""
    channels, axes = net.shapes[x][1], len(net.shapes[x]) - 2
    kernel = integers(rng, 1, 3, axes)
    more = {"strides": integers(rng, 1, 2, axes), "pads": [min(int(rng.integers(0, 2)), k - 1) for k in kernel] * 2}
    outer = int(rng.integers(1, 20))
    return net.add("ConvTranspose", [x, net.normal(channels, outer, *kernel)], kernel_shape=kernel, **more)


def _quantised(net: Network) -> str:
    """Through int8 or uint8 and back, and a convolution of dequantised values and weights."""
    x, rng = net.pick(3, 4), net.rng
    if not x:
        return ""
    kind = np.int8 if chance(rng, 0.5) else np.uint8
    scale, zero = net.constant(0.03), net.constant(rng.integers(0, 20), kind)

    def through(value: str) -> str:
        name = f"q{len(net.nodes)}"
        net.nodes.append(helper.make_node("QuantizeLinear", [value, scale, zero], [name], name=name))
        net.nodes.append(helper.make_node("DequantizeLinear", [name, scale, zero], [f"d{name}"], name=f"d{name}"))
        net.shapes[f"d{name}"] = net.shapes[value]
        net.read.add(value)
        return f"d{name}"

    x = through(x)
    channels, axes = net.shapes[x][1], len(net.shapes[x]) - 2
    outer = int(rng.integers(1, 37))
    weights = net.constant(rng.integers(-127, 128, (outer, channels, *[3] * axes)), np.int8)
    name = f"w{len(net.nodes)}"
    scales, zeros = net.constant(rng.uniform(0.001, 0.02, outer)), net.constant(np.zeros(outer), np.int8)
    net.nodes.append(helper.make_node("DequantizeLinear", [weights, scales, zeros], [name], name=name, axis=0))
    net.shapes[name] = [outer, channels, *[3] * axes]
    more = {"pads": integers(rng, 0, 1, 2 * axes), "strides": integers(rng, 1, 2, axes)}
    fits = _fits(net.shapes[x][2:], [3] * axes, more)
    made = net.add("Conv", [x, name], kernel_shape=[3] * axes, **more) if fits else ""
    net.shapes.pop(name)
    net.read.add(name)
    return through(made) if made and chance(rng, 0.7) else made


def _pool(net: Network) -> str:
    x, rng = net.pick(3, 4, 5), net.rng
    if not x:
        return ""
    axes, maximum = len(net.shapes[x]) - 2, chance(net.rng, 0.5)
    kernel = integers(rng, 1, 3, axes)
    more: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": integers(rng, 1, 3, axes),
        "pads": [min(int(rng.integers(0, 2)), k - 1) for k in kernel * 2],
        "ceil_mode": int(chance(rng, 0.3)),
    }
    if maximum:
        more["dilations"] = integers(rng, 1, 2, axes)
    else:
        more["count_include_pad"] = int(chance(rng, 0.5))
    if not _fits(net.shapes[x][2:], kernel, more):
        return ""
    return net.add("MaxPool" if maximum else "AveragePool", [x], **more)


def _whole(net: Network) -> str:
    x = net.pick(3, 4, 5)
    return net.add(str(net.rng.choice(["GlobalAveragePool", "GlobalMaxPool"])), [x]) if x else ""


def _unary(net: Network) -> str:
    kinds = [
        "Relu",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Exp",
        "Abs",
        "Neg",
        "LeakyRelu",
        "HardSwish",
        "Softplus",
        "Elu",
        "Floor",
    ]
    return net.add(str(net.rng.choice(kinds)), [net.pick(1, 2, 3, 4, 5)])


def _binary(net: Network) -> str:
    rng, x = net.rng, net.pick(1, 2, 3, 4, 5)
    shape = net.shapes[x]
    same = [n for n, s in net.shapes.items() if s == shape]
    other = str(rng.choice(same))
    if chance(rng, 0.5):
        keep = [s if chance(rng, 0.5) else 1 for s in shape][int(rng.integers(0, len(shape))) :]
        other = net.normal(*keep)
    operands = [x, other] if chance(rng, 0.7) else [other, x]
    return net.add(str(rng.choice(["Add", "Mul", "Sub", "Div", "Max", "Min"])), operands)


def _concat(net: Network) -> str:
    rng, x = net.rng, net.pick(2, 3, 4, 5)
    if not x:
        return ""
    shape = net.shapes[x]
    axis = 1 if chance(rng, 0.6) else int(rng.integers(0, len(shape)))

    def joins(other: list[int]) -> bool:
        return len(other) == len(shape) and all(k == axis or n == shape[k] for k, n in enumerate(other))

    rest = [n for n, s in net.shapes.items() if joins(s)]
    return net.add("Concat", [x, *(str(n) for n in rng.choice(rest, int(rng.integers(1, 4))))], axis=axis)


def _moved(net: Network) -> str:
    rng, x = net.rng, net.pick(2, 3, 4, 5)
    if not x:
        return ""
    shape = net.shapes[x]
    rank, kind = len(shape), str(rng.choice(["Slice", "Pad", "Transpose", "Split", "Gather", "Reshape", "Flatten"]))
    axis = int(rng.integers(0, rank))
    if kind == "Slice":
        step = int(rng.choice([1, 1, 2, -1]))
        begin, end = (0, shape[axis]) if step > 0 else (-1, -shape[axis] - 1)
        begin += int(rng.integers(0, 2)) if step > 0 and shape[axis] > 1 else 0
        return net.add("Slice", [x, *(net.constant([v], np.int64) for v in (begin, end, axis, step))])
    if kind == "Pad":
        pads = [int(rng.integers(0, 3)) if k % rank >= min(2, rank - 1) else 0 for k in range(2 * rank)]
        mode = str(rng.choice(["constant", "reflect", "edge"]))
        pads = [min(p, shape[k % rank] - 1) if mode == "reflect" else p for k, p in enumerate(pads)]
        return net.add("Pad", [x, net.constant(pads, np.int64)], mode=mode)
    if kind == "Transpose":
        return net.add("Transpose", [x], perm=[int(a) for a in rng.permutation(rank)])
    if kind == "Split":
        first = int(rng.integers(1, shape[axis])) if shape[axis] > 1 else 0
        sizes = net.constant([first, shape[axis] - first], np.int64)
        return net.add("Split", [x, sizes], 2, axis=axis) if first else ""
    if kind == "Gather":
        count = int(rng.integers(1, 5))
        return net.add("Gather", [x, net.constant(rng.integers(-shape[axis], shape[axis], count), np.int64)], axis=axis)
    if kind == "Reshape":
        return net.add("Reshape", [x, net.constant([shape[0], -1, *shape[2:-1], 1][:rank], np.int64)])
    return net.add("Flatten", [x], axis=axis)


def _resize(net: Network) -> str:
    rng, x = net.rng, net.pick(3, 4, 5)
    if not x:
        return ""
    axes = len(net.shapes[x]) - 2
    mode = str(rng.choice(["nearest", "linear", "cubic"] if axes == 2 else ["nearest", "linear"]))
    places = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    scales = net.constant([1.0, 1.0, *(float(rng.choice([0.5, 1.0, 1.5, 2.0])) for _ in range(axes))])
    return net.add("Resize", [x, "", scales], mode=mode, coordinate_transformation_mode=str(rng.choice(places)))


def _norm(net: Network) -> str:
    rng, x = net.rng, net.pick(2, 3, 4)
    if not x:
        return ""
    shape = net.shapes[x]
    kind = str(
        rng.choice(["Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "BatchNormalization"])
    )
    if kind == "LayerNormalization":
        axis = int(rng.integers(0, len(shape)))
        return net.add(kind, [x, net.normal(*shape[axis:]), net.normal(*shape[axis:])], axis=axis)
    if kind == "InstanceNormalization":
        return net.add(kind, [x, net.normal(shape[1]), net.normal(shape[1])]) if len(shape) > 2 else ""
    if kind == "BatchNormalization":
        positive = net.constant(rng.uniform(0.5, 2, shape[1]))
        return net.add(kind, [x, *(net.normal(shape[1]) for _ in range(3)), positive])
    return net.add(kind, [x], axis=int(rng.integers(0, len(shape))))


def _reduced(net: Network) -> str:
    rng, x = net.rng, net.pick(2, 3, 4)
    if not x:
        return ""
    rank = len(net.shapes[x])
    axes = sorted(int(a) for a in rng.choice(rank, int(rng.integers(1, rank)), replace=False))
    kind = str(rng.choice(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"]))
    return net.add(kind, [x], axes=axes, keepdims=int(chance(rng, 0.6)))


def _product(net: Network) -> str:
    rng, x = net.rng, net.pick(2, 3, 4)
    if not x:
        return ""
    shape = net.shapes[x]
    columns = int(rng.integers(1, 50))
    if len(shape) == 2 and chance(rng, 0.5):
        more = {"alpha": 0.5, "beta": 1.5} if chance(rng, 0.3) else {}
        return net.add("Gemm", [x, net.normal(columns, shape[1]), net.normal(columns)], transB=1, **more)
    twin = [n for n, s in net.shapes.items() if len(s) == len(shape) and s[:-2] == shape[:-2] and s[-2] == shape[-1]]
    right = str(rng.choice(twin)) if twin and chance(rng, 0.5) else net.normal(shape[-1], columns)
    return net.add("MatMul", [x, right])


def _recurrent(net: Network) -> str:
    rng, x = net.rng, net.pick(3)
    if not x or net.shapes[x][0] > 12:
        return ""
    kind, both = str(rng.choice(["LSTM", "GRU", "RNN"])), chance(rng, 0.5)
    directions, hidden, depth = 1 + both, int(rng.integers(1, 20)), net.shapes[x][2]
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    operands = [x, net.normal(directions, gates * hidden, depth), net.normal(directions, gates * hidden, hidden)]
    operands += [net.normal(directions, 2 * gates * hidden)] if chance(rng, 0.5) else []
    word = "bidirectional" if both else str(rng.choice(["forward", "reverse"]))
    return net.add(kind, operands, hidden_size=hidden, direction=word)


STEPS: tuple[tuple[Callable[[Network], str], int], ...] = (
    (_conv, 6), (_transposed, 2), (_quantised, 2), (_pool, 2), (_whole, 1), (_unary, 3), (_binary, 4), (_concat, 3),
    (_moved, 3), (_resize, 2), (_norm, 3), (_reduced, 2), (_product, 2), (_recurrent, 1),
)  # fmt: skip
"""What may come next, and how likely."""


def draw_graph(rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of four to ten steps and its inputs."""
    net = Network(rng)
    axes = int(rng.choice([1, 2, 2, 2, 3]))
    sizes = [integers(rng, 3, 40, 1), integers(rng, 3, 11, 2), integers(rng, 2, 6, 3)][axes - 1]
    for _ in range(int(rng.integers(1, 3))):
        net.input([int(rng.integers(1, 3)), int(rng.choice([1, 2, 3, 8, 16, 17, 24])), *sizes])
    weights = np.array([w for _, w in STEPS], float)
    wanted = int(rng.integers(4, 11))
    for _ in range(60):
        step = STEPS[int(rng.choice(len(STEPS), p=weights / weights.sum()))][0]
        wanted -= bool(step(net))
        if not wanted:
            break
    return net.model(), net.inputs
