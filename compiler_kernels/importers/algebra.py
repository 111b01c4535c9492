"""Gemm, MatMul, Det, softmax."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.halves import widened
from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import Attr
from compiler_kernels.ir.shapes_algebra import LARGEST_MATRIX


def axis_of(ctx: Context, value: int, rank: int) -> int:
    """``value`` made non-negative; invalid outside a tensor of ``rank``."""
    if not -rank <= value < rank:
        ctx.at.invalid(f"names axis {value} of a tensor of rank {rank}")
    return value % rank


def gemm(ctx: Context) -> None:
    if DTYPES[ctx.tensor(0).type.dtype].kind in ("int", "uint"):
        _integer_gemm(ctx)
        return
    attrs: dict[str, Attr] = {
        "alpha": ctx.at.float_("alpha", 1.0),
        "beta": ctx.at.float_("beta", 1.0),
        "trans_a": ctx.at.flag("transA", 0),
        "trans_b": ctx.at.flag("transB", 0),
    }
    ctx.bind(ctx.emit("gemm", [ctx.tensor(0), ctx.tensor(1), ctx.optional(2)], attrs))


def _integer_gemm(ctx: Context) -> None:
    """Of integers: the product, sums and scalings operation by operation, each wrapping in the type."""
    dtype = ctx.tensor(0).type.dtype
    a, b = (
        ctx.transpose(ctx.tensor(i), (1, 0)) if ctx.at.int_(key, 0) else ctx.tensor(i)
        for i, key in enumerate(("transA", "transB"))
    )
    y, c = ctx.emit("matmul", [a, b]), ctx.optional(2)
    for key, scaled in (("alpha", y), ("beta", c)):
        factor = ctx.at.float_(key, 1.0)
        if factor != int(factor):
            ctx.at.unsupported(f"scales integers by {key} = {factor}")
        if factor == 1 or scaled is None:
            continue
        product = ctx.emit("mul", [scaled, ctx.scalar(int(factor), dtype)])
        y, c = (product, c) if key == "alpha" else (y, product)
    ctx.bind(y if c is None else ctx.emit("add", [y, c]))


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
        ctx.bind(_along(ctx, kind, x, axis))
        return
    rows = ctx.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))
    ctx.bind(ctx.reshape(_along(ctx, kind, rows, 1), x.shape))


def _along(ctx: Context, kind: str, x: Tensor, axis: int) -> Tensor:
    """Softmax or LogSoftmax; in binary64, which has no kernel of its own, by its definition operation by operation."""
    if x.type.dtype != "float64":
        return ctx.emit(kind, [x], {"axis": axis})
    along: dict[str, Attr] = {"axes": (axis,), "keepdims": True}
    shifted = ctx.emit("sub", [x, ctx.emit("reduce_max", [x], along)])
    powers = ctx.emit("exp", [shifted])
    total = ctx.emit("reduce_sum", [powers], along)
    return (
        ctx.emit("div", [powers, total]) if kind == "softmax" else ctx.emit("sub", [shifted, ctx.emit("log", [total])])
    )


def det(ctx: Context) -> None:
    x = ctx.tensor(0)
    if x.rank >= 2 and max(x.shape[-2:]) > LARGEST_MATRIX:
        ctx.at.unsupported(f"takes the determinant of {x.shape[-1]} rows; at most {LARGEST_MATRIX} are compiled")
    ctx.bind(ctx.emit("det", [x]))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Gemm": widened(gemm),
    "MatMul": widened(matmul),
    "Det": widened(det),
    "Softmax": widened(softmax),
    "LogSoftmax": widened(softmax),
}
