"""Static memory plan: an offset in one arena for every L1 buffer, from the lifetimes the text states.

Greedy with the lowest gap that fits, in two orders ("greedy by size for offset calculation" and "greedy by breadth" of
Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020), and where both waste much, in the
orders of a seeded local search. A buffer whose parts have
lifetimes of their own is placed as a whole, and only what is alive of it keeps others away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.stage import Json

ALIGNMENT: Final = 64
WASTE: Final = 1 << 16
"""Bytes above the lower bound, beyond a hundredth of the arena, that are worth a search for a better plan."""
MOST_TRIES: Final = 2000


@dataclass(frozen=True, slots=True)
class Piece:
    """``size`` bytes from byte ``start`` of a buffer; needed from ``begin`` to ``end``, both included."""

    start: int
    size: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Buffer ``id`` of ``size`` bytes (aligned) lives from statement ``begin`` to ``end``, both included.

    ``pieces`` of it that live shorter than the whole: other buffers may lie in them before and after. None where the
    buffer is alive as a whole.
    """

    id: str
    size: int
    begin: int
    end: int
    pieces: tuple[Piece, ...] = ()

    @property
    def parts(self) -> tuple[Piece, ...]:
        """The pieces, or the buffer as one."""
        return self.pieces or (Piece(0, self.size, self.begin, self.end),)


