"""L1 and L2 rules about buffers and calls.

A value lives in the buffer its statement writes (``into``); a view lives in its operand's buffer. A write ends every
other value whose bytes it touches: the same buffer or, once the memory plan has given ``offset``, an overlapping range
of the arena. So reading a value that another statement has overwritten is found at both levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from compiler_kernels.ir.graph import Graph, Module, Op


def _is_main(module: Module, graph: Graph) -> bool:
    return graph is module.main


def buffers(module: Module, graph: Graph) -> Iterator[str]:
    """``into`` names an allocation large enough for the result; ``in_place`` writes over an operand."""
    if not _is_main(module, graph):
        return
    allocs = {op.result: op for op in graph.ops if op.name == "tensor.alloc"}
    home: dict[str, str] = {}
    for op in graph.ops:
        if op.name == "tensor.alloc":
            if op.type is None or not op.type.is_static:
                yield f"tensor.alloc %{op.result} has no static shape"
        elif op.name == "tensor.free":
            if len(op.operands) != 1 or op.operands[0] not in allocs:
                yield f"tensor.free of {list(op.operands)}, which is no buffer"
        elif op.name.startswith("view."):
            home[op.result] = home.get(op.operands[0], "")
        elif op.into not in allocs:
            yield f"%{op.result} is written into %{op.into}, which no tensor.alloc defines"
        else:
            room = allocs[op.into].out
            if op.type is None or room.dtype != op.type.dtype or room.nbytes < op.type.nbytes:
                yield f"%{op.result} does not fit its buffer %{op.into}"
            if op.has("in_place") and op.into not in [home.get(o) for o in op.operands]:
                yield f"%{op.result} is marked in_place, but no operand lives in %{op.into}"
            home[op.result] = op.into


@dataclass
class _Arena:
    """Which values are readable, by buffer, while walking through a graph."""

    allocs: dict[str, Op] = field(default_factory=dict)
    home: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    freed: set[str] = field(default_factory=set)

    def overlap(self, a: str, b: str) -> bool:
        if a == b:
            return True
        first, second = self.allocs[a], self.allocs[b]
        if not (first.has("offset") and second.has("offset")):
            return False
        x, y = first.int_("offset"), second.int_("offset")
        return x < y + second.out.nbytes and y < x + first.out.nbytes

    def write(self, op: Op) -> None:
        for value, buffer in self.home.items():
            if buffer and self.overlap(buffer, op.into):
                self.ended.setdefault(value, f"overwritten by %{op.result}")
        self.home[op.result] = op.into

    def free(self, buffer: str) -> None:
        self.freed.add(buffer)
        for value, home in self.home.items():
            if home == buffer:
                self.ended.setdefault(value, "freed")


def lifetimes(module: Module, graph: Graph) -> Iterator[str]:
    """No value is read after its bytes are overwritten or freed. At L1 every buffer is freed exactly once, except
    those of graph outputs; at L2, where the plan is settled, nothing is freed."""
    if not _is_main(module, graph):
        return
    arena = _Arena()
    for op in graph.ops:
        if op.name == "tensor.alloc":
            arena.allocs[op.result] = op
            continue
        if op.name == "tensor.free":
            if op.operands[0] in arena.freed:
                yield f"%{op.operands[0]} is freed twice"
            arena.free(op.operands[0])
            continue
        for operand in op.operands:
            if operand in arena.ended:
                yield f"{op.name} reads %{operand} after it was {arena.ended[operand]}"
        if op.name.startswith("view."):
            arena.home[op.result] = arena.home.get(op.operands[0], "")
        else:
            if op.into in arena.freed:
                yield f"%{op.result} is written into %{op.into} after it was freed"
            arena.write(op)
    for out in graph.outputs:
        if out in arena.ended:
            yield f"the returned %{out} was {arena.ended[out]}"
    kept = {arena.home.get(out, "") for out in graph.outputs}
    if module.level == "l2":
        yield from (f"%{b} is freed, but this level has a settled memory plan" for b in sorted(arena.freed))
        return
    yield from (f"%{b} is never freed" for b in arena.allocs if b not in arena.freed and b not in kept)
    yield from (f"the returned buffer %{b} is freed" for b in sorted(kept) if b in arena.freed)


def calls(module: Module, graph: Graph) -> Iterator[str]:
    """``call.<function>`` names a function of the module whose parameters and result have the types of the call."""
    if not _is_main(module, graph):
        return
    functions = {g.name: g for g in module.graphs[1:]}
    types = graph.types()
    called: set[str] = set()
    for op in graph.ops:
        if not op.name.startswith("call."):
            continue
        function = functions.get(op.kind)
        if function is None:
            yield f"{op.name} calls a function that does not exist"
            continue
        called.add(op.kind)
        given = [types[o] for o in op.operands if o]
        if given != [p.type for p in function.inputs]:
            yield f"{op.name} for %{op.result} passes {len(given)} operands that do not match its parameters"
        if len(function.outputs) != 1 or function.types().get(function.outputs[0]) != op.type:
            yield f"{op.name} does not return the type of %{op.result}"
    yield from (f"function @{name} is never called" for name in functions if name not in called)
