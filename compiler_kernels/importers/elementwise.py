"""Elementwise operators: unary functions, arithmetic with broadcasting, comparisons, bits, bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.halves import import_widened, widened
from compiler_kernels.importers.node import f32
from compiler_kernels.ir.dtypes import DTYPES, HALVES, INTEGERS, numpy_dtype
from compiler_kernels.ir.graph import Attr

_UNARY: Final = {
    name: name.lower()
    for name in (
        "Relu Sigmoid Tanh Erf Exp Log Sqrt Neg Abs Reciprocal Floor Ceil Round Sign Sin Cos Tan Asin Acos Atan Sinh "
        "Cosh Asinh Acosh Atanh"
    ).split()
} | {"HardSwish": "hard_swish", "Softplus": "softplus", "IsNaN": "is_nan"}
_BINARY: Final = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
_COMPARISONS: Final = {
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_or_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_or_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "BitwiseAnd": "bit_and",
    "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
}
_CHAINS: Final = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}


def unary(ctx: Context) -> None:
    ctx.bind(ctx.emit(_UNARY[ctx.at.op], [ctx.tensor(0)]))


def binary(ctx: Context) -> None:
    kind = (_BINARY | _COMPARISONS)[ctx.at.op]
    ctx.bind(ctx.emit(kind, [ctx.tensor(0), ctx.tensor(1)]))


def logical_not(ctx: Context) -> None:
    ctx.bind(ctx.emit("logical_not" if ctx.at.op == "Not" else "bit_not", [ctx.tensor(0)]))


def where(ctx: Context) -> None:
    """A constant condition that is one value everywhere takes its operand, where that has the shape of the result."""
    condition, *values = (ctx.tensor(i) for i in range(3))
    if condition.const is not None and condition.const.size and all(v.type.is_static for v in values):
        first = bool(condition.const.reshape(-1)[0])
        taken, other = values if first else values[::-1]
        rank = max(condition.rank, other.rank)
        fits = taken.rank >= rank and all(
            d in (1, size)
            for shape in (condition.shape, other.shape)
            for d, size in zip(shape[::-1], taken.shape[::-1], strict=False)
        )
        if (condition.const == first).all() and taken.type.dtype == other.type.dtype and fits:
            ctx.bind(taken)
            return
    ctx.bind(ctx.emit("where", [condition, *values]))


def is_inf(ctx: Context) -> None:
    attrs: dict[str, Attr] = {s: ctx.at.flag(f"detect_{s}", 1) for s in ("negative", "positive")}
    ctx.bind(ctx.emit("is_inf", [ctx.tensor(0)], attrs))


def mod(ctx: Context) -> None:
    attrs: dict[str, Attr] = {"fmod": ctx.at.flag("fmod", 0)}
    ctx.bind(ctx.emit("mod", [ctx.tensor(0), ctx.tensor(1)], attrs))


def bit_shift(ctx: Context) -> None:
    side = ctx.at.str_("direction", "")
    if side not in ("LEFT", "RIGHT"):
        ctx.at.invalid(f"has direction {side!r}; ONNX defines LEFT and RIGHT")
    ctx.bind(ctx.emit(f"shift_{side.lower()}", [ctx.tensor(0), ctx.tensor(1)]))


def power(ctx: Context) -> None:
    """The result has the type of the base. An exponent of another type converts to it; an integer base with a
    floating-point exponent computes in binary64 and is cut to an integer."""
    base, exponent = ctx.tensor(0).type.dtype, ctx.tensor(1).type.dtype
    if base in HALVES or exponent in HALVES:
        import_widened(ctx, power, [base])
        return
    x, y = ctx.tensor(0), ctx.tensor(1)
    common = base
    if base in INTEGERS and exponent != base:
        common = "int64" if exponent in INTEGERS else "float64"
    ctx.bind(ctx.cast(ctx.emit("pow", [ctx.cast(x, common), converted(ctx, y, common)]), base))


def converted(ctx: Context, x: Tensor, to: str) -> Tensor:
    """``x`` as element type ``to``; a constant number is converted here, as a cast would."""
    if x.const is None or DTYPES[to].kind != "float" or to in HALVES or x.type.dtype == to:
        return ctx.cast(x, to)
    with np.errstate(over="ignore"):
        return constant(x.const.astype(numpy_dtype(to)), x.name)


def chain(ctx: Context) -> None:
    """Variadic Sum, Mean, Max, Min: left to right; Mean then divides by the number of operands."""
    count = len(ctx.at.inputs)
    total = ctx.tensor(0)
    for index in range(1, count):
        total = ctx.emit(_CHAINS[ctx.at.op], [total, ctx.tensor(index)])
    if ctx.at.op == "Mean" and count > 1:
        total = ctx.emit("div", [total, ctx.scalar(count, total.type.dtype)])
    ctx.bind(total)


def clip(ctx: Context) -> None:
    """min(max(x, lo), hi). ONNX's missing bounds are the extreme finite numbers of the type; an infinite bound is none.

    Bounds that are only known at run time are operands of ``max`` and ``min``.
    """
    dtype = ctx.tensor(0).type.dtype
    if dtype in HALVES:
        import_widened(ctx, lambda c: _clip(c, dtype), [dtype])
    else:
        _clip(ctx, dtype)


def _clip(ctx: Context, dtype: str) -> None:
    """``dtype`` is the element type of the model, which a half type's widened operand no longer has."""
    x = ctx.tensor(0)
    lo, hi = (_bound(ctx, index, key, dtype) for index, key in ((1, "min"), (2, "max")))
    if isinstance(lo, Tensor) or isinstance(hi, Tensor):
        for kind, bound in (("max", lo), ("min", hi)):
            if bound is not None:
                limit = bound if isinstance(bound, Tensor) else ctx.scalar(bound, x.type.dtype)
                x = ctx.emit(kind, [x, ctx.reshape(limit, ())])
        ctx.bind(x)
        return
    attrs: dict[str, Attr] = {key: bound for key, bound in (("lo", lo), ("hi", hi)) if bound is not None}
    ctx.bind(ctx.emit("clip", [x], attrs))


