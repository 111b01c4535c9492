"""The families of vector kernels for functions with symbolic dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.symbols import Symbols
from compiler_kernels.targets.c.scalar import MAX_ITEMS
from compiler_kernels.targets.c.sizes import declarations, local_sizes, localise, most
from compiler_kernels.targets.c.writer import Kernel
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.sized import Body, assemble
from compiler_kernels.targets.vector.sized_conv import conv, conv_transpose
from compiler_kernels.targets.vector.sized_product import gemm, matmul
from compiler_kernels.targets.vector.sized_rows import normalization, pointwise, pool, reduction, softmax

Family = Callable[[Graph, Isa, str], Body | None]
FAMILIES: Final[tuple[Family, ...]] = (
    conv, conv_transpose, gemm, matmul, pool, pointwise, softmax, normalization, reduction,
)  # fmt: skip


def emit_sized_kernel(function: Graph, isa: Isa, name: str, symbols: Symbols) -> Kernel | None:
    """The vector kernel of a symbolic ``function``; ``None`` leaves it to the scalar generator."""
    types = function.types().values()
    if isa.lanes == 1 or any(t.dtype != "float32" or t.layout for t in types):
        return None
    local = localise(function)
    with local_sizes(local, symbols):
        if any(most(t.count) > MAX_ITEMS for t in local.function.types().values()):
            return None  # the scalar emitter says which tensor is too large
        for family in FAMILIES:
            body = family(local.function, isa, name)
            if body is not None:
                break
        else:
            return None
        items = most(body.items)
    if items > MAX_ITEMS:
        return None
    text = "\n".join([body.total, *body.setup, *body.lines])
    return assemble(function, name, body, items, declarations(local, list(symbols), text))
