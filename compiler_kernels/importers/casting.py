"""Conversions between element types."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from compiler_kernels.importers.context import Context
from compiler_kernels.ir.dtypes import BY_ONNX, DTYPES


def _target(ctx: Context) -> str:
    """The element type of attribute ``to``; ``UnsupportedError`` naming one that is not compiled."""
    code = ctx.at.int_("to", 0)
    row = BY_ONNX.get(code)
    if row is not None:
        return row.name
    if code not in onnx.TensorProto.DataType.values() or code == 0:
        ctx.at.invalid(f"casts to {code}, which is no ONNX element type")
    ctx.at.unsupported(
        f"casts to {onnx.TensorProto.DataType.Name(code)}; the element types that are compiled are {', '.join(DTYPES)}"
    )


def cast(ctx: Context) -> None:
    """To any compiled type; CastLike takes the type of its second input. Rounding modes concern float8 only."""
    ctx.at.int_("saturate", 1)
    ctx.at.str_("round_mode", "")
    to = ctx.tensor(1).type.dtype if ctx.at.op == "CastLike" else _target(ctx)
    if to not in DTYPES:
        ctx.at.unsupported(f"casts to {to}; the element types that are compiled are {', '.join(DTYPES)}")
    ctx.bind(ctx.cast(ctx.tensor(0), to))


def bit_cast(ctx: Context) -> None:
    """The same bits as another type of the same width."""
    x, to = ctx.tensor(0), _target(ctx)
    if x.type.dtype in DTYPES and DTYPES[x.type.dtype].nbytes != DTYPES[to].nbytes:
        ctx.at.invalid(f"reads {x.type.dtype} elements as {to}, which has another width")
    ctx.bind(x if x.type.dtype == to else ctx.emit("bit_cast", [x], {"to": to}))


IMPORTERS: dict[str, Callable[[Context], None]] = {"Cast": cast, "CastLike": cast, "BitCast": bit_cast}