def _bound(ctx: Context, index: int, key: str, dtype: str) -> Tensor | float | int | None:
    """A bound as a number, as a run-time tensor, or ``None`` where nothing is beyond it."""
    integer = dtype in INTEGERS
    if dtype == "bool":
        ctx.at.invalid(f"clips {dtype} elements; it takes numbers")
    extreme = None if integer else float(_extreme(dtype)) * (-1 if key == "min" else 1)
    if ctx.at.version < 11:
        found: float = ctx.at.float_(key, extreme or 0.0) if extreme is not None else 0.0
    elif not ctx.at.has_input(index):
        return extreme
    else:
        given = ctx.tensor(index)
        if given.type.count != 1:
            ctx.at.invalid(f"has a bound {ctx.at.inputs[index]!r} of shape {list(given.type.shape)}; it is a number")
        if given.const is None:
            return given
        if integer:
            return int(given.const.reshape(-1)[0])
        found = float(given.const.reshape(-1)[0])
    if math.isnan(found):
        ctx.at.invalid("has NaN as a bound")
    if math.isinf(found) and (found < 0) == (key == "min"):
        return None
    return f32(found) if dtype != "float64" else found


def _extreme(dtype: str) -> float:
    """Largest finite number of a floating-point type."""
    if dtype == "bfloat16":
        return float.fromhex("0x1.fep+127")
    return float(np.finfo(numpy_dtype(dtype)).max)


IMPORTERS: dict[str, Callable[[Context], None]] = {
    **dict.fromkeys(_UNARY, widened(unary)),
    **dict.fromkeys(_BINARY, widened(binary)),
    **dict.fromkeys(_CHAINS, widened(chain)),
    **dict.fromkeys(_COMPARISONS, widened(binary)),
    "Not": logical_not,
    "BitwiseNot": logical_not,
    "BitShift": bit_shift,
    "IsInf": widened(is_inf),
    "Mod": widened(mod),
    "Where": where,
    "Pow": power,
    "Clip": clip,
}
