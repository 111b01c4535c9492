"""NumPy's functions as ONNX operations. Each takes the graph and NumPy's own arguments; one of them is an ``Array``.

What is not in the table is not in the subset. Constants never come here: NumPy computes them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_kernels.doors.functions.values import Array, Graph, NotPure, by_example, stand_in

Emitter = Callable[..., Any]


def _elementwise(function: Callable[..., Any], op: str) -> Emitter:
    def emit(graph: Graph, *args: Any) -> Array:
        result = by_example(function, args)
        if result.dtype == np.bool_ and op not in ("And", "Or", "Xor", "Not"):
            raise NotPure(f"{function.__name__} of booleans is a logical operation; convert one with astype")
        return graph.emit(op, [graph.operand(a, result.dtype) for a in args], result.shape, result.dtype)

    return emit


def _comparison(function: Callable[..., Any], op: str, negated: bool = False) -> Emitter:
    def emit(graph: Graph, a: Any, b: Any) -> Array:
        result = by_example(function, (a, b))
        common = by_example(np.add, (a, b)).dtype
        found = graph.emit(op, [graph.operand(a, common), graph.operand(b, common)], result.shape, np.bool_)
        return graph.emit("Not", [found.name], result.shape, np.bool_) if negated else found

    return emit


def power(graph: Graph, a: Any, b: Any) -> Array:
    """Squares are products and halves are roots, as in NumPy; integers to integer powers are refused."""
    result = by_example(np.power, (a, b))
    if result.dtype.kind != "f":
        raise NotPure("power of integers is not in the subset; convert with astype, or multiply")
    if isinstance(a, Array) and isinstance(b, int | float):
        x = graph.operand(a, result.dtype)
        if b == 2:
            return graph.emit("Mul", [x, x], result.shape, result.dtype)
        if b == 0.5:
            return graph.emit("Sqrt", [x], result.shape, result.dtype)
    return graph.emit("Pow", [graph.operand(v, result.dtype) for v in (a, b)], result.shape, result.dtype)


def square(graph: Graph, a: Array) -> Array:
    result = by_example(np.square, (a,))
    x = graph.operand(a, result.dtype)
    return graph.emit("Mul", [x, x], result.shape, result.dtype)


def matmul(graph: Graph, a: Any, b: Any) -> Array:
    result = by_example(np.matmul, (a, b))
    if result.dtype.kind != "f":
        raise NotPure("a matrix product of integers is not in the subset; convert with astype")
    return graph.emit("MatMul", [graph.operand(v, result.dtype) for v in (a, b)], result.shape, result.dtype)


def dot(graph: Graph, a: Any, b: Any) -> Array:
    if np.ndim(stand_in(a)) != 2 or np.ndim(stand_in(b)) != 2:
        raise NotPure("dot is in the subset for two matrices; use np.matmul or *")
    return matmul(graph, a, b)


def where(graph: Graph, condition: Any, a: Any = None, b: Any = None) -> Array:
    if a is None or b is None:
        raise NotPure("np.where with one argument has as many results as the data says; give all three arguments")
    result = by_example(np.where, (condition, a, b))
    mask = graph.operand(condition, np.bool_)
    return graph.emit("Where", [mask, *(graph.operand(v, result.dtype) for v in (a, b))], result.shape, result.dtype)


def clip(graph: Graph, a: Array, a_min: Any = None, a_max: Any = None, **bounds: Any) -> Array:
    """As NumPy defines it: the minimum with the upper bound of the maximum with the lower one."""
    low, high = bounds.pop("min", a_min), bounds.pop("max", a_max)
    if bounds:
        raise NotPure(f"np.clip with {next(iter(bounds))} is not in the subset; leave it out")
    result = by_example(np.clip, (a, low, high))
    found = a
    for function, op, bound in ((np.maximum, "Max", low), (np.minimum, "Min", high)):
        if bound is not None:
            shape = by_example(function, (found, bound)).shape
            inputs = [graph.operand(found, result.dtype), graph.operand(bound, result.dtype)]
            found = graph.emit(op, inputs, shape, result.dtype)
    return found


def cast(graph: Graph, a: Any, dtype: Any) -> Array:
    result = by_example(lambda v: np.asarray(v).astype(dtype), (a,))
    name = graph.operand(a, result.dtype)
    return graph.array(name, result.shape, result.dtype)


def _reduction(function: Callable[..., Any], op: str) -> Emitter:
    def emit(graph: Graph, a: Array, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        given = {"axis": axis, "keepdims": keepdims, **({} if dtype is None else {"dtype": dtype})}
        result = by_example(function, (a,), given)
        x = graph.operand(a, result.dtype)
        if not a.ndim or axis == ():
            return graph.array(x, result.shape, result.dtype)
        axes = range(a.ndim) if axis is None else sorted(n % a.ndim for n in np.atleast_1d(axis).tolist())
        chosen = graph.constant(list(axes), np.int64)
        return graph.emit(op, [x, chosen], result.shape, result.dtype, keepdims=int(bool(keepdims)))

    return emit


reduce_sum, reduce_mean = _reduction(np.sum, "ReduceSum"), _reduction(np.mean, "ReduceMean")
multiply, subtract = _elementwise(np.multiply, "Mul"), _elementwise(np.subtract, "Sub")
divide = _elementwise(np.true_divide, "Div")


def variance(
    graph: Graph, a: Array, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False
) -> Array:
    """Mean of the squared distances from the mean, in two passes; the divisor is n - ddof."""
    result = by_example(np.var, (a,), {"axis": axis, "dtype": dtype, "keepdims": keepdims})
    values = cast(graph, a, result.dtype)
    centred = subtract(graph, values, reduce_mean(graph, values, axis, keepdims=True))
    total = reduce_sum(graph, multiply(graph, centred, centred), axis, keepdims=keepdims)
    divisor = a.size / max(total.size, 1) - ddof
    found: Array = divide(graph, total, float(divisor))
    return found


def deviation(graph: Graph, *args: Any, **kwargs: Any) -> Array:
    found = variance(graph, *args, **kwargs)
    return graph.emit("Sqrt", [found.name], found.shape, found.dtype)


def _arg(function: Callable[..., Any], op: str) -> Emitter:
    def emit(graph: Graph, a: Array, axis: Any = None, keepdims: bool = False) -> Array:
        result = by_example(function, (a,), {"axis": axis, "keepdims": keepdims})
        whole = axis is None or a.ndim == 0
        x = graph.reshaped(a, (a.size,)) if whole else a
        place = 0 if whole else axis
        kept = by_example(function, (x,), {"axis": place, "keepdims": True})
        found = graph.emit(op, [x.name], kept.shape, np.int64, axis=place, keepdims=1)
        return graph.reshaped(found, result.shape)

    return emit


def reshape(graph: Graph, a: Array, shape: Any, *more: Any, order: str = "C") -> Array:
    sizes = (shape, *more) if more else shape
    if order != "C":
        raise NotPure(f"reshape in the order {order!r} is not in the subset; use 'C'")
    return graph.reshaped(a, by_example(np.reshape, (a, sizes)).shape)


def _view(function: Callable[..., Any]) -> Emitter:
    """Functions whose result has the same elements in the same order under another shape."""

    def emit(graph: Graph, a: Array, *args: Any, **kwargs: Any) -> Array:
        return graph.reshaped(a, by_example(function, (a, *args), kwargs).shape)

    return emit


def transpose(graph: Graph, a: Array, axes: Any = None, *more: Any) -> Array:
    order = (axes, *more) if more else axes
    perm = list(range(a.ndim))[::-1] if order is None else [int(n) % a.ndim for n in order]
    result = by_example(np.transpose, (a, perm))
    return graph.emit("Transpose", [a.name], result.shape, a.dtype, a, perm=perm)


def _permuted(function: Callable[..., Any]) -> Emitter:
    """Functions that only exchange axes; which ones is read off an array that has its axes' numbers as sizes."""

    def emit(graph: Graph, a: Array, *args: Any, **kwargs: Any) -> Array:
        numbers = np.broadcast_to(np.zeros(()), tuple(range(2, 2 + a.ndim)))
        perm = [n - 2 for n in by_example(function, (numbers, *args), kwargs).shape]
        return transpose(graph, a, perm)

    return emit


