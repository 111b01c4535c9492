"""float16 and bfloat16 operands of operators that compute: widened exactly, computed in binary32, rounded once."""

from __future__ import annotations

from collections.abc import Callable
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
        node = ctx.at
        given = {name: ctx.tensors[name] for name in node.inputs if name}
        half = next((t.type.dtype for t in given.values() if t.type.dtype in HALVES), "")
        if not half:
            importer(ctx)
            return
        ctx.tensors.update({name: to_float32(ctx, t) for name, t in given.items()})
        begun = len(ctx.ops)
        try:
            importer(ctx)
        finally:
            ctx.tensors.update(given)
        for index in range(begun, len(ctx.ops)):
            # The source tensor is the rounded value, not the one before rounding.
            ctx.ops[index] = replace(ctx.ops[index], tensor="")
        for index, name in enumerate(node.outputs):
            found = ctx.tensors.get(name)
            if name and found is not None and found.type.dtype == "float32":
                ctx.bind(ctx.cast(found, half), index)

    return run


def to_float32(ctx: Context, x: Tensor) -> Tensor:
    """``x`` widened to binary32 where it is of a half type, which is exact."""
    if x.type.dtype not in HALVES:
        return x
    if x.const is not None:
        return constant(x.const.astype(np.float32), x.name, index_like=x.index_like)
    return ctx.cast(x, "float32")
