"""Normalisations: batch, instance, group, layer, RMS, Lp and local response.

Statistics are binary32 (``stash_type`` 1). Operands of half types are widened first and the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.halves import to_float32, widened
from compiler_kernels.ir.graph import Attr


def batch_normalization(ctx: Context) -> None:
    """Parameters may be run-time tensors. Training mode (opset 14 on) normalises by the statistics of the batch and
    returns the running mean and variance; its earlier forms are refused."""
    training = ctx.at.flag("training_mode", 0)
    if not training and any(ctx.used(i) for i in range(1, 5)):
        ctx.at.unsupported("is in training mode; export the model for inference")
    if ctx.at.version < 9 and not ctx.at.int_("spatial", 1):
        ctx.at.unsupported("normalises per element (spatial=0), which later opsets dropped")
    x, scale, bias, mean, var = (to_float32(ctx, ctx.tensor(i)) for i in range(5))
    attrs: dict[str, Attr] = {"epsilon": ctx.at.float_("epsilon", 1e-5)}
    momentum = ctx.at.float_("momentum", 0.9)
    if training:
        here = _statistics(ctx, x)
        for index, old in ((1, mean), (2, var)):
            if ctx.used(index):
                kept = ctx.emit("mul", [old, ctx.scalar(momentum)])
                new = ctx.emit("mul", [here[index - 1], ctx.scalar(float(np.float32(1) - np.float32(momentum)))])
                ctx.bind(ctx.narrow(ctx.emit("add", [kept, new]), ctx.tensor(2 + index)), index)
        mean, var = here
    ctx.bind(ctx.narrow(ctx.emit("batch_normalization", [x, scale, bias, mean, var], attrs), ctx.tensor(0)))


def _statistics(ctx: Context, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and population variance of each channel: the mean of the squared differences."""
    axes = tuple(a for a in range(x.rank) if a != 1)
    attrs: dict[str, Attr] = {"axes": axes, "keepdims": True}
    mean = ctx.emit("reduce_mean", [x], attrs)
    d = ctx.emit("sub", [x, mean])
    var = ctx.emit("reduce_mean", [ctx.emit("mul", [d, d])], attrs)
    return ctx.reshape(mean, (x.shape[1],)), ctx.reshape(var, (x.shape[1],))


def instance_normalization(ctx: Context) -> None:
    operands = [ctx.tensor(i) for i in range(3)]
    ctx.bind(ctx.emit("instance_normalization", operands, {"epsilon": ctx.at.float_("epsilon", 1e-5)}))


def group_normalization(ctx: Context) -> None:
    """Opset 21: one scale and bias per channel. The form of opset 18 is deprecated, and the checker refuses it."""
    x, groups = ctx.tensor(0), ctx.at.int_("num_groups", 0)
    _float32_statistics(ctx)
    attrs: dict[str, Attr] = {"epsilon": ctx.at.float_("epsilon", 1e-5), "num_groups": groups}
    ctx.bind(ctx.emit("group_normalization", [x, ctx.tensor(1), ctx.tensor(2)], attrs))


def _float32_statistics(ctx: Context) -> None:
    if ctx.at.int_("stash_type", 1) != 1:
        ctx.at.unsupported("computes its statistics in another type than float32")


def layer_normalization(ctx: Context) -> None:
    """``Mean`` and ``InvStdDev`` are binary32 whatever the type of x, as ``stash_type`` says."""
    x = to_float32(ctx, ctx.tensor(0))
    _float32_statistics(ctx)
    axis, epsilon = axis_of(ctx, ctx.at.int_("axis", -1), x.rank), ctx.at.float_("epsilon", 1e-5)
    params = [_parameter(ctx, index, x.shape[axis:]) for index in (1, 2) if ctx.at.has_input(index)]
    if ctx.used(0):
        y = ctx.emit("layer_normalization", [x, *params], {"axis": axis, "epsilon": epsilon})
        ctx.bind(ctx.narrow(y, ctx.tensor(0)))
    if ctx.used(1) or ctx.used(2):
        reduced = (*x.shape[:axis], *(1 for _ in x.shape[axis:]))
        rows = ctx.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
        attrs: dict[str, Attr] = {"axes": (1,), "keepdims": True}
        mean = ctx.emit("reduce_mean", [rows], attrs)
        ctx.bind(ctx.reshape(mean, reduced), 1)
        if ctx.used(2):
            d = ctx.emit("sub", [rows, mean])
            var = ctx.emit("reduce_mean", [ctx.emit("mul", [d, d])], attrs)
            deviation = ctx.emit("sqrt", [ctx.emit("add", [var, ctx.scalar(epsilon)])])
            ctx.bind(ctx.reshape(ctx.emit("reciprocal", [deviation]), reduced), 2)


