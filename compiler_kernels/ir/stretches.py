"""Where in the buffers of a graph a value may lie: allocations, and parts of them."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_kernels.ir.graph import ANONYMOUS, Graph


@dataclass(frozen=True, slots=True)
class Stretch:
    """``size`` bytes from byte ``start`` of the allocation ``buffer``."""

    buffer: str
    start: int
    size: int


def stretches(graph: Graph) -> dict[str, Stretch]:
    """Every allocation, and every part of one, by name; a part of something undefined is left out."""
    found: dict[str, Stretch] = {}
    for op in graph.ops:
        if op.type is None or ANONYMOUS in op.type.shape:
            continue
        if op.name == "tensor.alloc":
            found[op.result] = Stretch(op.result, 0, op.type.nbytes)
        elif op.name == "tensor.part" and op.operands[0] in found:
            whole = found[op.operands[0]]
            found[op.result] = Stretch(whole.buffer, whole.start + op.int_("first"), op.type.nbytes)
    return found