def concatenate(graph: Graph, arrays: Sequence[Any], axis: int = 0) -> Array:
    result = by_example(np.concatenate, (arrays,), {"axis": axis})
    inputs = [graph.operand(v, result.dtype) for v in arrays]
    return graph.emit("Concat", inputs, result.shape, result.dtype, axis=int(axis) % result.ndim)


def stack(graph: Graph, arrays: Sequence[Any], axis: int = 0) -> Array:
    result = by_example(np.stack, (arrays,), {"axis": axis})
    place = int(axis) % result.ndim
    parts = []
    for value in arrays:
        shape = list(np.shape(stand_in(value)))
        shape.insert(place, 1)
        part = graph.array(graph.operand(value, result.dtype), np.shape(stand_in(value)), result.dtype)
        parts.append(graph.reshaped(part, shape).name)
    return graph.emit("Concat", parts, result.shape, result.dtype, axis=place)


def flip(graph: Graph, a: Array, axis: Any = None) -> Array:
    axes = list(range(a.ndim)) if axis is None else [n % a.ndim for n in np.atleast_1d(axis).tolist()]
    by_example(np.flip, (a, axis))
    if not axes:
        return a
    ends = [np.iinfo(np.int64).min] * len(axes)
    inputs = [graph.constant(v, np.int64) for v in ([-1] * len(axes), ends, axes, [-1] * len(axes))]
    return graph.emit("Slice", [a.name, *inputs], a.shape, a.dtype, a)


