"""Operators whose result size depends on the data: NonZero, Compress, Unique, NonMaxSuppression.

Each gives a tensor of static bound and a count (``Tensor.count``). Where the model declares the size, the count is
compared with it at every inference and the result is an ordinary tensor from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.indexing import iota, take, whole
from compiler_kernels.ir.extents import extents_name
from compiler_kernels.ir.graph import Attr, TensorType


def counted(x: Tensor, axis: int, count: Tensor) -> Tensor:
    """``x``, of which only the first ``count`` elements along ``axis`` exist."""
    return replace(x, count=count, counted=axis)


def bind(ctx: Context, x: Tensor, index: int = 0) -> None:
    """Make ``x`` output ``index``, at its declared size where there is one."""
    ctx.bind(settled(ctx, x, ctx.declared(index), ctx.at.outputs[index]), index)


def settled(ctx: Context, x: Tensor, stated: TensorType | None, name: str) -> Tensor:
    """``x`` cut to the size that the model declares for the axis that depends on the data, where it declares one."""
    if x.count is None or stated is None or len(stated.shape) != x.rank:
        return x
    size = stated.shape[x.counted]
    if not isinstance(size, int):
        return x
    if size > x.shape[x.counted]:
        ctx.at.invalid(f"has {size} elements declared along axis {x.counted} of {name!r}, more than there can be")
    if size == 0:
        ctx.at.unsupported(
            f"has no element declared along axis {x.counted} of {name!r}; an empty tensor is not compiled"
        )
    sizes = [size if a == x.counted else d for a, d in enumerate(x.shape)]
    plain = replace(x, count=None)
    part = ctx.slice(plain, [0] * x.rank, [1] * x.rank, sizes)
    message = (
        f"output {name!r} of node {ctx.at.name!r} ({ctx.at.op}) has another size along axis {x.counted} than "
        f"the {size} that the model declares; declare a symbol there, and the engine states the size"
    )
    return ctx.emit("checked", [part, x.count], {"expected": (size,), "message": message})


def finished(ctx: Context, outputs: Sequence[str]) -> list[str]:
    """Outputs of the graph: those of the model, then the actual sizes of those whose size depends on the data."""
    names = list(outputs)
    for name in outputs:
        x = ctx.tensors.get(name)
        if x is None or x.count is None:
            continue
        x = settled(ctx, x, ctx.stated.get(name), name)
        if x.count is not None:
            sizes = sizes_of(ctx, x)
            # Along the first axis the elements that exist already come first.
            x = replace(x, count=None)
            x = ctx.emit("compact", [x, sizes]) if ctx.tensors[name].counted else ctx.reshape(x, x.shape)
            if extents_name(name) in ctx.tensors:
                ctx.at.invalid(f"has an output called {extents_name(name)!r}, a name that Cuvil keeps for itself")
            ctx.tensors[extents_name(name)] = sizes
            names.append(extents_name(name))
        ctx.tensors[name] = replace(x, name=name)
    return names


def sizes_of(ctx: Context, x: Tensor) -> Tensor:
    """The shape of ``x`` at run time: int64, one element per axis."""
    assert x.count is not None
    count = ctx.reshape(x.count, (1,))
    parts = [whole(x.shape[: x.counted]), count, whole(x.shape[x.counted + 1 :])]
    parts = [p for p in parts if p.shape[0]]
    return parts[0] if len(parts) == 1 else ctx.emit("concat", parts, {"axis": 0})


def shape(ctx: Context) -> None:
    """Shape and Size of a tensor whose size depends on the data."""
    sizes = sizes_of(ctx, ctx.tensor(0))
    rank = sizes.shape[0]
    if ctx.at.op == "Shape":
        first, last, _ = slice(ctx.at.int_("start", 0), ctx.at.int_("end", rank)).indices(rank)
        if last <= first:
            ctx.at.unsupported("gives an empty shape")
        ctx.bind(ctx.slice(sizes, [first], [1], [last - first]))
        return
    total = ctx.slice(sizes, [0], [1], [1])
    for a in range(1, rank):
        total = ctx.emit("mul", [total, ctx.slice(sizes, [a], [1], [1])])
    ctx.bind(ctx.reshape(total, ()))


def marked(ctx: Context, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates (axes, bound) of the elements that are not zero, in row-major order, and their number."""
    return ctx.emit("nonzero", [mask]), ctx.emit("count_nonzero", [mask])


def nonzero(ctx: Context) -> None:
    where, count = marked(ctx, ctx.wide(0))
    bind(ctx, counted(where, 1, count))


def compress(ctx: Context) -> None:
    """Constant conditions pick now; run-time ones give the room of all elements they cover."""
    x = ctx.tensor(0)
    axis = 0
    if "axis" in ctx.at.attrs:
        axis = axis_of(ctx, ctx.at.int_("axis", 0), x.rank)
    else:
        x = ctx.reshape(x, (prod(x.shape),))
    condition = ctx.tensor(1)
    if condition.rank != 1 or condition.type.dtype != "bool":
        ctx.at.invalid(
            f"has a condition of type {condition.type.dtype} and rank {condition.rank}; bool and 1 are needed"
        )
    length = min(condition.shape[0], x.shape[axis])
    if condition.const is not None:
        picked = [int(i) for i in np.flatnonzero(condition.const[:length])]
        if not picked:
            ctx.at.unsupported("selects nothing, which gives an empty tensor")
        ctx.bind(take(ctx, x, axis, picked))
        return
    where, count = marked(ctx, ctx.slice(condition, [0], [1], [length]))
    y = ctx.emit("gather", [x, ctx.reshape(where, (length,))], {"axis": axis})
    bind(ctx, counted(y, axis, count))


