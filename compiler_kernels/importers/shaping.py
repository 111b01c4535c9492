"""Operators that give elements another shape or repeat them: Reshape, Flatten, Squeeze, Unsqueeze, Expand, Tile,
ConstantOfShape, Range, Split. Shapes, axes and sizes may be known at run time only (``runtime_values``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod

import numpy as np
import onnx

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.folding import LIMIT, to_array
from compiler_kernels.importers.runtime_values import (
    Check,
    axis_sets,
    checked,
    chosen_by_axes,
    declared_sizes,
    ints,
    runtime,
    undetermined,
)
from compiler_kernels.ir.dims import maximum, minimum
from compiler_kernels.ir.shapes import cast_sizes, is_one
from compiler_kernels.ir.symbols import divides, simplified

Ints = tuple[int, ...]


def reshape(ctx: Context) -> None:
    x, keep_zero = ctx.tensor(0), ctx.at.flag("allowzero", 0)
    if runtime(ctx, 1) is not None:
        out = declared_sizes(ctx, 1, "its shape")
        if prod(out) != prod(x.shape):
            ctx.at.invalid(f"cannot reshape {list(x.shape)} to the declared {list(out)}")
        # 0 copies a size, unless allowzero; -1 is whatever is left, once
        also = [[0] if not keep_zero and i < x.rank and x.shape[i] == d else [] for i, d in enumerate(out)]
        ctx.bind(checked(ctx, ctx.reshape(x, out), 1, "a shape", out, also, wildcard=-1))
        return
    wanted = list(ctx.const_ints(1, "its shape"))
    if not keep_zero:
        wanted = [x.shape[i] if d == 0 and i < x.rank else d for i, d in enumerate(wanted)]
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted):
        ctx.at.invalid(f"reshapes to {wanted}, which is not a shape")
    known = prod(d for d in wanted if d != -1)
    if -1 in wanted:
        if known == 0 or not divides(known, prod(x.shape)):
            ctx.at.invalid(f"cannot reshape {list(x.shape)} to {wanted}")
        wanted[wanted.index(-1)] = prod(x.shape) // known
    if prod(wanted) != prod(x.shape):
        ctx.at.invalid(f"cannot reshape {list(x.shape)} to {wanted}")
    ctx.bind(ctx.reshape(x, wanted))


def flatten(ctx: Context) -> None:
    x, axis = ctx.tensor(0), ctx.at.int_("axis", 1)
    if not -x.rank <= axis <= x.rank:
        ctx.at.invalid(f"flattens at axis {axis} of a tensor of rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    ctx.bind(ctx.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:]))))


def _axes(ctx: Context) -> Ints | None:
    if ctx.at.version >= 13:
        return ctx.const_ints(1, "its axes") if ctx.at.has_input(1) else None
    return ctx.at.optional_ints("axes")


def squeeze(ctx: Context) -> None:
    x = ctx.tensor(0)
    steering = runtime(ctx, 1) if ctx.at.version >= 13 else None
    if steering is not None:
        out = declared_sizes(ctx, 1, "its axes")

        def fits(axes: Ints) -> bool:
            ones = all(x.shape[a] == 1 for a in axes)
            return ones and tuple(d for i, d in enumerate(x.shape) if i not in axes) == out

        _one_shape(ctx, "axes", x.rank, axis_sets(x.rank, steering.type.count, fits), x, out)
        return
    axes = _axes(ctx)
    if axes is None:
        ctx.bind(ctx.reshape(x, [d for d in x.shape if d != 1]))
        return
    gone = {axis_of(ctx, a, x.rank) for a in axes}
    if any(x.shape[a] != 1 for a in gone):
        ctx.at.invalid(f"squeezes axes {sorted(gone)} of shape {list(x.shape)}")
    ctx.bind(ctx.reshape(x, [d for i, d in enumerate(x.shape) if i not in gone]))


def unsqueeze(ctx: Context) -> None:
    x = ctx.tensor(0)
    steering = runtime(ctx, 1) if ctx.at.version >= 13 else None
    if steering is not None:
        out = declared_sizes(ctx, 1, "its axes")

        def fits(axes: Ints) -> bool:
            return all(out[a] == 1 for a in axes) and tuple(d for i, d in enumerate(out) if i not in axes) == x.shape

        _one_shape(ctx, "axes", len(out), axis_sets(len(out), steering.type.count, fits), x, out)
        return
    axes = _axes(ctx)
    if axes is None:
        ctx.at.invalid("lacks its axes")
    rank = x.rank + len(axes)
    new = {axis_of(ctx, a, rank) for a in axes}
    if len(new) != len(axes):
        ctx.at.invalid(f"names an axis twice in {list(axes)}")
    rest = iter(x.shape)
    ctx.bind(ctx.reshape(x, [1 if i in new else next(rest) for i in range(rank)]))


def _one_shape(ctx: Context, what: str, rank: int, sets: list[Ints], x: Tensor, out: Ints) -> None:
    """All sets of axes give the declared shape, so the result is ``x`` in it."""
    if not sets:
        ctx.at.invalid(f"turns {list(x.shape)} into the declared {list(out)}, which no {what} do")
    y = ctx.reshape(x, out)
    ctx.bind(chosen_by_axes(ctx, 1, what, rank, sets, [y] * len(sets)))


def expand(ctx: Context) -> None:
    x = ctx.tensor(0)
    steering = runtime(ctx, 1)
    if steering is not None:
        out = declared_sizes(ctx, 1, "its shape")
        aligned = out[len(out) - steering.type.count :]
        own = (1,) * (len(out) - x.rank) + x.shape
        if len(out) != max(x.rank, steering.type.count) or any(a not in (1, d) for a, d in zip(own, out, strict=True)):
            ctx.at.invalid(f"expands {list(x.shape)} to the declared {list(out)}, which no shape does")
        also = [[1] if a == d else [] for a, d in zip(own[len(out) - len(aligned) :], aligned, strict=True)]
        ctx.bind(checked(ctx, ctx.expand(x, out), 1, "a shape", aligned, also))
        return
    wanted = ctx.const_ints(1, "its shape")
    rank = max(x.rank, len(wanted))
    old, new = (1,) * (rank - x.rank) + x.shape, (1,) * (rank - len(wanted)) + wanted
    # a size that may be 1 is none that stretches: the operation's rule then asks that it equals the wanted one
    sizes = [a if is_one(b) else b for a, b in zip(old, new, strict=True)]
    ctx.bind(ctx.expand(x, sizes))


def tile(ctx: Context) -> None:
    """Each axis becomes (repeats, size), of which the first is stretched."""
    x = ctx.tensor(0)

    def wanted() -> list[int]:
        out = declared_sizes(ctx, 1, "its repeats")
        if len(out) != x.rank or any(o % d if d else o for o, d in zip(out, x.shape, strict=True)):
            ctx.at.invalid(f"tiles {list(x.shape)} to the declared {list(out)}, which no repeats do")
        if 0 in x.shape:
            ctx.at.unsupported(undetermined(ctx, 1, "its repeats"))
        return [o // d for o, d in zip(out, x.shape, strict=True)]

    repeats, check = ints(ctx, 1, "repeats", wanted)
    if len(repeats) != x.rank or any(r < 0 for r in repeats):
        ctx.at.invalid(f"has repeats {list(repeats)} for a tensor of rank {x.rank}")
    narrow: list[int] = []
    wide: list[int] = []
    for size, count in zip(x.shape, repeats, strict=True):
        narrow += [size] if is_one(count) else [1, size]
        wide += [size] if is_one(count) else [count, size]
    y = ctx.expand(ctx.reshape(x, narrow), wide)
    ctx.bind(check(ctx.reshape(y, [d * r for d, r in zip(x.shape, repeats, strict=True)])))


def constant_of_shape(ctx: Context) -> None:
    value = ctx.at.attr("value")
    fill = to_array(value) if isinstance(value, onnx.TensorProto) else np.zeros(1, np.float32)
    if fill.size != 1:
        ctx.at.invalid(f"has a value of {fill.size} elements where one is needed")
    shape, check = ints(ctx, 0, "a shape", lambda: declared_sizes(ctx, 0, "its shape"))
    if any(d < 0 for d in shape):
        ctx.at.invalid(f"has the shape {list(shape)}")
    if not all(isinstance(d, int) for d in shape):
        ctx.bind(ctx.expand(constant(fill.reshape(())), shape))
        return
    if prod(float(d) for d in shape) > LIMIT:
        ctx.at.unsupported(f"creates a constant of more than {LIMIT} elements")
    ctx.bind(check(constant(np.full(shape, fill.reshape(())))))


def range_(ctx: Context) -> None:
    """start + i * delta. The number of elements is that of constants, or the declared one, which the engine checks."""
    operands = [ctx.reshape(ctx.wide(i), ()) for i in range(3)]
    known = [t.const for t in operands]
    if all(c is not None for c in known):
        start, limit, delta = (np.asarray(c)[()].item() for c in known if c is not None)
        if delta == 0 or not all(math.isfinite(v) for v in (start, limit, delta)):
            ctx.at.invalid(f"has the start {start}, limit {limit} and delta {delta}")
        exact = all(isinstance(v, int) for v in (start, limit, delta))
        count = max(0, -((start - limit) // delta) if exact else math.ceil((limit - start) / delta))
        if count > LIMIT:
            ctx.at.unsupported(f"creates a range of more than {LIMIT} elements")
    else:
        open_ = next(i for i, c in enumerate(known) if c is None)
        (count,) = declared_sizes(ctx, open_, "its bounds") or (0,)
    message = (
        f"node {ctx.at.name!r} (Range) is compiled for {count} elements, and its start, limit and delta give another "
        "number; give such that fit, or compile the model for another shape"
    )
    y = ctx.emit("range", operands, {"message": message}, shape=(count,))
    ctx.bind(ctx.narrow(y, ctx.tensor(0)))


def split(ctx: Context) -> None:
    x = ctx.tensor(0)
    axis, count = axis_of(ctx, ctx.at.int_("axis", 0), x.rank), len(ctx.at.outputs)
    sizes = ctx.at.optional_ints("split")
    check: Check = _unchecked
    if sizes is None and ctx.at.has_input(1):
        sizes, check = ints(ctx, 1, "sizes", lambda: _declared_parts(ctx, axis, count))
    if sizes is None:
        each = -(-x.shape[axis] // count)
        sizes = cast_sizes([simplified(maximum(0, minimum(each, x.shape[axis] - i * each))) for i in range(count)])
    if sum(sizes) != x.shape[axis] or len(sizes) != count or any(size < 0 for size in sizes):
        ctx.at.invalid(f"splits {x.shape[axis]} elements into {list(sizes)} for {count} outputs")
    start = 0
    for index, size in enumerate(sizes):
        if ctx.used(index):
            ctx.bind(check(_part(ctx, x, axis, start, size)), index)
        start += size


def _unchecked(y: Tensor) -> Tensor:
    return y


def _declared_parts(ctx: Context, axis: int, count: int) -> list[int]:
    return [declared_sizes(ctx, 1, "its sizes", output)[axis] for output in range(count)]


def _part(ctx: Context, x: Tensor, axis: int, start: int, size: int) -> Tensor:
    starts = [start if i == axis else 0 for i in range(x.rank)]
    return ctx.slice(x, starts, [1] * x.rank, [size if i == axis else d for i, d in enumerate(x.shape)])


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Expand": expand,
    "Tile": tile,
    "ConstantOfShape": constant_of_shape,
    "Range": range_,
    "Split": split,
}