def pad(graph: Graph, a: Array, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Array:
    modes = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}
    if mode not in modes or np.ndim(constant_values):
        raise NotPure(f"np.pad with the mode {mode!r} is not in the subset; use {', '.join(modes)} and one value")
    result = by_example(np.pad, (a, pad_width), {"mode": mode})
    pairs = np.broadcast_to(np.asarray(pad_width), (a.ndim, 2))
    widths = graph.constant([*pairs[:, 0], *pairs[:, 1]], np.int64)
    inputs = [a.name, widths, *([graph.constant(constant_values, a.dtype)] if mode == "constant" else [])]
    return graph.emit("Pad", inputs, result.shape, a.dtype, mode=modes[mode])


def broadcast_to(graph: Graph, a: Array, shape: Any) -> Array:
    result = by_example(np.broadcast_to, (a, shape))
    return graph.emit("Expand", [a.name, graph.constant(list(result.shape), np.int64)], result.shape, a.dtype, a)


def same(graph: Graph, a: Array, dtype: Any = None) -> Array:
    """np.asarray and the like: the array itself, or converted."""
    return a if dtype is None or np.dtype(dtype) == a.dtype else cast(graph, a, dtype)


def array(graph: Graph, a: Any, dtype: Any = None) -> Array:
    """np.array: a copy; of a list of arrays, their stack."""
    if isinstance(a, list | tuple):
        a = stack(graph, [array(graph, item) if isinstance(item, list | tuple) else item for item in a])
    return graph.array(same(graph, a, dtype).name, a.shape, a.dtype if dtype is None else dtype)


def round_even(graph: Graph, a: Array, decimals: int = 0) -> Array:
    if decimals != 0:
        raise NotPure("rounding to decimals is not in the subset; multiply, round and divide")
    if a.dtype.kind != "f":
        return a
    return graph.emit("Round", [a.name], a.shape, a.dtype)


def _whole(function: Callable[..., Any], op: str) -> Emitter:
    """floor and ceil: integers are what they are."""

    def emit(graph: Graph, a: Array) -> Array:
        result = by_example(function, (a,))
        return (
            graph.emit(op, [graph.operand(a, result.dtype)], result.shape, result.dtype) if a.dtype.kind == "f" else a
        )

    return emit


