"""From the ONNX terms of a vector to nodes of docs/ir.md: shapes, constant operands that become attributes, old opsets.

Only what vectors use: explicit pads, static shapes, constant shape operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from evidence.reference import vector_elementwise, vector_index
from evidence.reference.errors import ReferenceError
from evidence.reference.graph import RefGraph
from evidence.reference.vector_functions import FUNCTION_GRAPHS
from evidence.reference.vector_graph import GraphOf
from evidence.reference.vector_model import Array, OnnxParts
from evidence.reference.vector_recurrent import OPERATORS, recurrent_graph
from evidence.reference.vector_sampling import SAMPLING_GRAPHS, resize_by
from evidence.reference.vector_shapes import SHAPE_GRAPHS
from evidence.reference.vector_signal import SIGNAL_GRAPHS

Attrs = Mapping[str, Any]
Operands = Sequence[Array | None]
# IR operator, its attributes, result shape, how many leading operands it takes
Converted = tuple[str, dict[str, Any], tuple[int, ...], int]

_SAME_SHAPE = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Erf": "erf", "Exp": "exp", "Log": "log", "Sqrt": "sqrt",
    "Neg": "neg", "Abs": "abs", "Reciprocal": "reciprocal", "Floor": "floor", "Ceil": "ceil", "LeakyRelu": "leaky_relu",
    "Elu": "elu", "HardSigmoid": "hard_sigmoid", "HardSwish": "hard_swish", "Softplus": "softplus", "Gelu": "gelu",
    "PRelu": "prelu", "BatchNormalization": "batch_normalization", "InstanceNormalization": "instance_normalization",
    "GroupNormalization": "group_normalization",
}  # fmt: skip
_BROADCAST = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Min": "min", "Max": "max", "Pow": "pow"}
_DEFAULT_EPSILON = 1e-5


def _array(value: Array | None) -> Array:
    if value is None:
        raise ReferenceError("vector: a required operand is absent")
    return value


def _given(v: Operands, index: int) -> bool:
    return len(v) > index and v[index] is not None and _array(v[index]).size > 0


def _ints(value: Array | None) -> list[int]:
    return [int(v) for v in _array(value).reshape(-1)]


def _window(attrs: Attrs, kernel: Sequence[int]) -> dict[str, Any]:
    rank = len(kernel)
    return {
        "strides": list(attrs.get("strides", [1] * rank)),
        "dilations": list(attrs.get("dilations", [1] * rank)),
        "pads": list(attrs.get("pads", [0] * (2 * rank))),
    }


def _extents(spatial: Sequence[int], kernel: Sequence[int], window: Attrs, ceil_mode: bool) -> list[int]:
    result, rank = [], len(kernel)
    for i, size in enumerate(spatial):
        begin, end, stride = window["pads"][i], window["pads"][rank + i], window["strides"][i]
        room = size + begin + end - (kernel[i] - 1) * window["dilations"][i] - 1
        out = (-(-room // stride) if ceil_mode else room // stride) + 1
        if ceil_mode and (out - 1) * stride >= size + begin:  # a window may not start in the end padding
            out -= 1
        result.append(out)
    return result


def _conv(a: Attrs, v: Operands) -> Converted:
    x, w = _array(v[0]), _array(v[1])
    kernel = w.shape[2:]
    window = _window(a, kernel)
    shape = (x.shape[0], w.shape[0], *_extents(x.shape[2:], kernel, window, False))
    return "conv", {**window, "group": a.get("group", 1)}, shape, 3


def _conv_transpose(a: Attrs, v: Operands) -> Converted:
    x, w = _array(v[0]), _array(v[1])
    kernel, group = w.shape[2:], a.get("group", 1)
    window, rank = _window(a, kernel), len(kernel)
    extra = list(a.get("output_padding", [0] * rank))
    out = [
        window["strides"][i] * (x.shape[2 + i] - 1) + extra[i] + (kernel[i] - 1) * window["dilations"][i] + 1
        - window["pads"][i] - window["pads"][rank + i]
        for i in range(rank)
    ]  # fmt: skip
    return (
        "conv_transpose", {**window, "group": group, "output_padding": extra},
        (x.shape[0], w.shape[1] * group, *out), 3,
    )  # fmt: skip


def _pool(op: str) -> Callable[[Attrs, Operands], Converted]:
    def convert(a: Attrs, v: Operands) -> Converted:
        x, kernel = _array(v[0]), list(a["kernel_shape"])
        window, ceil_mode = _window(a, kernel), bool(a.get("ceil_mode", 0))
        attrs = {**window, "kernel": kernel, "ceil_mode": int(ceil_mode)}
        if op == "average_pool":
            attrs["count_include_pad"] = a.get("count_include_pad", 0)
        return op, attrs, (*x.shape[:2], *_extents(x.shape[2:], kernel, window, ceil_mode)), 1

    return convert


def _global(op: str) -> Callable[[Attrs, Operands], Converted]:
    return lambda a, v: (op, {}, (*_array(v[0]).shape[:2], *(1,) * (_array(v[0]).ndim - 2)), 1)


def _gemm(a: Attrs, v: Operands) -> Converted:
    left, right = _array(v[0]), _array(v[1])
    attrs = {
        "alpha": a.get("alpha", 1.0), "beta": a.get("beta", 1.0),
        "trans_a": a.get("transA", 0), "trans_b": a.get("transB", 0),
    }  # fmt: skip
    shape = (left.shape[1 if attrs["trans_a"] else 0], right.shape[0 if attrs["trans_b"] else 1])
    return "gemm", attrs, shape, 3


def _clip(a: Attrs, v: Operands) -> Converted:
    # ONNX: a missing bound is the extreme finite number of the type, so that an infinity is clipped too.
    largest = float(np.finfo(np.float32).max)
    lo = float(_array(v[1])) if _given(v, 1) else -largest
    hi = float(_array(v[2])) if _given(v, 2) else largest
    return "clip", {"lo": lo, "hi": hi}, _array(v[0]).shape, 1


def _resize(a: Attrs, v: Operands) -> Converted:
    x = _array(v[0])
    roi = [float(r) for r in _array(v[1])] if _given(v, 1) else []
    scales = [float(s) for s in _array(v[2])] if _given(v, 2) else []
    if scales:
        shape = tuple(math.floor(n * np.float64(s)) for n, s in zip(x.shape, scales, strict=True))
    else:
        shape = tuple(_ints(v[3]))
    attrs = {
        "mode": a.get("mode", "nearest"), "nearest_mode": a.get("nearest_mode", "round_prefer_floor"),
        "coordinate_mode": a.get("coordinate_transformation_mode", "half_pixel"), "scales": scales, "roi": roi,
        "extrapolation_value": a.get("extrapolation_value", 0.0), "exclude_outside": a.get("exclude_outside", 0),
        "antialias": a.get("antialias", 0), "cubic_coefficient": a.get("cubic_coeff_a", -0.75),
    }  # fmt: skip
    return "resize", attrs, shape, 1


def _pad(a: Attrs, v: Operands) -> Converted:
    x, pads = _array(v[0]), _ints(v[1])
    value = float(_array(v[2])) if _given(v, 2) else 0.0
    shape = tuple(n + pads[i] + pads[x.ndim + i] for i, n in enumerate(x.shape))
    return "pad", {"mode": a.get("mode", "constant"), "pads": pads, "value": value}, shape, 1


def _slice(a: Attrs, v: Operands) -> Converted:
    x, given, ends = _array(v[0]), _ints(v[1]), _ints(v[2])
    axes = _ints(v[3]) if len(v) > 3 else list(range(len(given)))
    jumps = _ints(v[4]) if len(v) > 4 else [1] * len(given)
    starts, steps, shape = [0] * x.ndim, [1] * x.ndim, list(x.shape)
    for start, end, axis, step in zip(given, ends, axes, jumps, strict=True):
        taken = range(*slice(start, end, step).indices(x.shape[axis]))
        if step < 0 and end < -x.shape[axis]:  # ONNX clamps such an end to "before the first element"
            taken = range(slice(start, None, step).indices(x.shape[axis])[0], -1, step)
        starts[axis], steps[axis], shape[axis] = taken.start, step, len(taken)
    return "slice", {"starts": starts, "steps": steps}, tuple(shape), 1


def _concat(a: Attrs, v: Operands) -> Converted:
    first, axis = _array(v[0]), a["axis"] % _array(v[0]).ndim
    total = sum(_array(x).shape[axis] for x in v)
    return "concat", {"axis": axis}, (*first.shape[:axis], total, *first.shape[axis + 1 :]), len(v)


def _transpose(a: Attrs, v: Operands) -> Converted:
    return "transpose", {"perm": list(a["perm"])}, tuple(_array(v[0]).shape[p] for p in a["perm"]), 1


_CONVERTERS: dict[str, Callable[[Attrs, Operands], Converted]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("average_pool"),
    "GlobalAveragePool": _global("global_average_pool"),
    "GlobalMaxPool": _global("global_max_pool"),
    "Gemm": _gemm,
    "MatMul": lambda a, v: ("matmul", {}, np.matmul(*(np.empty(_array(x).shape, bool) for x in v)).shape, 2),
    "Clip": _clip,
    "Resize": _resize,
    "Pad": _pad,
    "Slice": _slice,
    "Concat": _concat,
    "Transpose": _transpose,
    "Reshape": lambda a, v: ("reshape", {}, tuple(_ints(v[1])), 1),
    "Expand": lambda a, v: ("expand", {}, np.broadcast_shapes(_array(v[0]).shape, tuple(_ints(v[1]))), 1),
    "Softmax": lambda a, v: ("softmax", {"axis": a.get("axis", -1)}, _array(v[0]).shape, 1),
    "LogSoftmax": lambda a, v: ("log_softmax", {"axis": a.get("axis", -1)}, _array(v[0]).shape, 1),
    "LayerNormalization": lambda a, v: (
        "layer_normalization", {"axis": a.get("axis", -1), "epsilon": a.get("epsilon", _DEFAULT_EPSILON)},
        _array(v[0]).shape, 3,
    ),
}  # fmt: skip


GRAPHS: dict[str, Callable[[OnnxParts], tuple[RefGraph, dict[str, Array]]]] = {
    **vector_index.BUILDERS,
    **vector_elementwise.BUILDERS,
    **FUNCTION_GRAPHS,
    **SAMPLING_GRAPHS,
    **SIGNAL_GRAPHS,
}
"""Builders of operators that are several nodes, by ONNX name; a family of vectors adds its own."""


def _static(parts: OnnxParts) -> bool:
    """Whether Slice or Pad has constant bounds, which become attributes of one operation."""
    return parts.op_type in _CONVERTERS and all(name in parts.initializers for name in parts.inputs[1:] if name)


def _convert(parts: OnnxParts, operands: Operands) -> Converted:
    attrs = parts.attributes
    if parts.op_type in _SAME_SHAPE:
        kept = dict(attrs)
        if parts.op_type.endswith("Normalization"):
            kept.setdefault("epsilon", _DEFAULT_EPSILON)
        return _SAME_SHAPE[parts.op_type], kept, _array(operands[0]).shape, len(operands)
    if parts.op_type in _BROADCAST:
        shapes = [_array(v).shape for v in operands]
        return _BROADCAST[parts.op_type], {}, np.broadcast_shapes(*shapes), 2
    if parts.op_type not in _CONVERTERS:
        raise ReferenceError(f"operator {parts.op_type!r} (opset {parts.opset}) has no vectors in CA-1")
    return _CONVERTERS[parts.op_type](attrs, operands)


_MOVES = frozenset("concat pad slice transpose reshape expand where cast".split())
"""Operators that take float16 and bfloat16 as they are; for all others both widen first and narrow after."""
_BOOLEAN = frozenset("equal less less_or_equal greater greater_or_equal".split())


def _result_type(op: str, attrs: Attrs, types: Sequence[str]) -> str:
    if op in _BOOLEAN:
        return "bool"
    return str(attrs["to"]) if op == "cast" else types[1 if op == "where" else 0]


def reference_graph(parts: OnnxParts) -> tuple[RefGraph, dict[str, Array]]:
    """The node's graph (three nodes for Softmax before opset 13, one per direction of an RNN) and its inputs.

    An operator of several nodes has a builder in ``GRAPHS``; the others become one node with casts around it where
    operands are of a half type.
    """
    if parts.op_type in OPERATORS:
        return recurrent_graph(parts)
    if parts.op_type == "MaxPool" and parts.output_index:
        return vector_index.pool_indices(parts)
    build = vector_elementwise.typed_builder(parts) or GRAPHS.get(parts.op_type)
    if build is not None:
        return build(parts)
    if parts.op_type == "Resize" and not _static(parts):
        return resize_by(parts)
    if parts.op_type in SHAPE_GRAPHS and not _static(parts):
        return SHAPE_GRAPHS[parts.op_type](parts)
    arrays = {**parts.graph_inputs, **parts.initializers}
    operands = [arrays[name] if name else None for name in parts.inputs]
    op, attrs, shape, used = _convert(parts, operands)
    if parts.arithmetic:
        attrs["arithmetic"] = parts.arithmetic
    graph = GraphOf(parts)
    names = list(parts.inputs[:used])
    if op not in _MOVES:
        names = [graph.wide(name) if name else "" for name in names]
    shape = tuple(int(n) for n in shape)
    first = names[0]
    if op in ("softmax", "log_softmax") and parts.opset < 13:  # flattened to two dimensions at the axis
        axis = parts.attributes.get("axis", 1) % len(shape)
        flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        rows = graph.node(op, [graph.node("reshape", [first], flat)], flat, axis=1)
        return graph.finish(graph.node("reshape", [rows], shape), graph.half)
    types = [graph.types[name] for name in names if name]
    result = graph.node(op, names, shape, _result_type(op, attrs, types), **attrs)
    return graph.finish(result, graph.half if op not in _MOVES else "")
