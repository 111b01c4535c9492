"""Gemm, MatMul, softmax, normalisations, reductions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.ir.graph import Attr


def axis_of(ctx: Context, value: int, rank: int) -> int:
    """``value`` made non-negative; invalid outside a tensor of ``rank``."""
    if not -rank <= value < rank:
        ctx.at.invalid(f"names axis {value} of a tensor of rank {rank}")
    return value % rank


def gemm(ctx: Context) -> None:
    attrs: dict[str, Attr] = {
        "alpha": ctx.at.float_("alpha", 1.0),
        "beta": ctx.at.float_("beta", 1.0),
        "trans_a": bool(ctx.at.int_("transA", 0)),
        "trans_b": bool(ctx.at.int_("transB", 0)),
    }
    ctx.bind(ctx.emit("gemm", [ctx.tensor(0), ctx.tensor(1), ctx.optional(2)], attrs))


def matmul(ctx: Context) -> None:
    ctx.bind(ctx.emit("matmul", [ctx.tensor(0), ctx.tensor(1)]))


def softmax(ctx: Context) -> None:
    """Before opset 13 the input is flattened to two axes first; on the last axis that changes nothing."""
    x = ctx.tensor(0)
    kind = "softmax" if ctx.at.op == "Softmax" else "log_softmax"
    if x.rank == 0:
        ctx.at.invalid("has a scalar input")
    flat = ctx.at.version < 13
    axis = axis_of(ctx, ctx.at.int_("axis", 1 if flat else -1), x.rank)
    if not flat or axis == x.rank - 1:
        ctx.bind(ctx.emit(kind, [x], {"axis": axis}))
        return
    rows = ctx.emit("reshape", [x], shape=(prod(x.shape[:axis]), prod(x.shape[axis:])))
    ctx.bind(ctx.emit("reshape", [ctx.emit(kind, [rows], {"axis": 1})], shape=x.shape))


def batch_normalization(ctx: Context) -> None:
    if ctx.at.int_("training_mode", 0) or any(ctx.used(i) for i in range(1, 5)):
        ctx.at.unsupported("is in training mode; export the model for inference")
    if ctx.at.version < 9 and not ctx.at.int_("spatial", 1):
        ctx.at.unsupported("normalises per element (spatial=0), which later opsets dropped")
    operands = [ctx.tensor(i) for i in range(5)]
    ctx.bind(ctx.emit("batch_normalization", operands, {"epsilon": ctx.at.float_("epsilon", 1e-5)}))


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
    x = ctx.tensor(0)
    if ctx.used(1) or ctx.used(2):
        ctx.at.unsupported("returns its mean or deviation, which are not compiled so far")
    _float32_statistics(ctx)
    axis = axis_of(ctx, ctx.at.int_("axis", -1), x.rank)
    inner = x.shape[axis:]
    params: list[Tensor] = []
    for index in (1, 2):
        param = ctx.optional(index)
        if param is None:
            continue
        if param.const is not None and param.shape != inner:
            try:
                param = constant(np.broadcast_to(param.const, inner), param.name)
            except ValueError:
                ctx.at.invalid(f"has a parameter of shape {list(param.shape)} for {list(inner)}")
        params.append(ctx.expand(param, inner))
    attrs: dict[str, Attr] = {"axis": axis, "epsilon": ctx.at.float_("epsilon", 1e-5)}
    ctx.bind(ctx.emit("layer_normalization", [x, *params], attrs))


def reduce_(ctx: Context) -> None:
    """``axes`` is an attribute before opset 18 (13 for ReduceSum) and an input from then on; none means all."""
    x = ctx.tensor(0)
    axes = ctx.at.optional_ints("axes")
    if axes is None and ctx.at.has_input(1):
        axes = ctx.const_ints(1, "its axes")
    if not axes and ctx.at.int_("noop_with_empty_axes", 0):
        ctx.bind(x)
        return
    chosen = tuple(sorted({axis_of(ctx, a, x.rank) for a in axes})) if axes else tuple(range(x.rank))
    kind = "reduce_" + ctx.at.op.removeprefix("Reduce").lower()
    ctx.bind(ctx.emit(kind, [x], {"axes": chosen, "keepdims": bool(ctx.at.int_("keepdims", 1))}))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Gemm": gemm,
    "MatMul": matmul,
    "Softmax": softmax,
    "LogSoftmax": softmax,
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    "LayerNormalization": layer_normalization,
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), reduce_),
}