def aligned(size: int, to: int = ALIGNMENT) -> int:
    """``size`` up to the next multiple of ``to``: of the alignment of buffers, if none is said."""
    return -(-size // to) * to


def parts_of(graph: Graph) -> dict[str, list[Op]]:
    """The parts of every arena buffer that its parts fill, in their order; each is written by itself (joins.py)."""
    allocs = {op.result: op for op in graph.ops if op.name == "tensor.alloc" and not op.has("output")}
    written = {op.into for op in graph.ops}
    found: dict[str, list[Op]] = {}
    for op in graph.ops:
        if op.name == "tensor.part" and op.operands[0] in allocs:
            found.setdefault(op.operands[0], []).append(op)
    for parts in found.values():
        parts.sort(key=lambda op: op.int_("first"))
    return {
        buffer: parts
        for buffer, parts in found.items()
        if buffer not in written and _filled(allocs[buffer], parts) and all(op.result in written for op in parts)
    }


def _filled(alloc: Op, parts: list[Op]) -> bool:
    at = 0
    for op in parts:
        if op.int_("first") != at or at % ALIGNMENT:
            return False
        at += op.out.nbytes
    return at == alloc.out.nbytes


def lifetimes(graph: Graph) -> list[Lifetime]:
    """Lifetimes of the arena buffers of an L1 graph; buffers of graph outputs live outside the arena.

    A part of a concatenation lives from the statement that writes it: before, its bytes are free for others.
    """
    begin: dict[str, int] = {}
    size: dict[str, int] = {}
    parts = parts_of(graph)
    found: list[Lifetime] = []
    for index, op in enumerate(graph.ops):
        if op.name == "tensor.alloc" and not op.has("output"):
            begin[op.result] = index
            size[op.result] = aligned(op.out.nbytes)
        elif op.name == "tensor.free":
            buffer = op.operands[0]
            pieces = tuple(
                Piece(part.int_("first"), aligned(part.out.nbytes), begin[part.result], index)
                for part in parts.get(buffer, ())
            )
            found.append(Lifetime(buffer, size[buffer], begin[buffer], index, pieces))
        elif op.into:
            begin.setdefault(op.into, index)
    return found


def place(buffers: list[Lifetime]) -> tuple[dict[str, int], int]:
    """Byte offset of each buffer and the arena size: the better of two orders, large buffers first or those first that
    live while most is alive; where that wastes much, the best of more."""
    crowded = _most_alive(buffers)
    by_size = sorted(buffers, key=lambda b: (-b.size, b.begin, b.id))
    by_crowd = sorted(by_size, key=lambda b: -crowded[b.id])
    order, plan = min(((order, _greedy(order)) for order in (by_size, by_crowd)), key=lambda found: found[1][1])
    bound = lower_bound(buffers)
    if plan[1] - bound <= max(WASTE, plan[1] // 100):
        return plan
    return _searched(order, plan, bound, min(MOST_TRIES, 2_000_000 // len(buffers) ** 2))


def _searched(
    order: list[Lifetime], plan: tuple[dict[str, int], int], bound: int, tries: int
) -> tuple[dict[str, int], int]:
    """The best plan on a walk through orders: each step moves one buffer, and is kept unless the arena grows."""
    state = 1
    for _ in range(tries):
        if plan[1] <= bound:
            break
        changed = list(order)
        state, moved = _drawn(state, len(changed))
        buffer = changed.pop(moved)
        state, to = _drawn(state, len(order))
        changed.insert(to, buffer)
        found = _greedy(changed)
        if found[1] <= plan[1]:
            order, plan = changed, found
    return plan


def _drawn(state: int, count: int) -> tuple[int, int]:
    """The next state and a number below ``count``, by Knuth's congruential generator: the same in every Python."""
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return state, (state >> 33) % count


def _greedy(order: list[Lifetime]) -> tuple[dict[str, int], int]:
    """Each buffer at the lowest offset that those before it leave free."""
    offsets: dict[str, int] = {}
    # Of every piece of a placed buffer: first byte, byte after its last, and the statements it lives through.
    placed = np.zeros((sum(len(b.parts) for b in order), 4), dtype=np.int64)
    count = 0
    for buffer in order:
        pieces = [piece for piece in buffer.parts if piece.size]
        barred = [placed[:0, :2]]
        for piece in pieces:
            others = placed[:count]
            alive = others[(others[:, 2] <= piece.end) & (others[:, 3] >= piece.begin)]
            # An offset above the first number and below the second would put this piece on that one.
            barred.append(alive[:, :2] - (piece.start + piece.size, piece.start))
        ranges = np.concatenate(barred)
        offset = 0
        for above, below in ranges[np.argsort(ranges[:, 0], kind="stable")].tolist():
            if above >= offset:
                break  # so do all that follow
            offset = max(offset, below)
        offsets[buffer.id] = offset
        for piece in pieces:
            first = offset + piece.start
            placed[count] = (first, first + piece.size, piece.begin, piece.end)
            count += 1
    return offsets, max((offsets[b.id] + b.size for b in order), default=0)


def _alive(buffers: list[Lifetime]) -> NDArray[np.int64]:
    """Bytes alive at every statement."""
    changes = np.zeros(max((b.end for b in buffers), default=0) + 2, dtype=np.int64)
    for buffer in buffers:
        for piece in buffer.parts:
            changes[piece.begin] += piece.size
            changes[piece.end + 1] -= piece.size
    return np.cumsum(changes)


def _most_alive(buffers: list[Lifetime]) -> dict[str, int]:
    """Of every buffer the most bytes alive at a statement it lives through."""
    alive = _alive(buffers)
    return {b.id: int(alive[b.begin : b.end + 1].max()) for b in buffers}


def lower_bound(buffers: list[Lifetime]) -> int:
    """Largest sum of simultaneously live buffers: no plan can use less."""
    return int(_alive(buffers).max())


def rows(buffers: list[Lifetime], offsets: Mapping[str, int]) -> list[Json]:
    """The buffers of a plan for ``memory.json``."""
    return [
        {"id": b.id, "bytes": b.size, "offset": offsets[b.id], "begin": b.begin, "end": b.end, **_pieces(b)}
        for b in buffers
    ]


def _pieces(buffer: Lifetime) -> dict[str, Json]:
    if not buffer.pieces:
        return {}
    return {"parts": [{"first": p.start, "bytes": p.size, "begin": p.begin, "end": p.end} for p in buffer.pieces]}


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
            "buffers": rows(buffers, offsets),
        }
        changed = replace(graph, ops=tuple(annotated(op) for op in graph.ops))
        meta = (*module.meta, ("arena_bytes", str(arena)))
        return PassResult(replace(module, graphs=(changed,), meta=meta), True, (note,))
