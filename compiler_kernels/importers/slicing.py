"""Slice, Pad and CenterCropPad. Bounds and amounts that are only known at run time are operands of the kernels; the
declared result shape is what the engine is compiled for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.runtime_values import declared_sizes, ints, runtime
from compiler_kernels.ir.dims import Expr, ceildiv, maximum, minimum
from compiler_kernels.ir.dtypes import numpy_dtype
from compiler_kernels.ir.graph import Attr
from compiler_kernels.ir.shapes import cast_sizes
from compiler_kernels.ir.shapes_move import PAD_MODES
from compiler_kernels.ir.symbols import simplified


def slice_(ctx: Context) -> None:
    """Attributes before opset 10, inputs from then on; out-of-range bounds clamp as ONNX says."""
    x = ctx.tensor(0)
    steps: Sequence[int] | None = None
    if ctx.at.version < 10:
        begins, ends, axes = ctx.at.ints("starts"), ctx.at.ints("ends"), ctx.at.optional_ints("axes")
    else:
        unknown = [i for i in range(1, 5) if runtime(ctx, i) is not None]
        if unknown:
            _slice_at(ctx, x, unknown[0])
            return
        begins, ends = ctx.const_ints(1, "its starts"), ctx.const_ints(2, "its ends")
        axes = ctx.const_ints(3, "its axes") if ctx.at.has_input(3) else None
        steps = ctx.const_ints(4, "its steps") if ctx.at.has_input(4) else None
    axes = tuple(range(len(begins))) if axes is None else axes
    steps = (1,) * len(begins) if steps is None else steps
    if not len(begins) == len(ends) == len(axes) == len(steps) or 0 in steps:
        ctx.at.invalid("has starts, ends, axes and steps that do not belong together")
    start, step, size = [0] * x.rank, [1] * x.rank, list(x.shape)
    for a, b, e, s in zip(axes, begins, ends, steps, strict=True):
        axis = axis_of(ctx, a, x.rank)
        if all(isinstance(v, int) for v in (x.shape[axis], b, e)):
            start[axis], size[axis] = picked(x.shape[axis], b, e, s)
        else:
            start[axis], size[axis] = _symbolic_range(x.shape[axis], b, e, s)
        step[axis] = s
    ctx.bind(ctx.slice(x, start, step, size))


def picked(size: int, begin: int, end: int, step: int) -> tuple[int, int]:
    """First element and number of elements that Slice takes of ``size``: bounds clamp to [0, size], for a negative step
    begins to [0, size - 1] and ends to [-1, size - 1] (ONNX, Slice)."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = (min(max(v if v >= 0 else v + size, low), high) for v in (begin, end))
    first = max(first, 0)
    count = -((first - last) // step) if size else 0
    return (first, count) if count > 0 else (0, 0)


def _symbolic_range(size: int, begin: int, end: int, step: int) -> tuple[int, int]:
    """The same as expressions."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    bounds = [v if v >= 0 else v + size for v in (begin, end)]
    first, last = (simplified(minimum(maximum(v, low), high)) for v in bounds)
    count = (last - first) if step > 0 else (first - last)
    return cast_sizes([first])[0], cast_sizes([simplified(maximum(0, ceildiv(count, abs(step))))])[0]


def _slice_at(ctx: Context, x: Tensor, unknown: int) -> None:
    """Starts, ends, axes and steps as operands; those that are constants become weights."""
    out = declared_sizes(ctx, unknown, "its bounds")
    if len(out) != x.rank:
        ctx.at.invalid(f"slices {list(x.shape)} to the declared {list(out)}")
    operands = [ctx.tensor(1), ctx.tensor(2), ctx.optional(3), ctx.optional(4)]
    if len({t.type.count for t in operands if t is not None}) != 1:
        ctx.at.invalid("has starts, ends, axes and steps that do not belong together")
    attrs: dict[str, Attr] = {"message": _message(ctx, "starts, ends, axes and steps", out)}
    ctx.bind(ctx.emit("slice_at", [x, *operands], attrs, shape=out))


def _message(ctx: Context, what: str, out: Sequence[int]) -> str:
    return (
        f"node {ctx.at.name!r} ({ctx.at.op}) is compiled for a result of shape {list(out)}, and its {what} give "
        "another one; give such that fit, or compile the model for another shape"
    )


def pad(ctx: Context) -> None:
    """Negative pads remove elements before anything is added."""
    x = ctx.tensor(0)
    mode = ctx.at.str_("mode", "constant")
    if mode not in PAD_MODES:
        ctx.at.invalid(f"has mode {mode!r}; ONNX defines {', '.join(PAD_MODES)}")
    axes: Sequence[int] = range(x.rank)
    value: float = 0
    if ctx.at.version < 11:
        pads, value = ctx.at.ints("pads"), ctx.at.float_("value", 0.0)
    else:
        unknown = [i for i in (1, 3) if runtime(ctx, i) is not None]
        if unknown or (mode == "constant" and runtime(ctx, 2) is not None):
            _pad_by(ctx, x, mode, unknown)
            return
        pads = ctx.const_ints(1, "its pads")
        value = ctx.const(2, "its fill value").reshape(-1)[0].item() if ctx.at.has_input(2) else 0
        if ctx.at.has_input(3):
            axes = [axis_of(ctx, a, x.rank) for a in ctx.const_ints(3, "its axes")]
    if any(isinstance(p, Expr) for p in pads):
        ctx.at.unsupported(f"pads by {list(pads)}, which depends on the size; only constant pads are compiled")
    ctx.bind(_padded(ctx, x, mode, axes, pads, value))


def _amounts(ctx: Context, x: Tensor, axes: Sequence[int], pads: Sequence[int]) -> tuple[list[int], list[int]]:
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        ctx.at.invalid(f"has {len(pads)} pads for {len(axes)} axes")
    begins, ends = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        begins[axis], ends[axis] = pads[i], pads[len(axes) + i]
    return begins, ends


def _padded(ctx: Context, x: Tensor, mode: str, axes: Sequence[int], pads: Sequence[int], value: float) -> Tensor:
    begins, ends = _amounts(ctx, x, axes, pads)
    if min((*begins, *ends), default=0) < 0:
        x = ctx.crop(x, [max(0, -b) for b in begins], [max(0, -e) for e in ends])
    amounts = tuple(max(0, p) for p in (*begins, *ends))
    if not any(amounts):
        return x
    floating = numpy_dtype(x.type.dtype).kind in "fV"
    fill: float | int = float(value) if floating else int(value)
    return ctx.emit("pad", [x], {"mode": mode, "pads": amounts, "value": fill if mode == "constant" else type(fill)(0)})


def _pad_by(ctx: Context, x: Tensor, mode: str, unknown: Sequence[int]) -> None:
    """Pads, fill value and axes as operands. Constant pads give the result's shape, else the model must declare it."""
    axes = ctx.optional(3)
    if unknown:
        out: Sequence[int] = declared_sizes(ctx, unknown[0], "its pads")
        if len(out) != x.rank:
            ctx.at.invalid(f"pads {list(x.shape)} to the declared {list(out)}")
    else:
        named = range(x.rank) if axes is None else [axis_of(ctx, a, x.rank) for a in ctx.const_ints(3, "its axes")]
        begins, ends = _amounts(ctx, x, named, ctx.const_ints(1, "its pads"))
        out = [d + b + e for d, b, e in zip(x.shape, begins, ends, strict=True)]
    count = axes.type.count if axes is not None else x.rank
    if ctx.tensor(1).type.count != 2 * count:
        ctx.at.invalid(f"has {ctx.tensor(1).type.count} pads for {count} axes")
    value = ctx.optional(2) if mode == "constant" else None
    if value is None:
        value = constant(np.zeros((), numpy_dtype(x.type.dtype)))
    attrs: dict[str, Attr] = {"mode": mode, "message": _message(ctx, "pads and axes", out)}
    ctx.bind(ctx.emit("pad_by", [x, ctx.tensor(1), value, axes], attrs, shape=out))


def center_crop_pad(ctx: Context) -> None:
    """The middle of a longer axis, zeros around a shorter one; the odd element goes to the end."""
    x = ctx.tensor(0)
    given = ctx.at.optional_ints("axes")
    axes = list(range(x.rank)) if given is None else [axis_of(ctx, a, x.rank) for a in given]

    def declared() -> list[int]:
        out = declared_sizes(ctx, 1, "its shape")
        if len(out) != x.rank:
            ctx.at.invalid(f"is declared to give {len(out)} axes for the {x.rank} of its input")
        return [out[a] for a in axes]

    wanted, check = ints(ctx, 1, "a shape", declared)
    if len(wanted) != len(axes) or len(set(axes)) != len(axes) or any(w < 0 for w in wanted):
        ctx.at.invalid(f"has the shape {list(wanted)} for {len(axes)} axes")
    begins, ends = [], []
    for axis, size in zip(axes, wanted, strict=True):
        change = size - x.shape[axis]
        first = abs(change) // 2
        begins.append(first if change >= 0 else -first)
        ends.append(change - begins[-1])
    ctx.bind(check(_padded(ctx, x, "constant", axes, (*begins, *ends), 0)))


IMPORTERS: dict[str, Callable[[Context], None]] = {"Slice": slice_, "Pad": pad, "CenterCropPad": center_crop_pad}
