"""Elementwise operators: unary functions, arithmetic with broadcasting, activations, and their composites."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.node import f32
from compiler_kernels.ir.graph import Attr

FLOAT_MAX = float(np.finfo(np.float32).max)

_UNARY = {
    name: name.lower()
    for name in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Neg", "Abs", "Reciprocal", "Floor", "Ceil")
} | {"HardSwish": "hard_swish", "Softplus": "softplus"}
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
_COMPARISONS = {
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
}
# float attributes with ONNX's defaults
_PARAMETRIC: dict[str, tuple[str, dict[str, float]]] = {
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
}
_CHAINS = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}


def unary(ctx: Context) -> None:
    ctx.bind(ctx.narrow(ctx.emit(_UNARY[ctx.at.op], [ctx.wide(0)]), ctx.tensor(0)))


def parametric(ctx: Context) -> None:
    kind, defaults = _PARAMETRIC[ctx.at.op]
    attrs: dict[str, Attr] = {key: ctx.at.float_(key, value) for key, value in defaults.items()}
    ctx.bind(ctx.narrow(ctx.emit(kind, [ctx.wide(0)], attrs), ctx.tensor(0)))


def binary(ctx: Context) -> None:
    ctx.bind(ctx.narrow(ctx.emit(_BINARY[ctx.at.op], [ctx.wide(0), ctx.wide(1)]), ctx.tensor(0)))


def compare(ctx: Context) -> None:
    """Comparisons and logical operations; the result is bool."""
    ctx.bind(ctx.emit(_COMPARISONS[ctx.at.op], [ctx.wide(0), ctx.wide(1)]))


def logical_not(ctx: Context) -> None:
    ctx.bind(ctx.emit("logical_not", [ctx.tensor(0)]))


def where(ctx: Context) -> None:
    ctx.bind(ctx.emit("where", [ctx.tensor(0), ctx.tensor(1), ctx.tensor(2)]))


def power(ctx: Context) -> None:
    """From opset 12 the exponent may be an integer tensor; a constant one converts exactly or is refused."""
    exponent = ctx.tensor(1)
    if exponent.const is not None and exponent.type.dtype != "float32":
        cast = exponent.const.astype(np.float32)
        if not (cast.astype(exponent.const.dtype) == exponent.const).all():
            ctx.at.unsupported("has an exponent that is not a binary32 number")
        exponent = constant(cast, exponent.name)
    ctx.bind(ctx.emit("pow", [ctx.tensor(0), exponent]))


def prelu(ctx: Context) -> None:
    ctx.bind(ctx.narrow(ctx.emit("prelu", [ctx.wide(0), ctx.wide(1)]), ctx.tensor(0)))


def chain(ctx: Context) -> None:
    """Variadic Sum, Mean, Max, Min: left to right; Mean then divides by the number of operands."""
    count = len(ctx.at.inputs)
    total = ctx.wide(0)
    for index in range(1, count):
        total = ctx.emit(_CHAINS[ctx.at.op], [total, ctx.wide(index)])
    if ctx.at.op == "Mean" and count > 1:
        total = ctx.emit("div", [total, ctx.scalar(count, total.type.dtype)])
    ctx.bind(ctx.narrow(total, ctx.tensor(0)))


def clip(ctx: Context) -> None:
    """ONNX's missing bounds are the extreme finite binary32 numbers; an infinite bound is no bound."""
    lo, hi = -FLOAT_MAX, FLOAT_MAX
    if ctx.at.version < 11:
        lo, hi = ctx.at.float_("min", lo), ctx.at.float_("max", hi)
    else:
        lo = ctx.const_float(1, "its lower bound") if ctx.at.has_input(1) else lo
        hi = ctx.const_float(2, "its upper bound") if ctx.at.has_input(2) else hi
    if math.isnan(lo) or math.isnan(hi):
        ctx.at.invalid("has NaN as a bound")
    attrs: dict[str, Attr] = {}
    if lo != -math.inf:
        attrs["lo"] = f32(lo)
    if hi != math.inf:
        attrs["hi"] = f32(hi)
    ctx.bind(ctx.emit("clip", [ctx.tensor(0)], attrs))


def gelu(ctx: Context) -> None:
    approximate = ctx.at.str_("approximate", "none")
    if approximate not in ("none", "tanh"):
        ctx.at.invalid(f"has approximate {approximate!r}; ONNX defines 'none' and 'tanh'")
    ctx.bind(ctx.emit("gelu", [ctx.tensor(0)], {"approximate": approximate}))


def mish(ctx: Context) -> None:
    """ONNX function body: x * tanh(softplus(x))."""
    x = ctx.tensor(0)
    ctx.bind(ctx.emit("mul", [x, ctx.emit("tanh", [ctx.emit("softplus", [x])])]))


def swish(ctx: Context) -> None:
    """ONNX function body: x * sigmoid(alpha * x)."""
    x, alpha = ctx.tensor(0), ctx.at.float_("alpha", 1.0)
    inner: Tensor = x if alpha == 1.0 else ctx.emit("mul", [ctx.scalar(alpha), x])
    ctx.bind(ctx.emit("mul", [x, ctx.emit("sigmoid", [inner])]))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    **dict.fromkeys(_UNARY, unary),
    **dict.fromkeys(_PARAMETRIC, parametric),
    **dict.fromkeys(_BINARY, binary),
    **dict.fromkeys(_CHAINS, chain),
    **dict.fromkeys(_COMPARISONS, compare),
    "Not": logical_not,
    "Where": where,
    "Pow": power,
    "PRelu": prelu,
    "Clip": clip,
    "Gelu": gelu,
    "Mish": mish,
    "Swish": swish,
}
