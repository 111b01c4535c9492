"""Functions whose only open size is the first axis of everything: on a GPU they compute the most rows there may be.

In row-major order a value of n rows is the first n rows of the largest one, and no operation below reads another row
of its operands than the one it makes. So the kernel for the largest size, whose sizes are numbers, gives the rows that
exist the bits of any other; what it makes of the others nobody reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.ir.symbols import prover
from compiler_kernels.passes.fuse import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from compiler_kernels.targets.c.sizes import most

_ROWS: Final = (
    ELEMENTWISE_UNARY
    | ELEMENTWISE_BINARY
    | frozenset(
        "affine conv conv_transpose max_pool average_pool global_average_pool global_max_pool instance_normalization "
        "group_normalization reshape copy".split()
    )
)
"""Operations that never mix rows, whatever their attributes are."""


def at_most(function: Graph) -> Graph | None:
    """``function`` with its open first axis at the largest declared size; ``None`` where it has none or more, or mixes
    rows. To be called in the scope of the module's symbols."""
    types = function.types()
    open_sizes = {d for t in types.values() for d in t.shape if isinstance(d, str)}
    if len(open_sizes) != 1 or not all(_plain(t) for t in types.values()):
        return None
    (symbol,) = open_sizes
    if symbol not in prover().symbols or not all(_by_rows(op, types, symbol) for op in function.ops):
        return None
    own = next(t for t in types.values() if not t.is_static)
    count = most(own.extents[0])

    def fixed(ttype: TensorType) -> TensorType:
        return replace(ttype, shape=tuple(count if d == symbol else d for d in ttype.shape))

    inputs = tuple(replace(v, type=fixed(v.type)) for v in function.inputs)
    return replace(function, inputs=inputs, ops=tuple(replace(op, type=fixed(op.out)) for op in function.ops))


def _plain(ttype: TensorType) -> bool:
    return ttype.dtype == "float32" and not ttype.layout and all(isinstance(d, int) for d in ttype.shape[1:])


def _by_rows(op: Op, types: dict[str, TensorType], symbol: str) -> bool:
    """Whether row i of the result depends on row i of the operands alone; a result without open rows on none."""
    operands = [types[o] for o in op.operands if o]
    if op.out.shape[:1] != (symbol,):
        return all(t.is_static for t in operands)
    rank, kind = len(op.out.shape), op.kind
    if kind in ("matmul", "gemm"):
        turned = kind == "gemm" and op.attr("trans_a")
        others = [t for t in operands[1:] if not t.is_static]
        apart = not others or (kind == "matmul" and all(len(t.shape) == rank > 2 for t in others))
        return operands[0].shape[:1] == (symbol,) and not turned and apart
    if kind in ("softmax", "log_softmax", "layer_normalization", "rms_normalization", "concat"):
        return op.int_("axis") > 0
    if kind == "transpose":
        return op.ints("perm")[0] == 0
    if kind in ("reduce_mean", "reduce_max", "reduce_min", "reduce_sum"):
        return 0 not in op.ints("axes")
    return kind in _ROWS
