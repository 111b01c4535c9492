"""ReduceSum, Mean, Max, Min, Prod, and the composites L1, L2, LogSum, LogSumExp, SumSquare as their function bodies.

Bodies have a step before the sum and one after it; over an empty set of axes only these two are left. Axes may be known
at run time only: every set of axes that gives the declared shape is computed, and the engine takes the one named.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import numpy as np

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.halves import widened
from compiler_kernels.importers.runtime_values import axis_sets, chosen_by_axes, declared_sizes, runtime
from compiler_kernels.ir.dtypes import DTYPES, numpy_dtype

Ints = tuple[int, ...]
Step = Callable[[Context, Tensor], Tensor]


def _same(ctx: Context, x: Tensor) -> Tensor:
    return x


def _absolute(ctx: Context, x: Tensor) -> Tensor:
    return x if DTYPES[x.type.dtype].kind == "uint" else ctx.emit("abs", [x])


def _square(ctx: Context, x: Tensor) -> Tensor:
    return ctx.emit("mul", [x, x])


def _real(ctx: Context, x: Tensor) -> Tensor:
    """Integers as binary64, which holds all of 53 bits; floating-point types as they are."""
    return x if "float" in x.type.dtype else ctx.cast(x, "float64")


def _root(ctx: Context, x: Tensor) -> Tensor:
    return ctx.cast(ctx.emit("sqrt", [_real(ctx, x)]), x.type.dtype)


def _log(ctx: Context, x: Tensor) -> Tensor:
    return ctx.cast(ctx.emit("log", [_real(ctx, x)]), x.type.dtype)


def _exp_wide(ctx: Context, x: Tensor) -> Tensor:
    return ctx.emit("exp", [ctx.cast(x, "float64")])


def _log_wide(ctx: Context, x: Tensor) -> Tensor:
    return ctx.emit("log", [x])


_BODIES: Final[dict[str, tuple[Step, str, Step]]] = {
    "ReduceSum": (_same, "sum", _same),
    "ReduceMean": (_same, "mean", _same),
    "ReduceMax": (_same, "max", _same),
    "ReduceMin": (_same, "min", _same),
    "ReduceProd": (_same, "prod", _same),
    "ReduceL1": (_absolute, "sum", _same),
    "ReduceL2": (_square, "sum", _root),
    "ReduceSumSquare": (_square, "sum", _same),
    "ReduceLogSum": (_same, "sum", _log),
    "ReduceLogSumExp": (_exp_wide, "sum", _log_wide),
}


def reduce_(ctx: Context) -> None:
    """``axes`` is an attribute before opset 18 (13 for ReduceSum) and an input from then on; none means all, or with
    ``noop_with_empty_axes`` the empty set."""
    x, keepdims = ctx.tensor(0), ctx.at.flag("keepdims", 1)
    nothing = ctx.at.flag("noop_with_empty_axes", 0)
    before, kind, after = _BODIES[ctx.at.op]
    axes = ctx.at.optional_ints("axes")
    steering = runtime(ctx, 1)
    mapped = before(ctx, x)
    if axes is None and steering is not None:
        total = _by_axes(ctx, mapped, steering, kind, keepdims)
    else:
        if axes is None and ctx.at.has_input(1):
            axes = ctx.const_ints(1, "its axes")
        if axes:
            chosen = tuple(sorted({axis_of(ctx, a, x.rank) for a in axes}))
        else:
            chosen = () if nothing else tuple(range(x.rank))
        total = _reduced(ctx, mapped, kind, chosen, keepdims)
    ctx.bind(ctx.cast(after(ctx, total), x.type.dtype))


def _shape(x: Tensor, axes: Ints, keepdims: bool) -> Ints:
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    return tuple(d for i, d in enumerate(x.shape) if i not in axes)


def _by_axes(ctx: Context, x: Tensor, steering: Tensor, kind: str, keepdims: bool) -> Tensor:
    out = declared_sizes(ctx, 1, "its axes")
    sets = axis_sets(x.rank, steering.type.count, lambda axes: _shape(x, axes, keepdims) == out)
    if not sets:
        ctx.at.invalid(f"reduces {list(x.shape)} to the declared {list(out)}, which no {steering.type.count} axes do")
    return chosen_by_axes(ctx, 1, "axes", x.rank, sets, [_reduced(ctx, x, kind, a, keepdims) for a in sets])


def _reduced(ctx: Context, x: Tensor, kind: str, axes: Ints, keepdims: bool) -> Tensor:
    if not axes:
        return x
    if x.type.is_static and prod(x.shape[a] for a in axes) == 0:
        return constant(np.full(_shape(x, axes, keepdims), _of_nothing(kind, x.type.dtype), numpy_dtype(x.type.dtype)))
    return ctx.emit(f"reduce_{kind}", [x], {"axes": axes, "keepdims": keepdims})


def _of_nothing(kind: str, dtype: str) -> float:
    """The value of a reduction over no element; ONNX has no mean of nothing for integers, here it is 0."""
    row = DTYPES[dtype]
    if kind in ("max", "min"):
        low = kind == "max"
        return (-np.inf if low else np.inf) if row.kind == "float" else (row.lowest if low else row.highest)
    return {"sum": 0, "prod": 1, "mean": np.nan if row.kind == "float" else 0}[kind]


IMPORTERS: dict[str, Callable[[Context], None]] = {op: widened(reduce_) for op in _BODIES}