def _like(value: Any) -> Emitter:
    def emit(graph: Graph, a: Array, *args: Any, **kwargs: Any) -> Any:
        return value(a.shape, *args, **{"dtype": a.dtype, **kwargs})

    return emit


def isnan(graph: Graph, a: Array) -> Array:
    return graph.emit("IsNaN", [graph.operand(a, by_example(np.exp, (a,)).dtype)], a.shape, np.bool_)


TABLE: dict[Any, Emitter] = {
    np.add: _elementwise(np.add, "Add"),
    np.subtract: subtract,
    np.multiply: multiply,
    np.true_divide: divide,
    np.negative: _elementwise(np.negative, "Neg"),
    np.absolute: _elementwise(np.absolute, "Abs"),
    np.maximum: _elementwise(np.maximum, "Max"),
    np.minimum: _elementwise(np.minimum, "Min"),
    np.exp: _elementwise(np.exp, "Exp"),
    np.log: _elementwise(np.log, "Log"),
    np.sqrt: _elementwise(np.sqrt, "Sqrt"),
    np.tanh: _elementwise(np.tanh, "Tanh"),
    np.floor: _whole(np.floor, "Floor"),
    np.ceil: _whole(np.ceil, "Ceil"),
    np.rint: round_even,
    np.round: round_even,
    np.power: power,
    np.square: square,
    np.matmul: matmul,
    np.dot: dot,
    np.equal: _comparison(np.equal, "Equal"),
    np.not_equal: _comparison(np.not_equal, "Equal", negated=True),
    np.less: _comparison(np.less, "Less"),
    np.less_equal: _comparison(np.less_equal, "LessOrEqual"),
    np.greater: _comparison(np.greater, "Greater"),
    np.greater_equal: _comparison(np.greater_equal, "GreaterOrEqual"),
    np.logical_and: _elementwise(np.logical_and, "And"),
    np.logical_or: _elementwise(np.logical_or, "Or"),
    np.logical_not: _elementwise(np.logical_not, "Not"),
    np.isnan: isnan,
    np.where: where,
    np.clip: clip,
    np.sum: reduce_sum,
    np.mean: reduce_mean,
    np.max: _reduction(np.max, "ReduceMax"),
    np.min: _reduction(np.min, "ReduceMin"),
    np.amax: _reduction(np.max, "ReduceMax"),
    np.amin: _reduction(np.min, "ReduceMin"),
    np.around: round_even,
    np.var: variance,
    np.std: deviation,
    np.argmax: _arg(np.argmax, "ArgMax"),
    np.argmin: _arg(np.argmin, "ArgMin"),
    np.reshape: reshape,
    np.ravel: _view(np.ravel),
    np.squeeze: _view(np.squeeze),
    np.expand_dims: _view(np.expand_dims),
    np.atleast_1d: _view(np.atleast_1d),
    np.transpose: transpose,
    np.moveaxis: _permuted(np.moveaxis),
    np.swapaxes: _permuted(np.swapaxes),
    np.concatenate: concatenate,
    np.stack: stack,
    np.flip: flip,
    np.pad: pad,
    np.broadcast_to: broadcast_to,
    np.asarray: same,
    np.ascontiguousarray: same,
    np.array: array,
    np.copy: array,
    np.zeros_like: _like(np.zeros),
    np.ones_like: _like(np.ones),
}

METHODS: dict[str, Any] = {
    "astype": cast,
    "clip": clip,
    "copy": array,
    "flatten": lambda graph, a: array(graph, graph.reshaped(a, (a.size,))),
    "round": round_even,
    **{
        name: TABLE[getattr(np, name)]
        for name in (
            "sum",
            "mean",
            "max",
            "min",
            "var",
            "std",
            "argmax",
            "argmin",
            "reshape",
            "ravel",
            "squeeze",
            "dot",
        )
    },
    "transpose": transpose,
    "swapaxes": TABLE[np.swapaxes],
}
"""Methods of arrays; the array is the first argument."""
