"""Operators that only move data: transpose, concat, depth to space and back; casts and what is an identity."""

from __future__ import annotations

from collections.abc import Callable

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context
from compiler_kernels.ir.symbols import divides


def identity(ctx: Context) -> None:
    ctx.bind(ctx.tensor(0))


def transpose(ctx: Context) -> None:
    x = ctx.tensor(0)
    ctx.bind(ctx.transpose(x, ctx.at.ints("perm", tuple(reversed(range(x.rank))), x.rank)))


def concat(ctx: Context) -> None:
    """Operands that are empty along the axis disappear; a single one left is passed through."""
    parts = [ctx.tensor(i) for i in range(len(ctx.at.inputs))]
    axis = axis_of(ctx, ctx.at.int_("axis", 1), parts[0].rank)
    if any(p.rank != parts[0].rank for p in parts):
        ctx.at.invalid("joins tensors of different ranks")
    full = [p for p in parts if p.shape[axis]] or parts[:1]
    ctx.bind(full[0] if len(full) == 1 else ctx.emit("concat", full, {"axis": axis}))


def _column_row_depth(ctx: Context) -> bool:
    mode = ctx.at.str_("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        ctx.at.invalid(f"has mode {mode!r}; ONNX defines DCR and CRD")
    return mode == "CRD"


def depth_to_space(ctx: Context) -> None:
    x, b = ctx.tensor(0), ctx.at.int_("blocksize", 0)
    if x.rank != 4 or b < 1 or x.shape[1] % (b * b):
        ctx.at.invalid(f"cannot use blocksize {b} on shape {list(x.shape)}")
    n, c, h, w = x.shape
    c //= b * b
    if _column_row_depth(ctx):
        cut, perm = (n, c, b, b, h, w), (0, 1, 4, 2, 5, 3)
    else:
        cut, perm = (n, b, b, c, h, w), (0, 3, 4, 1, 5, 2)
    ctx.bind(ctx.reshape(ctx.transpose(ctx.reshape(x, cut), perm), (n, c, h * b, w * b)))


def space_to_depth(ctx: Context) -> None:
    x, b = ctx.tensor(0), ctx.at.int_("blocksize", 0)
    if x.rank != 4 or b < 1 or not (divides(b, x.shape[2]) and divides(b, x.shape[3])):
        ctx.at.invalid(f"cannot use blocksize {b} on shape {list(x.shape)}")
    n, c, h, w = x.shape
    cut = ctx.reshape(x, (n, c, h // b, b, w // b, b))
    perm = (0, 1, 3, 5, 2, 4) if _column_row_depth(ctx) else (0, 3, 5, 1, 2, 4)
    ctx.bind(ctx.reshape(ctx.transpose(cut, perm), (n, c * b * b, h // b, w // b)))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Identity": identity,
    "Transpose": transpose,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