def rms_normalization(ctx: Context) -> None:
    x = to_float32(ctx, ctx.tensor(0))
    if ctx.tensor(0).type.dtype != ctx.tensor(1).type.dtype:
        ctx.at.unsupported(
            f"normalises {ctx.tensor(0).type.dtype} values with a {ctx.tensor(1).type.dtype} scale, and ONNX leaves "
            "open which type the result has; cast the scale"
        )
    _float32_statistics(ctx)
    axis = axis_of(ctx, ctx.at.int_("axis", -1), x.rank)
    attrs: dict[str, Attr] = {"axis": axis, "epsilon": ctx.at.float_("epsilon", 1e-5)}
    y = ctx.emit("rms_normalization", [x, _parameter(ctx, 1, x.shape[axis:])], attrs)
    ctx.bind(ctx.narrow(y, ctx.tensor(1)))


def _parameter(ctx: Context, index: int, inner: Sequence[int]) -> Tensor:
    """Input ``index`` in binary32, broadcast to the normalised axes."""
    param = to_float32(ctx, ctx.tensor(index))
    if param.rank > len(inner):
        lead = param.rank - len(inner)
        if any(d != 1 for d in param.shape[:lead]):
            ctx.at.unsupported(f"has a parameter of shape {list(param.shape)}, which differs from row to row")
        param = ctx.reshape(param, param.shape[lead:])
    if param.const is not None and param.shape != tuple(inner):
        try:
            return constant(np.broadcast_to(param.const, tuple(inner)), param.name)
        except ValueError:
            ctx.at.invalid(f"has a parameter of shape {list(param.shape)} for {list(inner)}")
    return ctx.expand(param, tuple(inner))


def lp_normalization(ctx: Context) -> None:
    """x / norm, and +0 where the norm is 0; the norm is sum(|x|) or sqrt(sum(x * x))."""
    x, p = ctx.tensor(0), ctx.at.int_("p", 2)
    if p not in (1, 2):
        ctx.at.invalid(f"has p {p}; ONNX defines 1 and 2")
    axis = axis_of(ctx, ctx.at.int_("axis", -1), x.rank)
    terms = ctx.emit("abs", [x]) if p == 1 else ctx.emit("mul", [x, x])
    norm = ctx.emit("reduce_sum", [terms], {"axes": (axis,), "keepdims": True})
    if p == 2:
        norm = ctx.emit("sqrt", [norm])
    zero = ctx.scalar(0.0, x.type.dtype)
    ctx.bind(ctx.emit("where", [ctx.emit("equal", [norm, zero]), zero, ctx.emit("div", [x, norm])]))


def local_response_normalization(ctx: Context) -> None:
    """x / (bias + alpha * m) ^ beta, where m is the sum of squares over the channels of the window, over ``size``.

    The window holds floor((size - 1) / 2) channels before and ceil((size - 1) / 2) after its own; absent ones are +0.
    """
    x, size = ctx.tensor(0), ctx.at.int_("size", 0)
    if x.rank < 3 or size < 1:
        ctx.at.invalid(f"has size {size} and an input of shape {list(x.shape)}; it needs channels and positions")
    rows = ctx.reshape(ctx.emit("mul", [x, x]), (x.shape[0], 1, x.shape[1], prod(x.shape[2:])))
    attrs: dict[str, Attr] = {
        "kernel": (size, 1),
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": ((size - 1) // 2, 0, size // 2, 0),
        "ceil_mode": False,
        "count_include_pad": True,
    }
    mean = ctx.reshape(ctx.emit("average_pool", [rows], attrs), x.shape)
    base = ctx.emit("mul", [mean, ctx.scalar(ctx.at.float_("alpha", 1e-4))])
    base = ctx.emit("add", [base, ctx.scalar(ctx.at.float_("bias", 1.0))])
    ctx.bind(ctx.emit("div", [x, ctx.emit("pow", [base, ctx.scalar(ctx.at.float_("beta", 0.75))])]))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": widened(instance_normalization),
    "GroupNormalization": widened(group_normalization),
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "LpNormalization": widened(lp_normalization),
    "LRN": widened(local_response_normalization),
}
