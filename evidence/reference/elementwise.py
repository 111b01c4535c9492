"""Elementwise operators; composite ones are their ONNX function bodies, step by step and without fma."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode
from evidence.reference.order import first_max, first_min

Operator = Callable[..., Array]


def _plain(function: Callable[..., Array]) -> Operator:
    """An operator that is one IEEE operation (or an exact selection) of its operands."""

    def operator(ar: Arithmetic, node: RefNode, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands))

    return operator


def _attr(x: Array, node: RefNode, key: str, default: float) -> np.floating:
    """An ONNX float attribute: a binary32 number, in the arithmetic's type."""
    value: np.floating = x.dtype.type(np.float32(node.attrs.get(key, default)))
    return value


def _relu(x: Array) -> Array:
    return np.where((x > 0) | (x != x), x, x.dtype.type(0))


def clip(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """min(max(x, lo), hi); an equal operand keeps x."""
    lo, hi = node.attrs.get("lo"), node.attrs.get("hi")
    y = x if lo is None else first_max(x, x.dtype.type(lo))
    return y if hi is None else first_min(y, x.dtype.type(hi))


def leaky_relu(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """x < 0 ? alpha * x : x."""
    return np.where(x < 0, _attr(x, node, "alpha", 0.01) * x, x)


def prelu(ar: Arithmetic, node: RefNode, x: Array, slope: Array) -> Array:
    """x < 0 ? slope * x : x, slope broadcast to x."""
    return np.where(x < 0, slope * x, x)


def elu(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """x < 0 ? alpha * (exp(x) - 1) : x."""
    return np.where(x < 0, _attr(x, node, "alpha", 1.0) * (ar.exp(x) - x.dtype.type(1)), x)


def _hard_sigmoid(x: Array, alpha: np.floating, beta: np.floating) -> Array:
    return first_max(first_min(x * alpha + beta, x.dtype.type(1)), x.dtype.type(0))


def hard_sigmoid(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """max(min(x * alpha + beta, 1), 0), the product rounded before the sum."""
    return _hard_sigmoid(x, _attr(x, node, "alpha", 0.2), _attr(x, node, "beta", 0.5))


def hard_swish(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """x * hard_sigmoid(x) with alpha = 1/6 rounded to the type, beta = 1/2."""
    return np.asarray(x * _hard_sigmoid(x, x.dtype.type(1 / 6), x.dtype.type(0.5)))


def softplus(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """max(x, 0) + log(1 + t) with t = exp(-|x|), the logarithm through log(u) t / (u - 1), u = 1 + t."""
    one = x.dtype.type(1)
    t = ar.exp(-np.abs(x))
    u = np.asarray(one + t)
    d = np.asarray(u - one)
    positive = d > 0
    tail = np.where(positive, ar.log(u) * (t / np.where(positive, d, one)), t)
    return np.asarray(first_max(x, np.zeros_like(x)) + tail)


def gelu(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """(0.5 x) (1 + erf(x / sqrt 2)), or the tanh form with pow(x, 3)."""
    t = x.dtype.type
    if node.attrs.get("approximate", "none") == "tanh":
        # ONNX writes the constant as 0.63661975, which is 2/pi rounded to binary32.
        inner = np.sqrt(t(2 / np.pi)) * (x + t(0.044715) * ar.pow(x, np.full_like(x, 3)))
        phi = t(1) + ar.tanh(np.asarray(inner))
    else:
        phi = t(1) + ar.erf(np.asarray(x / np.sqrt(t(2))))
    return np.asarray((t(0.5) * x) * phi)


def _elementary(name: str) -> Operator:
    def operator(ar: Arithmetic, node: RefNode, *operands: Array) -> Array:
        function: Callable[..., Array] = getattr(ar, name)
        return function(*operands)

    return operator


ELEMENTWISE: dict[str, Operator] = {
    "relu": _plain(_relu),
    "sqrt": _plain(np.sqrt),
    "neg": _plain(np.negative),
    "abs": _plain(np.abs),
    "reciprocal": _plain(lambda x: x.dtype.type(1) / x),
    "floor": _plain(np.floor),
    "ceil": _plain(np.ceil),
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "div": _plain(np.divide),
    "min": _plain(first_min),
    "max": _plain(first_max),
    "clip": clip,
    "leaky_relu": leaky_relu,
    "prelu": prelu,
    "elu": elu,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "softplus": softplus,
    "gelu": gelu,
    **{name: _elementary(name) for name in ("exp", "log", "erf", "tanh", "sigmoid")},
    "pow": lambda ar, node, x, y: ar.pow(*np.broadcast_arrays(x, y)),
}
