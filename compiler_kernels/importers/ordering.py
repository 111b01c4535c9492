"""Operators that order, scan and mark elements: TopK, ArgMax, CumSum, OneHot, Trilu."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.indexing import iota, whole
from compiler_kernels.importers.runtime_values import chosen_by_axes, declared_sizes, ints, runtime
from compiler_kernels.ir.graph import Attr


def top_k(ctx: Context) -> None:
    """Indices by one operation; values are read by them."""
    x = ctx.tensor(0)
    axis = axis_of(ctx, ctx.at.int_("axis", -1), x.rank)
    output = 0 if ctx.used(0) else 1
    wanted, check = ints(ctx, 1, "k", lambda: (declared_sizes(ctx, 1, "k", output)[axis],))
    ctx.at.int_("sorted", 1)  # the order of unsorted results is free: they are sorted
    if len(wanted) != 1 or not 0 <= wanted[0] <= x.shape[axis]:
        ctx.at.invalid(f"takes the first {list(wanted)} of the {x.shape[axis]} elements of axis {axis}")
    attrs: dict[str, Attr] = {"axis": axis, "k": wanted[0], "largest": ctx.at.flag("largest", 1)}
    found = ctx.emit("topk_indices", [ctx.wide(0)], attrs)
    if ctx.used(0):
        ctx.bind(check(ctx.emit("gather_elements", [x, found], {"axis": axis})))
    if ctx.used(1):
        ctx.bind(check(found), 1)


def arg_extreme(ctx: Context) -> None:
    x = ctx.wide(0)
    attrs: dict[str, Attr] = {
        "axis": axis_of(ctx, ctx.at.int_("axis", 0), x.rank),
        "keepdims": ctx.at.flag("keepdims", 1),
        "select_last": ctx.at.flag("select_last_index", 0),
    }
    ctx.bind(ctx.emit("arg_max" if ctx.at.op == "ArgMax" else "arg_min", [x], attrs))


def cumulative(ctx: Context) -> None:
    """A run-time axis chooses among the results along every axis."""
    x = ctx.wide(0)
    kind = "cum_sum" if ctx.at.op == "CumSum" else "cum_prod"
    exclusive, reverse = ctx.at.flag("exclusive", 0), ctx.at.flag("reverse", 0)

    def along(axis: int) -> Tensor:
        return ctx.emit(kind, [x], {"axis": axis, "exclusive": exclusive, "reverse": reverse})

    if x.rank == 0:
        ctx.at.invalid("has a scalar input")
    if runtime(ctx, 1) is None:
        axes = ctx.const_ints(1, "its axis")
        if len(axes) != 1:
            ctx.at.invalid(f"has {len(axes)} axes where one is needed")
        y = along(axis_of(ctx, axes[0], x.rank))
    else:
        choices = [along(axis) for axis in range(x.rank)]
        y = chosen_by_axes(ctx, 1, "an axis", x.rank, [(a,) for a in range(x.rank)], choices)
    ctx.bind(ctx.narrow(y, ctx.tensor(0)))


def one_hot(ctx: Context) -> None:
    """The first value is off, the second on; a negative index counts from the depth, one outside is off everywhere."""
    where, values = ctx.tensor(0), ctx.tensor(2)
    rank = where.rank + 1
    axis = axis_of(ctx, ctx.at.int_("axis", -1), rank)
    if runtime(ctx, 1) is None:
        given = ctx.const(1, "its depth")
        if given.size != 1:
            ctx.at.invalid(f"has {given.size} values as its depth where one is needed")
        depth, check = int(given.reshape(-1)[0]), None
    else:
        (depth,), check = ints(ctx, 1, "its depth", lambda: (declared_sizes(ctx, 1, "its depth")[axis],))
    if depth < 1 or prod(values.shape) != 2:
        ctx.at.invalid(f"has depth {depth} and {prod(values.shape)} values where two are needed")
    index = ctx.reshape(ctx.cast(where, "int64"), (*where.shape[:axis], 1, *where.shape[axis:]))
    low = ctx.emit("less", [index, whole([0])])
    index = ctx.emit("where", [low, ctx.emit("add", [index, whole([depth])]), index])
    classes = ctx.reshape(iota(depth), (depth, *(1,) * (rank - 1 - axis)))
    flat = ctx.reshape(values, (2,))
    off, on = (ctx.slice(flat, [i], [1], [1]) for i in (0, 1))
    y = ctx.emit("where", [ctx.emit("equal", [index, classes]), on, off])
    ctx.bind(check(y) if check else y)


def trilu(ctx: Context) -> None:
    """Elements of a triangle by their column minus their row, compared with k; +0 elsewhere."""
    x = ctx.tensor(0)
    if x.rank < 2:
        ctx.at.invalid(f"has an input of shape {list(x.shape)}; a matrix is needed")
    rows, columns = x.shape[-2:]
    apart = ctx.emit("sub", [iota(columns), ctx.reshape(iota(rows), (rows, 1))])
    k = ctx.tensor(1) if ctx.at.has_input(1) else whole([0])
    if prod(k.shape) != 1:
        ctx.at.invalid(f"has {prod(k.shape)} values as k where one is needed")
    kept = "greater_or_equal" if ctx.at.int_("upper", 1) else "less_or_equal"
    mask = ctx.emit(kept, [apart, ctx.reshape(ctx.cast(k, "int64"), (1,))])
    ctx.bind(ctx.emit("where", [mask, x, ctx.scalar(0, x.type.dtype)]))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "TopK": top_k,
    "ArgMax": arg_extreme,
    "ArgMin": arg_extreme,
    "CumSum": cumulative,
    "CumProd": cumulative,
    "OneHot": one_hot,
    "Trilu": trilu,
}
