"""Operators that read and write by index: Gather and Scatter in their forms, Compress, ReverseSequence, MaxUnpool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.runtime_values import declared_sizes, ints
from compiler_kernels.ir.graph import Attr


def whole(values: Sequence[int]) -> Tensor:
    """An int64 constant with one axis."""
    return constant(np.array(values, dtype=np.int64))


def iota(count: int) -> Tensor:
    """0, 1, ... as an int64 constant."""
    return constant(np.arange(count, dtype=np.int64))


def indices(ctx: Context, index: int) -> Tensor:
    """Input ``index`` as indices; any integer type but int32 becomes int64."""
    found = ctx.tensor(index)
    return found if found.type.dtype in ("int32", "int64") else ctx.cast(found, "int64")


def take(ctx: Context, x: Tensor, axis: int, picked: Sequence[int]) -> Tensor:
    """Elements ``picked`` (non-negative, inside) of ``axis``: a slice where they are an arithmetic progression."""
    step = picked[1] - picked[0] if len(picked) > 1 else 1
    if step and list(picked) == [picked[0] + i * step for i in range(len(picked))]:
        starts, steps = [0] * x.rank, [1] * x.rank
        starts[axis], steps[axis] = picked[0], step
        return ctx.slice(x, starts, steps, [len(picked) if i == axis else d for i, d in enumerate(x.shape)])
    return ctx.emit("gather", [x, whole(picked)], {"axis": axis})


def inside(ctx: Context, values: Sequence[int], size: int, axis: int) -> list[int]:
    """Constant indices with negative ones counted from the end; invalid outside the axis."""
    picked = [v + size if v < 0 else v for v in values]
    if any(not 0 <= i < size for i in picked):
        ctx.at.invalid(f"gathers outside the {size} elements of axis {axis}")
    return picked


def gather(ctx: Context) -> None:
    """By constants: checked here, and a slice where they are in arithmetic progression. By run-time indices: gather."""
    x = ctx.tensor(0)
    axis = axis_of(ctx, ctx.at.int_("axis", 0), x.rank)
    where = ctx.tensor(1)
    if where.const is None or not where.const.size:
        if x.type.is_static and x.shape[axis] == 0 and where.type.is_static and where.type.count:
            ctx.at.invalid(f"gathers from axis {axis} of {list(x.shape)}, which has no element")
        ctx.bind(ctx.emit("gather", [x, indices(ctx, 1)], {"axis": axis}))
        return
    picked = inside(ctx, [int(i) for i in where.const.reshape(-1)], x.shape[axis], axis)
    part = take(ctx, x, axis, picked)
    ctx.bind(ctx.reshape(part, (*x.shape[:axis], *where.shape, *x.shape[axis + 1 :])))


def gather_elements(ctx: Context) -> None:
    x = ctx.tensor(0)
    axis = axis_of(ctx, ctx.at.int_("axis", 0), x.rank)
    ctx.bind(ctx.emit("gather_elements", [x, indices(ctx, 1)], {"axis": axis}))


def gather_nd(ctx: Context) -> None:
    ctx.bind(ctx.emit("gather_nd", [ctx.tensor(0), indices(ctx, 1)], {"batch_dims": ctx.at.int_("batch_dims", 0)}))


def _scatter(ctx: Context, kind: str, attrs: dict[str, Attr]) -> None:
    """Without a reduction values are only moved; with one, half types widen and the result is rounded once."""
    reduction = ctx.at.str_("reduction", "none")
    x, updates = ctx.tensor(0), ctx.tensor(2)
    if reduction != "none":
        x, updates = ctx.wide(0), ctx.wide(2)
        if x.type.dtype == "bool":
            ctx.at.unsupported(f"combines bool elements by {reduction}, which has no meaning")
    y = ctx.emit(kind, [x, indices(ctx, 1), updates], {**attrs, "reduction": reduction})
    ctx.bind(ctx.narrow(y, ctx.tensor(0)) if reduction != "none" else y)


def scatter_elements(ctx: Context) -> None:
    _scatter(ctx, "scatter_elements", {"axis": axis_of(ctx, ctx.at.int_("axis", 0), ctx.tensor(0).rank)})


def scatter_nd(ctx: Context) -> None:
    _scatter(ctx, "scatter_nd", {})


def tensor_scatter(ctx: Context) -> None:
    x = ctx.tensor(0)
    attrs: dict[str, Attr] = {
        "axis": axis_of(ctx, ctx.at.int_("axis", -2), x.rank),
        "mode": ctx.at.str_("mode", "linear"),
    }
    first = indices(ctx, 2) if ctx.at.has_input(2) else None
    ctx.bind(ctx.emit("tensor_scatter", [x, ctx.tensor(1), first], attrs))


def reverse_sequence(ctx: Context) -> None:
    """Per batch entry the first elements in reverse: an index for every time step, then a gather within the batch."""
    x, lengths = ctx.tensor(0), ctx.cast(ctx.tensor(1), "int64")
    batch, time = ctx.at.int_("batch_axis", 1), ctx.at.int_("time_axis", 0)
    if x.rank < 2 or {batch, time} != {0, 1}:
        ctx.at.invalid(f"has batch axis {batch} and time axis {time} of a tensor of rank {x.rank}")
    perm = [batch, time, *range(2, x.rank)]
    count, steps = x.shape[batch], x.shape[time]
    at, length = iota(steps), ctx.reshape(lengths, (count, 1))
    mirrored = ctx.emit("sub", [ctx.emit("sub", [length, whole([1])]), at])
    source = ctx.emit("where", [ctx.emit("less", [at, length]), mirrored, at])
    source = ctx.reshape(source, (count, steps, 1))
    y = ctx.emit("gather_nd", [ctx.transpose(x, perm), source], {"batch_dims": 1})
    ctx.bind(ctx.transpose(y, perm))  # swapping two axes is its own inverse


def max_unpool(ctx: Context) -> None:
    """Zeros with x at the places its indices name, counted through the whole tensor of the pooled shape."""
    x, where = ctx.tensor(0), indices(ctx, 1)
    n = x.rank - 2
    kernel = ctx.at.ints("kernel_shape", None, n)
    strides, pads = ctx.at.ints("strides", (1,) * n, n), ctx.at.ints("pads", (0,) * 2 * n, 2 * n)
    if where.shape != x.shape:
        ctx.at.invalid(f"has indices of shape {list(where.shape)} for values of shape {list(x.shape)}")
    sizes = [(x.shape[i + 2] - 1) * strides[i] - pads[i] - pads[n + i] + kernel[i] for i in range(n)]
    shape = (*x.shape[:2], *sizes)
    if min(shape) < 1:
        ctx.at.invalid(f"gives the shape {list(shape)}")
    count = prod(x.shape)
    zeros = ctx.emit("expand", [ctx.scalar(0, x.type.dtype)], shape=(prod(shape),))
    operands = [zeros, ctx.reshape(where, (count,)), ctx.reshape(x, (count,))]
    y = ctx.reshape(ctx.emit("scatter_elements", operands, {"axis": 0, "reduction": "none"}), shape)
    if ctx.at.has_input(2):
        wanted, check = ints(ctx, 2, "its output_shape", lambda: declared_sizes(ctx, 2, "its output_shape"))
        if len(wanted) != x.rank or min(wanted) < 1:
            ctx.at.invalid(f"has output_shape {list(wanted)} for rank {x.rank}")
        kept = [min(a, b) for a, b in zip(shape, wanted, strict=True)]
        y = ctx.slice(y, [0] * x.rank, [1] * x.rank, kept)
        more = tuple(b - a for a, b in zip(kept, wanted, strict=True))
        if any(more):
            y = ctx.emit("pad", [y], {"mode": "constant", "pads": (0,) * x.rank + more, "value": 0})
        y = check(y)
    ctx.bind(y)


def array_feature_extractor(ctx: Context) -> None:
    """ai.onnx.ml: columns of the last axis; a single axis counts as one row."""
    x, where = ctx.tensor(0), indices(ctx, 1)
    if x.rank == 0:
        ctx.at.invalid("has a scalar input")
    rows = ctx.reshape(x, (1, *x.shape)) if x.rank == 1 else x
    flat = ctx.reshape(where, (prod(where.shape),))
    axis = rows.rank - 1
    if flat.const is not None:
        picked = inside(ctx, [int(i) for i in flat.const], rows.shape[axis], axis)
        ctx.bind(take(ctx, rows, axis, picked))
        return
    ctx.bind(ctx.emit("gather", [rows, flat], {"axis": axis}))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "ReverseSequence": reverse_sequence,
    "MaxUnpool": max_unpool,
}
ML_IMPORTERS: dict[str, Callable[[Context], None]] = {"ArrayFeatureExtractor": array_feature_extractor}
"""Operators of the domain ai.onnx.ml."""