def unique(ctx: Context) -> None:
    """Rows in order; the first of every run of equal ones is unique, and the running number of firsts numbers the runs.

    Not sorted: the unique rows in the order in which they occur first, numbered again.
    """
    x = ctx.wide(0)
    original, axis = ctx.tensor(0), 0
    if "axis" in ctx.at.attrs:
        axis = axis_of(ctx, ctx.at.int_("axis", 0), x.rank)
    else:
        x, original = (ctx.reshape(t, (prod(t.shape),)) for t in (x, original))
    n = x.shape[axis]
    perm = [axis, *(a for a in range(x.rank) if a != axis)]
    rows = ctx.reshape(ctx.transpose(x, perm), (n, prod(x.shape) // n))
    order = ctx.emit("sort_rows", [rows])
    first = _first_of_runs(ctx, ctx.emit("gather", [rows, order], {"axis": 0}))
    group_in_order = _numbered(ctx, first)
    group = _scattered(ctx, n, order, group_in_order, "none")
    chosen, count = marked(ctx, first)
    chosen = ctx.emit("gather", [order, ctx.reshape(chosen, (n,))], {"axis": 0})
    if not ctx.at.int_("sorted", 1):
        origin = ctx.emit("gather", [chosen, group], {"axis": 0})  # of every row, where its like occurs first
        at_first = ctx.emit("equal", [origin, iota(n)])
        group = ctx.emit("gather", [_numbered(ctx, at_first), origin], {"axis": 0})
        chosen = ctx.reshape(ctx.emit("nonzero", [at_first]), (n,))
    if ctx.used(0):
        bind(ctx, counted(ctx.emit("gather", [original, chosen], {"axis": axis}), axis, count))
    if ctx.used(1):
        bind(ctx, counted(chosen, 0, count), 1)
    if ctx.used(2):
        ctx.bind(group, 2)
    if ctx.used(3):
        ones = ctx.emit("expand", [whole([1])], shape=(n,))
        bind(ctx, counted(_scattered(ctx, n, group, ones, "add"), 0, count), 3)


def _first_of_runs(ctx: Context, rows: Tensor) -> Tensor:
    """Whether each of the ordered ``rows`` differs from the one before it (n)."""
    n, m = rows.shape
    true = constant(np.ones(1, dtype=np.bool_))
    if n == 1:
        return ctx.emit("reshape", [true], shape=(1,))
    before = ctx.slice(rows, [0, 0], [1, 1], [n - 1, m])
    after = ctx.slice(rows, [1, 0], [1, 1], [n - 1, m])
    other = ctx.cast(ctx.emit("logical_not", [ctx.emit("equal", [before, after])]), "float32")
    most = (
        ctx.reshape(other, (n - 1,)) if m == 1 else ctx.emit("reduce_max", [other], {"axes": (1,), "keepdims": False})
    )
    return ctx.emit("concat", [true, ctx.cast(most, "bool")], {"axis": 0})


def _numbered(ctx: Context, marks: Tensor) -> Tensor:
    """How many of the marks up to each place are set, less one."""
    attrs: dict[str, Attr] = {"axis": 0, "exclusive": False, "reverse": False}
    return ctx.emit("sub", [ctx.emit("cum_sum", [ctx.cast(marks, "int64")], attrs), whole([1])])


def _scattered(ctx: Context, n: int, where: Tensor, values: Tensor, reduction: str) -> Tensor:
    zeros = ctx.emit("expand", [whole([0])], shape=(n,))
    return ctx.emit("scatter_elements", [zeros, where, values], {"axis": 0, "reduction": reduction})


def non_max_suppression(ctx: Context) -> None:
    """Boxes kept per image and class, listed in that order; the room is for all of them."""
    boxes, scores, most = ctx.wide(0), ctx.wide(1), ctx.optional(2)
    if boxes.rank != 3 or scores.rank != 3:
        ctx.at.invalid(f"has boxes of shape {list(boxes.shape)} and scores of shape {list(scores.shape)}")
    limit = boxes.shape[1]
    if most is None:
        ctx.at.unsupported("has no max_output_boxes_per_class, and ONNX's default of 0 selects nothing")
    if most.const is not None:
        limit = min(limit, int(most.const.reshape(-1)[0])) if most.const.size else 0
        if limit < 1:
            ctx.at.unsupported("has a max_output_boxes_per_class below 1, which selects nothing")
    scalars: list[Tensor | None] = [ctx.reshape(ctx.cast(most, "int64"), (1,))]
    for index in (3, 4):
        given = ctx.optional(index)
        scalars.append(None if given is None else ctx.reshape(ctx.cast(given, "float32"), (1,)))
    order = ctx.emit("topk_indices", [scores], {"axis": 2, "k": scores.shape[2], "largest": True})
    attrs: dict[str, Attr] = {"center_point": ctx.at.flag("center_point_box", 0), "limit": limit}
    kept = ctx.emit("non_max_suppression", [boxes, scores, order, *scalars], attrs)
    where, count = marked(ctx, ctx.emit("greater_or_equal", [kept, whole([0])]))
    where = ctx.transpose(where, (1, 0))
    box = ctx.emit("gather_nd", [kept, where], {"batch_dims": 0})
    bound = where.shape[0]
    places = ctx.slice(where, [0, 0], [1, 1], [bound, 2])
    y = ctx.emit("concat", [places, ctx.reshape(box, (bound, 1))], {"axis": 1})
    bind(ctx, counted(y, 0, count))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "NonZero": nonzero,
    "Compress": compress,
    "Unique": unique,
    "NonMaxSuppression": non_max_suppression,
    "Shape": shape,
    "Size": shape,
}
