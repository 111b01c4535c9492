"""Quantised operators: Q/DQ as operations of their own, QLinear* and *Integer as exact integer sums.

Zero points are subtracted before the sum ("centred" values); a padding tap of the centred input is then zero, which is
what padding with the zero point means.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.windowed import window_of
from compiler_kernels.ir.dtypes import HALVES

_NARROW = ("int8", "uint8")


def _placed(ctx: Context, steering: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point in a shape that broadcasts to ``x``: one value, one per ``axis``, or one per block."""
    if steering.type.count == 1:
        return ctx.reshape(steering, ())
    if block:
        return _repeated(ctx, steering, x, axis, block)
    if steering.rank != 1 or steering.shape[0] != x.shape[axis]:
        ctx.at.invalid(f"has {list(steering.shape)} scales or zero points for axis {axis} of {list(x.shape)}")
    return ctx.reshape(steering, (steering.shape[0], *[1] * (x.rank - axis - 1)))


def _repeated(ctx: Context, steering: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Blocked quantisation: each value of ``steering`` stands for ``block`` elements along ``axis``."""
    wanted = tuple(-(-d // block) if i == axis else d for i, d in enumerate(x.shape))
    if steering.shape != wanted:
        ctx.at.invalid(f"has scales of shape {list(steering.shape)} where blocks of {block} need {list(wanted)}")
    if steering.const is not None:
        return constant(np.repeat(steering.const, block, axis)[tuple(slice(d) for d in x.shape)], steering.name)
    split = (*wanted[: axis + 1], 1, *wanted[axis + 1 :])
    wide = (*wanted[: axis + 1], block, *wanted[axis + 1 :])
    joined = (*wanted[:axis], wanted[axis] * block, *wanted[axis + 1 :])
    spread = ctx.reshape(ctx.expand(ctx.reshape(steering, split), wide), joined)
    return ctx.slice(spread, [0] * x.rank, [1] * x.rank, x.shape)


def _steering(ctx: Context, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Scale (float32) and zero point of the current node, placed against ``x``."""
    scale, block = ctx.wide(1), ctx.at.int_("block_size", 0)
    per_tensor = scale.type.count == 1
    axis = 0 if per_tensor else axis_of(ctx, ctx.at.int_("axis", 1), x.rank)
    if per_tensor:
        ctx.at.attr("axis")
    if scale.type.dtype != "float32":
        ctx.at.unsupported(f"has a scale of type {scale.type.dtype}")
    zero = ctx.optional(2)
    return _placed(ctx, scale, x, axis, block), None if zero is None else _placed(ctx, zero, x, axis, block)


def quantize_linear(ctx: Context) -> None:
    x = ctx.wide(0)
    scale, zero = _steering(ctx, x)
    stated = ctx.at.dtype("output_dtype")
    to = zero.type.dtype if zero is not None else stated or "uint8"
    if ctx.at.dtype("precision") not in ("", "float32"):
        ctx.at.unsupported(f"divides in precision {ctx.at.dtype('precision')}; float32 is compiled")
    ctx.bind(ctx.emit("quantize", [ctx.cast(x, "float32"), scale, zero], {"to": to}))


def dequantize_linear(ctx: Context) -> None:
    x, given = ctx.tensor(0), ctx.tensor(1).type.dtype
    scale, zero = _steering(ctx, x)
    result = ctx.emit("dequantize", [x, scale, zero])
    to = ctx.at.dtype("output_dtype") or given
    ctx.bind(ctx.cast(result, to) if to in HALVES else result)


def centred(ctx: Context, x: Tensor, zero: Tensor | None) -> Tensor:
    """``x - zero`` in the narrowest type that holds every difference; ``zero`` broadcasts to ``x``."""
    if zero is None or (zero.const is not None and not np.any(zero.const)):
        return x if x.type.dtype in (*_NARROW, "int16") else ctx.cast(x, "int32")
    to = "int16" if x.type.dtype in _NARROW else "int32"
    if x.const is not None and zero.const is not None:
        return constant(x.const.astype(to) - zero.const.astype(to), x.name)
    return ctx.emit("sub", [ctx.cast(x, to), ctx.cast(zero, to)])


def _per_output(ctx: Context, steering: Tensor | None, rank: int) -> Tensor | None:
    """A per-channel scale or zero point of convolution weights against (M, C/group, k...)."""
    if steering is None or steering.type.count == 1:
        return None if steering is None else ctx.reshape(steering, ())
    return ctx.reshape(steering, (steering.type.count, *[1] * (rank - 1)))


def _product(ctx: Context, a: Tensor, b: Tensor) -> Tensor:
    """Product of two scales, rounded once."""
    if a.const is not None and b.const is not None:
        return constant(np.asarray(a.const.astype(np.float32) * b.const.astype(np.float32)))
    return ctx.emit("mul", [a, b])


def _requantized(ctx: Context, total: Tensor, scale: Tensor, out_scale: Tensor, out_zero: Tensor) -> Tensor:
    """saturate(round_even(float32(total) * scale / out_scale) + out_zero)."""
    value = ctx.emit("mul", [ctx.cast(total, "float32"), scale])
    zero, steps = ctx.reshape(out_zero, ()), ctx.reshape(out_scale, ())
    return ctx.emit("quantize", [value, steps, zero], {"to": zero.type.dtype})


def conv_integer(ctx: Context) -> None:
    x, w = ctx.tensor(0), ctx.tensor(1)
    zero = ctx.optional(2)
    x = centred(ctx, x, None if zero is None else ctx.reshape(zero, ()))
    w = centred(ctx, w, _per_output(ctx, ctx.optional(3), w.rank))
    ctx.bind(ctx.emit("conv_integer", [x, w], window_of(ctx, x, w)))


def qlinear_conv(ctx: Context) -> None:
    """x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, [bias int32, of scale x_scale * w_scale]."""
    w = ctx.tensor(3)
    x = centred(ctx, ctx.tensor(0), ctx.reshape(ctx.tensor(2), ()))
    centred_w = centred(ctx, w, _per_output(ctx, ctx.tensor(5), w.rank))
    total = ctx.emit("conv_integer", [x, centred_w], window_of(ctx, x, w))
    bias = ctx.optional(8)
    spatial = [1] * (w.rank - 2)
    if bias is not None:
        total = ctx.emit("add", [total, ctx.reshape(bias, (bias.shape[0], *spatial))])
    w_scale = ctx.wide(4)
    w_scale = ctx.reshape(w_scale, () if w_scale.type.count == 1 else (w_scale.type.count, *spatial))
    scale = _product(ctx, ctx.reshape(ctx.wide(1), ()), w_scale)
    ctx.bind(_requantized(ctx, total, scale, ctx.wide(6), ctx.tensor(7)))


def _rows_or_columns(ctx: Context, steering: Tensor | None, operand: Tensor, rows: bool) -> Tensor | None:
    """A scale or zero point per row of the left operand or per column of the right one."""
    if steering is None or steering.type.count == 1:
        return None if steering is None else ctx.reshape(steering, ())
    if steering.rank == 1 and rows:
        return ctx.reshape(steering, (steering.shape[0], 1))
    return steering


def matmul_integer(ctx: Context) -> None:
    a, b = ctx.tensor(0), ctx.tensor(1)
    a = centred(ctx, a, _rows_or_columns(ctx, ctx.optional(2), a, True))
    b = centred(ctx, b, _rows_or_columns(ctx, ctx.optional(3), b, False))
    ctx.bind(ctx.emit("matmul_integer", [a, b]))


def qlinear_matmul(ctx: Context) -> None:
    """a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero."""
    a, b = ctx.tensor(0), ctx.tensor(3)
    left, right = (_rows_or_columns(ctx, ctx.wide(n), t, r) for n, t, r in ((1, a, True), (4, b, False)))
    assert left is not None and right is not None
    a = centred(ctx, a, _rows_or_columns(ctx, ctx.tensor(2), a, True))
    b = centred(ctx, b, _rows_or_columns(ctx, ctx.tensor(5), b, False))
    total = ctx.emit("matmul_integer", [a, b])
    ctx.bind(_requantized(ctx, total, _product(ctx, left, right), ctx.wide(6), ctx.tensor(7)))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "QuantizeLinear": quantize_linear,
    "DequantizeLinear": dequantize_linear,
    "ConvInteger": conv_integer,
    "QLinearConv": qlinear_conv,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
}
