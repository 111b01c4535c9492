"""Vector kernels: families that emit C over the portable vector layer (runtime/ca1_vec.h) for one instruction set.

They sit behind the interface of the scalar kernels. A family takes the L2 functions it can do better; anything else
falls back to scalar code, which knows plain layouts only.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler_kernels.ir.graph import Graph
from compiler_kernels.passes.fuse import ELEMENTWISE_TYPED
from compiler_kernels.targets.c.writer import Kernel
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.conv import conv, winograd
from compiler_kernels.targets.vector.depthwise import depthwise
from compiler_kernels.targets.vector.integer import integer
from compiler_kernels.targets.vector.integer_rows import integer_rows
from compiler_kernels.targets.vector.lanes import layer_normalization, reduction, softmax
from compiler_kernels.targets.vector.movement import concat, relayout
from compiler_kernels.targets.vector.moves import moves
from compiler_kernels.targets.vector.plain_pool import plain_max_pool
from compiler_kernels.targets.vector.pointwise import blocked, plain
from compiler_kernels.targets.vector.pool import global_pool, pool
from compiler_kernels.targets.vector.product import product
from compiler_kernels.targets.vector.recurrent import recurrent
from compiler_kernels.targets.vector.resize import resize
from compiler_kernels.targets.vector.strided import join, packing, strided

Family = Callable[[Graph, Isa, str], Kernel | None]
FAMILIES: tuple[Family, ...] = (
    conv, winograd, depthwise, pool, global_pool, resize, blocked, plain,
    plain_max_pool, relayout, concat, moves, product, packing, join, strided,
    softmax, layer_normalization, reduction, recurrent,
)  # fmt: skip


def emit_vector_kernel(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """The kernel of the first family that takes ``function``, ``None`` when none does, a type is not float32, or an
    operation has scalar code only."""
    kernel = integer(function, isa, name) or integer_rows(function, isa, name)
    if kernel is not None:
        return kernel
    if any(found.dtype != "float32" for found in function.types().values()):
        return None
    if any(op.kind in ELEMENTWISE_TYPED for op in function.ops):
        return None
    for family in FAMILIES:
        kernel = family(function, isa, name)
        if kernel is not None:
            return kernel
    return None
