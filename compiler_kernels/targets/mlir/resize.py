"""Resize as one read by table per axis: source indices, and weights of two neighbours, are constants."""

from __future__ import annotations

import numpy as np

from compiler_kernels.arithmetic.resize import AxisTable, resize_tables
from compiler_kernels.ir.graph import Op
from compiler_kernels.targets.mlir.moves import reshape
from compiler_kernels.targets.mlir.writer import Body, Tensor, Writer

MODES = ("nearest", "linear")


def resize(op: Op, writer: Writer, x: Tensor) -> Tensor | None:
    """Innermost axis first; ``None`` for cubic, antialiased and cropping forms."""
    if op.str_("mode") not in MODES or (op.has("antialias") and op.attr("antialias")):
        return None
    tables = resize_tables(op, x.dims)
    if any(any(table.outside) for table in tables):
        return None
    found = x
    for number, table in enumerate(reversed(tables)):
        last = number == len(tables) - 1
        found = _along(writer, op.result if last else f"{op.result}.axis{table.axis}", found, table)
    return reshape(writer, op.result, found, op.out.dims)


def _along(writer: Writer, stem: str, x: Tensor, table: AxisTable) -> Tensor:
    axis, size = table.axis, len(table.low)
    dims = (*x.dims[:axis], size, *x.dims[axis + 1 :])
    place = [f"d{axis}"]
    pairs = [(writer.constant(f"{stem}.low", np.array(table.low, np.int64), "int64"), place)]
    if table.weight_low:
        high, low_weight, high_weight = (
            np.array(table.high, np.int64),
            np.array(table.weight_low, np.float32),
            np.array(table.weight_high, np.float32),
        )
        pairs.append((writer.constant(f"{stem}.high", high, "int64"), place))
        pairs.append((writer.constant(f"{stem}.w0", low_weight, x.dtype), place))
        pairs.append((writer.constant(f"{stem}.w1", high_weight, x.dtype), place))

    def read(b: Body, source: str) -> str:
        at = [b.line(f"linalg.index {a} : index") if a != axis else b.line(f"arith.index_cast {source} : i64 to index")
              for a in range(x.rank)]  # fmt: skip
        return b.line(f"tensor.extract %{x.name}[{', '.join(at)}] : {x.text}")

    def body(b: Body) -> str:
        first = read(b, b.args[0])
        if not table.weight_low:
            return first
        left = b.op("arith.mulf", b.args[2], first)
        return b.op("arith.addf", left, b.op("arith.mulf", b.args[3], read(b, b.args[1])))

    return writer.generic(stem, pairs, writer.empty(dims, x.dtype), "p" * len(dims), body)
