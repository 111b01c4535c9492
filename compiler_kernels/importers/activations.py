"""Activations: operations of their own, or their ONNX function bodies op by op."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.halves import widened
from compiler_kernels.ir.dtypes import INTEGERS
from compiler_kernels.ir.graph import Attr

# float attributes with ONNX's defaults
_PARAMETRIC: Final[dict[str, tuple[str, dict[str, float]]]] = {
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
}
_SELU_ALPHA: Final = 1.67326319217681884765625
_SELU_GAMMA: Final = 1.05070102214813232421875
CELU_BY_ELU: Final = 28
"""The opset from which Celu's body is written with Elu."""


def parametric(ctx: Context) -> None:
    kind, defaults = _PARAMETRIC[ctx.at.op]
    attrs: dict[str, Attr] = {key: ctx.at.float_(key, value) for key, value in defaults.items()}
    ctx.bind(ctx.emit(kind, [ctx.tensor(0)], attrs))


def prelu(ctx: Context) -> None:
    """x < 0 ? slope * x : x; the slope broadcasts to x."""
    x, slope = ctx.tensor(0), ctx.tensor(1)
    if x.type.dtype not in INTEGERS:
        ctx.bind(ctx.emit("prelu", [x, slope]))
        return
    negative = ctx.emit("less", [x, ctx.scalar(0, x.type.dtype)])
    ctx.bind(ctx.emit("where", [negative, ctx.emit("mul", [slope, x]), x]))


def gelu(ctx: Context) -> None:
    approximate = ctx.at.str_("approximate", "none")
    if approximate not in ("none", "tanh"):
        ctx.at.invalid(f"has approximate {approximate!r}; ONNX defines 'none' and 'tanh'")
    ctx.bind(ctx.emit("gelu", [ctx.tensor(0)], {"approximate": approximate}))


def mish(ctx: Context) -> None:
    """x * tanh(softplus(x))."""
    x = ctx.tensor(0)
    ctx.bind(ctx.emit("mul", [x, ctx.emit("tanh", [ctx.emit("softplus", [x])])]))


def swish(ctx: Context) -> None:
    """x * sigmoid(alpha * x)."""
    x, alpha = ctx.tensor(0), ctx.at.float_("alpha", 1.0)
    inner: Tensor = x if alpha == 1.0 else ctx.emit("mul", [ctx.scalar(alpha, x.type.dtype), x])
    ctx.bind(ctx.emit("mul", [x, ctx.emit("sigmoid", [inner])]))


def _attribute(ctx: Context, key: str, default: float) -> Tensor:
    """A float attribute, a binary32 number, in the operand's type."""
    return ctx.scalar(ctx.at.float_(key, default), ctx.tensor(0).type.dtype)


def selu(ctx: Context) -> None:
    """x < 0 ? gamma * (alpha * exp(x) - alpha) : gamma * x."""
    x = ctx.tensor(0)
    alpha, gamma = _attribute(ctx, "alpha", _SELU_ALPHA), _attribute(ctx, "gamma", _SELU_GAMMA)
    bent = ctx.emit("sub", [ctx.emit("mul", [alpha, ctx.emit("exp", [x])]), alpha])
    negative = ctx.emit("less", [x, ctx.scalar(0.0, x.type.dtype)])
    sides = ctx.emit("mul", [gamma, bent]), ctx.emit("mul", [gamma, x])
    ctx.bind(ctx.emit("where", [negative, *sides]))


def celu(ctx: Context) -> None:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)); from opset 28 alpha * elu(x / alpha)."""
    x, alpha = ctx.tensor(0), _attribute(ctx, "alpha", 1.0)
    scaled = ctx.emit("div", [x, alpha])
    if ctx.at.version >= CELU_BY_ELU:
        ctx.bind(ctx.emit("mul", [alpha, ctx.emit("elu", [scaled], {"alpha": 1.0})]))
        return
    zero, one = (ctx.scalar(v, x.type.dtype) for v in (0.0, 1.0))
    bent = ctx.emit("mul", [alpha, ctx.emit("sub", [ctx.emit("exp", [scaled]), one])])
    ctx.bind(ctx.emit("add", [ctx.emit("max", [zero, x]), ctx.emit("min", [zero, bent])]))


def thresholded_relu(ctx: Context) -> None:
    """alpha < x ? x : 0."""
    x, alpha = ctx.tensor(0), _attribute(ctx, "alpha", 1.0)
    ctx.bind(ctx.emit("where", [ctx.emit("less", [alpha, x]), x, ctx.scalar(0.0, x.type.dtype)]))


def shrink(ctx: Context) -> None:
    """x < -lambd ? x + bias : lambd < x ? x - bias : 0. Integers compute in binary64 and are cut."""
    given = ctx.tensor(0)
    x = ctx.cast(given, "float64") if given.type.dtype in INTEGERS else given
    bias, lambd = (ctx.scalar(ctx.at.float_(k, v), x.type.dtype) for k, v in (("bias", 0.0), ("lambd", 0.5)))
    below = ctx.emit("less", [x, ctx.emit("neg", [lambd])])
    above = ctx.emit("where", [ctx.emit("less", [lambd, x]), ctx.emit("sub", [x, bias]), ctx.scalar(0.0, x.type.dtype)])
    y = ctx.emit("where", [below, ctx.emit("add", [x, bias]), above])
    ctx.bind(ctx.cast(y, given.type.dtype))


def softsign(ctx: Context) -> None:
    """x / (1 + |x|)."""
    x = ctx.tensor(0)
    ctx.bind(ctx.emit("div", [x, ctx.emit("add", [ctx.scalar(1.0, x.type.dtype), ctx.emit("abs", [x])])]))


def hardmax(ctx: Context) -> None:
    """Before opset 13 the input is flattened to two axes first."""
    x = ctx.tensor(0)
    flat = ctx.at.version < 13
    axis = axis_of(ctx, ctx.at.int_("axis", 1 if flat else -1), x.rank)
    if not flat:
        ctx.bind(ctx.emit("hardmax", [x], {"axis": axis}))
        return
    rows = ctx.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    ctx.bind(ctx.reshape(ctx.emit("hardmax", [rows], {"axis": 1}), x.shape))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    **dict.fromkeys(_PARAMETRIC, widened(parametric)),
    "PRelu": widened(prelu),
    "Gelu": widened(gelu),
    "Mish": widened(mish),
    "Swish": widened(swish),
    "Selu": widened(selu),
    "Celu": widened(celu),
    "ThresholdedRelu": widened(thresholded_relu),
    "Shrink": widened(shrink),
    "Softsign": widened(softsign),
    "Hardmax": widened(hardmax),
}
