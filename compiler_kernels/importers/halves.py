"""float16 and bfloat16 operands of operators that compute: widened exactly, computed in binary32, rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.ir.dtypes import HALVES

Importer = Callable[[Context], None]


def widened(importer: Importer) -> Importer:
    """``importer`` on binary32 copies of the node's half-precision inputs; its outputs are rounded to their type.

    Where no input is of a half type, ``importer`` itself. For operators whose floating-point inputs and outputs all
    share one type.
    """

    def run(ctx: Context) -> None:
        half = half_type(ctx)
        if half:
            import_widened(ctx, importer, [half] * len(ctx.at.outputs))
        else:
            importer(ctx)

    return run


def half_type(ctx: Context) -> str:
    """The first half type among the current node's inputs, or the empty string."""
    types = (ctx.tensors[name].type.dtype for name in ctx.at.inputs if name)
    return next((t for t in types if t in HALVES), "")


def import_widened(ctx: Context, importer: Importer, types: Sequence[str]) -> None:
    """Run ``importer`` on binary32 copies of half inputs; output ``i`` is rounded where ``types[i]`` is a half type."""
    node = ctx.at
    given = {name: ctx.tensors[name] for name in node.inputs if name}
    ctx.tensors.update({name: to_float32(ctx, t) for name, t in given.items()})
    begun = len(ctx.ops)
    try:
        importer(ctx)
    finally:
        ctx.tensors.update(given)
    for index, (name, half) in enumerate(zip(node.outputs, types, strict=False)):
        found = ctx.tensors.get(name)
        if not name or found is None or half not in HALVES or found.type.dtype != "float32":
            continue
        for place in range(begun, len(ctx.ops)):
            if ctx.ops[place].tensor == name:  # the source tensor is the rounded value, not the one before rounding
                ctx.ops[place] = replace(ctx.ops[place], tensor="")
        ctx.bind(ctx.cast(found, half), index)


def to_float32(ctx: Context, x: Tensor) -> Tensor:
    """``x`` widened to binary32 where it is of a half type, which is exact."""
    if x.type.dtype not in HALVES:
        return x
    if x.const is not None:
        return constant(x.const.astype(np.float32), x.name, index_like=x.index_like)
    return ctx.cast(x, "float32")
