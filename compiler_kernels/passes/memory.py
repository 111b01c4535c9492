"""Static memory plan: an offset in one arena for every L1 buffer, from the lifetimes the text states.

Greedy by size with the lowest gap that fits (the "greedy by size for offset calculation" strategy of Pisarchyk and Lee,
"Efficient Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, Final

import numpy as np

from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.stage import Json

ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Buffer ``id`` of ``size`` bytes (aligned) lives from statement ``begin`` to ``end``, both included."""

    id: str
    size: int
    begin: int
    end: int


def lifetimes(graph: Graph) -> list[Lifetime]:
    """Lifetimes of the arena buffers of an L1 graph; buffers of graph outputs live outside the arena."""
    begin: dict[str, int] = {}
    size: dict[str, int] = {}
    found: list[Lifetime] = []
    for index, op in enumerate(graph.ops):
        if op.name == "tensor.alloc" and not op.has("output"):
            begin[op.result] = index
            size[op.result] = -(-op.out.nbytes // ALIGNMENT) * ALIGNMENT
        elif op.name == "tensor.free":
            buffer = op.operands[0]
            found.append(Lifetime(buffer, size[buffer], begin[buffer], index))
    return found


def place(buffers: list[Lifetime]) -> tuple[dict[str, int], int]:
    """Byte offset of each buffer and the arena size."""
    order = sorted(buffers, key=lambda b: (-b.size, b.begin, b.id))
    begins = np.array([b.begin for b in order], dtype=np.int64)
    ends = np.array([b.end for b in order], dtype=np.int64)
    starts = np.zeros(len(order), dtype=np.int64)
    for index, buffer in enumerate(order):
        alive = np.flatnonzero((begins[:index] <= buffer.end) & (ends[:index] >= buffer.begin))
        offset = 0
        for at in alive[np.argsort(starts[alive], kind="stable")].tolist():
            start, end = int(starts[at]), int(starts[at]) + order[at].size
            if start >= offset + buffer.size:
                break  # so do all that follow
            if offset < end:
                offset = end
        starts[index] = offset
    offsets = {b.id: int(start) for b, start in zip(order, starts, strict=True)}
    return offsets, max((offsets[b.id] + b.size for b in order), default=0)


def lower_bound(buffers: list[Lifetime]) -> int:
    """Largest sum of simultaneously live buffers: no plan can use less."""
    changes = sorted([(b.begin, b.size) for b in buffers] + [(b.end + 1, -b.size) for b in buffers])
    return max(accumulate(size for _, size in changes), default=0)


@dataclass(frozen=True)
class PlanMemory:
    """Writes ``offset`` into every arena allocation of an L1 module."""

    name: ClassVar[str] = "plan-memory"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = module.main
        buffers = lifetimes(graph)
        offsets, arena = place(buffers)

        def annotated(op: Op) -> Op:
            if op.name == "tensor.alloc" and op.result in offsets:
                return op.with_attrs(offset=offsets[op.result])
            return op

        note: dict[str, Json] = {
            "arena_bytes": arena,
            "lower_bound_bytes": lower_bound(buffers),
            "buffers": [
                {"id": b.id, "bytes": b.size, "offset": offsets[b.id], "begin": b.begin, "end": b.end} for b in buffers
            ],
        }
        changed = replace(graph, ops=tuple(annotated(op) for op in graph.ops))
        meta = (*module.meta, ("arena_bytes", str(arena)))
        return PassResult(replace(module, graphs=(changed,), meta=meta), True, (note,))
