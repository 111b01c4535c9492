"""The operators of the frozen graph on balls: arithmetic, reductions, normalisation, activation functions, resizing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from evidence.certificate import fixed
from evidence.certificate.ball import Ball, BallArithmetic
from evidence.certificate.elementary import constant, exp, known, log, sigmoid, tanh
from evidence.certificate.elementary import erf as error_function
from evidence.certificate.fixed import Array, raised
from evidence.certificate.selection import branches, clip, largest, relu, scalar, to_front, unknown
from evidence.reference.graph import RefNode
from evidence.reference.pooling import windows
from evidence.reference.resize import _filter, source_coordinate

__all__ = ["OPERATIONS", "constant"]


def leaky_relu(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    return branches(ar, x, ar.mul(x, scalar(ar, node.attrs.get("alpha", 0.01))), x)


def prelu(ar: BallArithmetic, node: RefNode, x: Ball, slope: Ball) -> Ball:
    return branches(ar, x, ar.mul(x, slope), x)


def elu(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """The negative side by exp of min(x, 0), so that the other never overflows."""
    low = ar.sub(exp(ar, ar.minimum(x, ar.fraction(0))), ar.fraction(1))
    return branches(ar, x, ar.mul(low, scalar(ar, node.attrs.get("alpha", 1.0))), x)


def _hard_sigmoid(ar: BallArithmetic, x: Ball, alpha: Ball, beta: Ball) -> Ball:
    return relu(ar, ar.minimum(ar.add(ar.mul(x, alpha), beta), ar.fraction(1)))


def hard_sigmoid(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    return _hard_sigmoid(ar, x, scalar(ar, node.attrs.get("alpha", 0.2)), scalar(ar, node.attrs.get("beta", 0.5)))


def hard_swish(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """x hard_sigmoid(x) with alpha exactly 1/6: rounding it is the engine's."""
    return ar.mul(x, _hard_sigmoid(ar, x, ar.fraction(Fraction(1, 6)), ar.fraction(Fraction(1, 2))))


