"""Matrix products: ``linalg.matmul`` where two plain matrices meet, ``linalg.generic`` otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from compiler_kernels.arithmetic.order import sum_order
from compiler_kernels.ir.graph import Op
from compiler_kernels.targets.mlir.scalars import broadcast
from compiler_kernels.targets.mlir.windows import add, multiply_add
from compiler_kernels.targets.mlir.writer import Tensor, Writer


def _tile(writer: Writer, depth: int, batch: int) -> tuple[int, ...]:
    """Rows, columns and the depth of one leaf."""
    rows, columns = writer.tile
    order = sum_order(depth, 1)
    return (*[0] * batch, rows, columns, order.block * order.blocks_per_leaf)


def _named(writer: Writer, stem: str, a: Tensor, b: Tensor) -> Tensor:
    dims = (a.dims[0], b.dims[1])
    into = writer.filled(dims, a.dtype, 0.0)
    attrs = writer.attrs(_tile(writer, a.dims[1], 0))
    text = f"linalg.matmul {attrs} ins(%{a.name}, %{b.name} : {a.text}, {b.text}) outs(%{into.name} : {into.text})"
    return writer.add(stem, dims, a.dtype, f"{text} -> {into.text}")


def matmul(op: Op, writer: Writer, operands: Sequence[Tensor]) -> Tensor:
    """NumPy's matmul: batch axes broadcast, a vector has one row or one column, which the result drops."""
    a, b = operands
    if a.rank == b.rank == 2:
        return _named(writer, op.result, a, b)
    out = op.out.dims
    rows, columns = int(a.rank > 1), int(b.rank > 1)
    batch = len(out) - rows - columns
    loops = [f"d{i}" for i in range(batch)]
    depth = f"d{len(out)}"

    def lead(x: Tensor) -> list[str]:
        axes = max(x.rank - 2, 0)
        return [("0" if d == 1 and out[batch - axes + i] != 1 else loops[batch - axes + i])
                for i, d in enumerate(x.dims[:axes])]  # fmt: skip

    left = [*lead(a), *([f"d{batch}"] if rows else []), depth]
    right = [*lead(b), depth, *([f"d{batch + rows}"] if columns else [])]
    own = [f"d{i}" for i in range(len(out))]
    full = _tile(writer, a.dims[-1], batch)
    tile = (*full[:batch], *full[batch : batch + 1] * rows, *full[batch + 1 : batch + 2] * columns, full[-1])
    into = writer.filled(out, op.out.dtype, 0.0)
    kinds = "p" * len(out) + "r"
    return writer.generic(op.result, [(a, left), (b, right)], into, kinds, multiply_add, result=own, tile=tile)


def gemm(op: Op, writer: Writer, operands: Sequence[Tensor]) -> Tensor:
    """alpha * (a b) + beta * c, with a factor of 1 or an absent c left out."""
    a, b = operands[:2]
    alpha, beta = op.float_("alpha"), op.float_("beta")
    shift = operands[2:] if beta != 0.0 else ()
    swapped_a, swapped_b = bool(op.attr("trans_a")), bool(op.attr("trans_b"))
    stem = f"{op.result}.sum" if shift or alpha != 1.0 else op.result
    if not swapped_a and not swapped_b:
        found = _named(writer, stem, a, b)
    else:
        left = ["d2", "d0"] if swapped_a else ["d0", "d2"]
        right = ["d1", "d2"] if swapped_b else ["d2", "d1"]
        into = writer.filled(op.out.dims, op.out.dtype, 0.0)
        tile = _tile(writer, a.dims[0] if swapped_a else a.dims[1], 0)
        found = writer.generic(stem, [(a, left), (b, right)], into, "ppr", multiply_add, result=["d0", "d1"], tile=tile)
    if alpha != 1.0:
        found = _scaled(writer, op.result if not shift else f"{op.result}.scaled", found, alpha)
    if shift:
        c = shift[0] if beta == 1.0 else _scaled(writer, f"{op.result}.c", shift[0], beta)
        found = add(writer, op.result, found, c)
    return found


def _scaled(writer: Writer, stem: str, x: Tensor, factor: float) -> Tensor:
    into = writer.empty(x.dims, x.dtype)
    return writer.generic(
        stem, [(x, broadcast(x, x.dims))], into, "p" * x.rank, lambda b: b.op("arith.mulf", b.args[0], b.const(factor))
    )