def softplus(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """max(x, 0) + log(1 + e ** -|x|)."""
    tail = log(ar, ar.add(ar.fraction(1), exp(ar, ar.neg(ar.absolute(x)))))
    return ar.add(relu(ar, x), tail)


def gelu(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """x (1 + erf(x / sqrt 2)) / 2, or ONNX's tanh form."""
    if node.attrs.get("approximate", "none") == "tanh":
        cube = ar.mul(ar.mul(x, x), x)
        inner = ar.add(x, ar.mul(cube, ar.fraction(Fraction(44715, 1000000))))
        scale = ar.sqrt(ar.div(ar.fraction(2), known(ar, "pi")))
        phi = tanh(ar, ar.mul(inner, scale))
    else:
        phi = error_function(ar, ar.div(x, known(ar, "sqrt2")))
    return ar.halved(ar.mul(x, ar.add(ar.fraction(1), phi)), 1)


def power(ar: BallArithmetic, node: RefNode, x: Ball, y: Ball) -> Ball:
    """x ** y: products where y is one known integer up to 64, a root for 1/2, else e ** (y log x) for positive x."""
    exponents = np.unique(fixed.to_float(y.centre)) if y.exact else np.array([math.nan])
    if exponents.size == 1 and y.centre.count <= 3:
        n = float(exponents[0])
        if n == 0.5:
            return _wide(ar.sqrt(x), node)
        if n == np.rint(n) and 0 < abs(n) <= 64:
            result: Ball | None = None
            for bit in bin(int(abs(n)))[2:]:
                result = (
                    x if result is None else ar.mul(result, result) if bit == "0" else ar.mul(ar.mul(result, result), x)
                )
            assert result is not None
            return _wide(ar.reciprocal(result) if n < 0 else result, node)
    return exp(ar, ar.mul(log(ar, x), y))


def _wide(x: Ball, node: RefNode) -> Ball:
    return x.mapped(lambda v: np.broadcast_to(v, node.shape))


# reductions -----------------------------------------------------------------------------------------------------------
def _mean(ar: BallArithmetic, x: Ball, axis: int) -> Ball:
    return ar.mul(ar.sum(x, axis), ar.fraction(Fraction(1, x.shape[axis])))


def reduce(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """Sum, mean, product, maximum, minimum over ``axes``."""
    values = to_front(x, tuple(int(a) for a in node.attrs["axes"]))
    if values.shape[0] == 0:
        return unknown(node.shape) if node.op not in ("reduce_sum",) else ar.number(np.zeros(node.shape))
    if node.op == "reduce_sum":
        result = ar.sum(values, 0)
    elif node.op == "reduce_mean":
        result = _mean(ar, values, 0)
    elif node.op == "reduce_prod":
        result = values.take(0)
        for k in range(1, values.shape[0]):
            result = ar.mul(result, values.take(k))
    elif node.op == "reduce_max":
        result = largest(ar, values)
    else:
        result = ar.neg(largest(ar, ar.neg(values)))
    return result.reshape(*node.shape)


def global_average_pool(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    return _mean(ar, to_front(x, tuple(range(2, len(x.shape)))), 0).reshape(*node.shape)


def average_pool(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """Sum of the window over ONNX's count."""
    rank = len(node.attrs["kernel"])
    total = ar.sum(x.mapped(lambda v: windows(node, v, 0.0)), 0)
    kernel, pads = node.attrs["kernel"], node.attrs.get("pads") or [0] * (2 * rank)
    strides, dilations = node.attrs.get("strides") or [1] * rank, node.attrs.get("dilations") or [1] * rank
    divisor = np.ones((), dtype=np.int64)
    for i in range(rank):
        extra = (pads[i], pads[rank + i]) if node.attrs.get("count_include_pad", 0) else (0, 0)
        reads = np.arange(node.shape[2 + i])[:, None] * strides[i] - pads[i] + np.arange(kernel[i]) * dilations[i]
        inside = (reads >= -extra[0]) & (reads < x.shape[2 + i] + extra[1])
        divisor = np.multiply.outer(divisor, inside.sum(axis=1))
    return ar.div(total, ar.number(divisor))


def cum_sum(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    axis = int(node.attrs["axis"]) % len(x.shape)
    flip = bool(node.attrs.get("reverse", 0))

    def total(v: Array) -> Array:
        w = np.flip(v, axis) if flip else v
        sums = np.cumsum(w, axis=axis)
        sums = sums - w if node.attrs.get("exclusive", 0) else sums
        return np.flip(sums, axis) if flip else sums

    words = np.stack([total(w) for w in x.centre.words])  # integers below 2**53: exact
    grown = np.cumsum(np.flip(x.radius, axis) if flip else x.radius, axis=axis) * (1 + x.shape[axis] * 2.0**-52)
    return ar.ball(fixed.carried(words, x.centre.top), raised(np.flip(grown, axis) if flip else grown))


# softmax and norms ----------------------------------------------------------------------------------------------------
def softmax(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """e ** (x - m) / sum: the quotient is the same for every m, so m is a known number, the largest centre."""
    axis = int(node.attrs["axis"]) % len(x.shape)
    shifted, e, total = _shifted(ar, x, axis)
    if node.op == "log_softmax":
        return ar.sub(shifted, log(ar, total))
    return ar.mul(e, ar.reciprocal(total))


def _shifted(ar: BallArithmetic, x: Ball, axis: int) -> tuple[Ball, Ball, Ball]:
    top = np.max(fixed.to_float(x.centre), axis=axis, keepdims=True)
    shifted = ar.sub(x, ar.number(top))
    e = exp(ar, shifted)
    total = ar.sum(e, axis)
    return shifted, e, total.mapped(lambda v: np.expand_dims(v, axis))


def _normalised(ar: BallArithmetic, rows: Ball, epsilon: float, centred: bool = True) -> Ball:
    """``d / sqrt(mean(d d) + epsilon)`` along the last axis."""
    last = len(rows.shape) - 1

    def mean(x: Ball) -> Ball:
        return _mean(ar, x, last).mapped(lambda v: v[..., None])

    d = ar.sub(rows, mean(rows)) if centred else rows
    variance = ar.add(mean(ar.square(d)), scalar(ar, epsilon))
    return ar.mul(d, ar.reciprocal(ar.sqrt(variance)))


def layer_normalization(ar: BallArithmetic, node: RefNode, x: Ball, scale: Ball, bias: Ball | None = None) -> Ball:
    axis = int(node.attrs["axis"]) % len(x.shape)
    rows = x.reshape(*x.shape[:axis], math.prod(x.shape[axis:]))
    y = ar.mul(_normalised(ar, rows, node.attrs["epsilon"], node.op != "rms_normalization").reshape(*x.shape), scale)
    return y if bias is None else ar.add(y, bias)


def group_normalization(ar: BallArithmetic, node: RefNode, x: Ball, scale: Ball, bias: Ball) -> Ball:
    groups = int(node.attrs.get("num_groups", x.shape[1]))
    rows = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    y = _normalised(ar, rows, node.attrs["epsilon"]).reshape(*x.shape)
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    return ar.add(ar.mul(y, scale.reshape(*shape)), bias.reshape(*shape))


def batch_normalization(
    ar: BallArithmetic, node: RefNode, x: Ball, scale: Ball, bias: Ball, mean: Ball, var: Ball
) -> Ball:
    a = ar.div(scale, ar.sqrt(ar.add(var, scalar(ar, node.attrs["epsilon"]))))
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    return ar.add(ar.mul(ar.sub(x, mean.reshape(*shape)), a.reshape(*shape)), bias.reshape(*shape))


# resize ---------------------------------------------------------------------------------------------------------------
def resize(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """Linear and cubic modes, one axis after another, with exact rational weights."""
    attrs = node.attrs
    scales = [Fraction(float(np.float32(s))) for s in attrs.get("scales") or ()]
    coordinates, rank = str(attrs.get("coordinate_mode", "half_pixel")), len(x.shape)
    if coordinates == "tf_crop_and_resize":
        return unknown(node.shape)
    y = x
    for axis in reversed(range(rank)):
        size, out = x.shape[axis], node.shape[axis]
        scale = scales[axis] if scales else Fraction(out, size)
        exact = [source_coordinate(coordinates, o, size, out, scale, (Fraction(0), Fraction(1))) for o in range(out)]
        if out == size and (all(c == o for o, c in enumerate(exact)) or (coordinates[:2] == "tf" and scale == 1)):
            continue
        if attrs["mode"] == "linear" and not attrs.get("antialias"):
            clamped = [min(max(c, Fraction(0)), Fraction(size - 1)) for c in exact]
            rows = [[(math.floor(c), 1 - c % 1), (min(math.floor(c) + 1, size - 1), c % 1)] for c in clamped]
        else:
            rows = [_filter(node, c, scale, size) for c in exact]
        along = [-1 if a == axis else 1 for a in range(rank)]
        total: Ball | None = None
        for tap in itertools.zip_longest(*rows, fillvalue=(0, Fraction(0))):
            weights = ar.fractions([Fraction(w) for _, w in tap]).reshape(*along)
            places = (*(slice(None),) * axis, [p for p, _ in tap])
            term = ar.mul(y.take(places), weights)
            total = term if total is None else ar.add(total, term)
        y = total if total is not None else y
    return y


def dequantize(ar: BallArithmetic, node: RefNode, x: Ball, scale: Ball, zero: Ball | None = None) -> Ball:
    return ar.mul(x if zero is None else ar.sub(x, zero), scale)


def _first(function: Callable[..., Ball]) -> Callable[..., Ball]:
    return lambda ar, node, *operands: function(ar, *operands)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": _first(lambda ar, a, b: ar.add(a, b)),
    "sub": _first(lambda ar, a, b: ar.sub(a, b)),
    "mul": _first(lambda ar, a, b: ar.square(a) if a is b else ar.mul(a, b)),
    "div": _first(lambda ar, a, b: ar.div(a, b)),
    "min": _first(lambda ar, a, b: ar.minimum(a, b)),
    "max": _first(lambda ar, a, b: ar.maximum(a, b)),
    "neg": _first(lambda ar, a: ar.neg(a)),
    "abs": _first(lambda ar, a: ar.absolute(a)),
    "relu": _first(relu),
    "clip": clip,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    "elu": elu,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "softplus": softplus,
    "gelu": gelu,
    "pow": power,
    "sigmoid": _first(sigmoid),
    "softmax": softmax,
    "log_softmax": softmax,
    "average_pool": average_pool,
    "global_average_pool": global_average_pool,
    "cum_sum": cum_sum,
    "layer_normalization": layer_normalization,
    "rms_normalization": layer_normalization,
    "group_normalization": group_normalization,
    "instance_normalization": group_normalization,
    "batch_normalization": batch_normalization,
    "resize": resize,
    "dequantize": dequantize,
    **dict.fromkeys(("reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min"), reduce),
}
