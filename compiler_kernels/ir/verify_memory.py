"""L1 and L2 rules about buffers and calls.

A value lives in the buffer its statement writes (``into``); a view lives in its operand's buffer. ``tensor.part`` is a
stretch of a buffer, into which a part of a concatenation is written. A write ends every other value whose bytes it
touches: in the same buffer or, once the memory plan has given ``offset``, in the arena. So reading a value that another
statement has overwritten is found at both levels. Buffers may share bytes as long as nothing readable lies in them: in
a part of a concatenation, say, that is not written yet.

Where the plan covers them (targets/cuda/arena.py), an input lies in the allocation that has its number as ``input``,
and a call writes into its ``workspace`` while it reads. The call of a band of rows (ir/bands.py) reads and writes only
those; what it reads may have lost other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from compiler_kernels.ir import bands
from compiler_kernels.ir.graph import ANONYMOUS, Graph, Module, Op
from compiler_kernels.ir.stretches import Stretch, stretches
from compiler_kernels.ir.weights import ALIGNMENT


def _is_main(module: Module, graph: Graph) -> bool:
    return graph is module.main


def _view(op: Op, home: Mapping[str, Stretch]) -> Stretch | None:
    """Where a view lies: at its operand or, of a concatenation, from its first operand on to the end of its last."""
    places = [home.get(o) for o in op.operands]
    first, last = places[0], places[-1]
    if first is None or last is None:
        return first
    return Stretch(first.buffer, first.start, last.start + last.size - first.start)


def buffers(module: Module, graph: Graph) -> Iterator[str]:
    """``into`` names an allocation large enough for the result; ``in_place`` writes over an operand; parts lie inside
    their allocation, and the operands of a concatenation that is a view lie one after another."""
    if not _is_main(module, graph):
        return
    rooms = stretches(graph)
    allocs = {op.result: op for op in graph.ops if op.name == "tensor.alloc"}
    home: dict[str, Stretch] = {}
    size = dict(module.meta).get("arena_bytes")
    arena = int(size) if size is not None and size.isdigit() else None
    for op in graph.ops:
        if op.has("workspace") and op.str_("workspace") not in allocs:
            yield f"the workspace of %{op.result} is no tensor.alloc"
        if op.name == "tensor.alloc":
            if op.type is None or ANONYMOUS in op.type.shape:
                yield f"tensor.alloc %{op.result} has no shape that is bounded"
            elif arena is not None:
                yield from _inside(op, arena)
            if op.has("input") and (
                not 0 <= op.int_("input") < len(graph.inputs) or op.type != graph.inputs[op.int_("input")].type
            ):
                yield f"tensor.alloc %{op.result} is no place for input {op.int_('input')}"
        elif op.name == "tensor.part":
            room = rooms.get(op.result)
            if room is None or room.start < 0 or room.start + room.size > allocs[room.buffer].out.nbytes:
                yield f"tensor.part %{op.result} does not lie inside its buffer"
        elif op.name == "tensor.free":
            if len(op.operands) != 1 or op.operands[0] not in allocs:
                yield f"tensor.free of {list(op.operands)}, which is no buffer"
        elif op.name.startswith("view."):
            yield from _joined(op, home)
            place = _view(op, home)
            if place is not None:
                home[op.result] = place
        elif op.into not in rooms:
            yield f"%{op.result} is written into %{op.into}, which no tensor.alloc defines"
        else:
            room = rooms[op.into]
            if op.type is None or allocs[room.buffer].out.dtype != op.type.dtype or room.size < op.type.nbytes:
                yield f"%{op.result} does not fit its buffer %{op.into}"
            over = room in [home.get(o) for o in op.operands]
            if op.has("in_place") and not over:
                yield f"%{op.result} is marked in_place, but no operand lives in %{op.into}"
            if module.level == "l1" and over and not op.has("in_place"):
                yield f"%{op.result} is not marked in_place, but an operand lives in %{op.into}"
            home[op.result] = room


def _inside(op: Op, arena: int) -> Iterator[str]:
    """A planned allocation begins where kernels may copy 64 bytes at once, and ends in the arena."""
    if not op.has("offset"):
        if not op.has("output"):
            yield f"tensor.alloc %{op.result} has no place in the arena"
    elif op.int_("offset") < 0 or op.int_("offset") % ALIGNMENT:
        yield f"tensor.alloc %{op.result} begins at {op.int_('offset')}, which is no multiple of {ALIGNMENT}"
    elif op.int_("offset") + op.out.nbytes > arena:
        yield f"tensor.alloc %{op.result} ends beyond the arena of {arena} bytes"


def _joined(op: Op, home: Mapping[str, Stretch]) -> Iterator[str]:
    if op.name != "view.concat":
        return
    places = [home.get(o) for o in op.operands]
    for before, after in pairwise(places):
        if (
            before is None
            or after is None
            or (before.buffer, before.start + before.size) != (after.buffer, after.start)
        ):
            yield f"the operands of view.concat %{op.result} do not lie one after another"
            return
    if op.type is None or sum(p.size for p in places if p is not None) != op.type.nbytes:
        yield f"the operands of view.concat %{op.result} do not fill it"


@dataclass
class _Arena:
    """Which values are readable, by the bytes they lie in, while walking through a graph."""

    rooms: dict[str, Stretch]
    allocs: dict[str, Op] = field(default_factory=dict)
    home: dict[str, Stretch] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    freed: set[str] = field(default_factory=set)
    # Readable values by allocation: what a write has to look at.
    readable: dict[str, list[str]] = field(default_factory=dict)
    # Values of which some calls read bands of rows, and what has been overwritten of them.
    banded: frozenset[str] = frozenset()
    lost: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)
    # Whether a statement has written yet.
    called: bool = False
    # Where an allocation begins and ends in the arena, once the plan says so.
    planned: dict[str, tuple[int, int]] = field(default_factory=dict)

    def allocate(self, op: Op) -> None:
        self.allocs[op.result] = op
        if op.has("offset"):
            self.planned[op.result] = (op.int_("offset"), op.int_("offset") + self.rooms[op.result].size)

    def put(self, value: str, place: Stretch) -> None:
        """``value`` can be read from ``place`` from now on."""
        self.home[value] = place
        self.readable.setdefault(place.buffer, []).append(value)

    def write(self, op: Op) -> None:
        self.end(self.rooms[op.into], f"overwritten by %{op.result}")
        self.put(op.result, self.rooms[op.into])

    def end(self, room: Stretch, why: str) -> None:
        """Nothing in ``room`` is readable any more."""
        for buffer in self._meeting(room):
            shift = 0 if buffer == room.buffer else self.planned[buffer][0] - self.planned[room.buffer][0]
            begin, end = room.start - shift, room.start + room.size - shift
            kept = []
            for value in self.readable[buffer]:
                place = self.home[value]
                if not (place.start < end and begin < place.start + place.size):
                    kept.append(value)
                elif value in self.banded:
                    self.lost.setdefault(value, []).append((begin, end, why))
                    kept.append(value)
                else:
                    self.ended[value] = why
            if kept:
                self.readable[buffer] = kept
            else:
                del self.readable[buffer]

    def _meeting(self, room: Stretch) -> list[str]:
        """Allocations that share bytes with ``room`` and hold readable values."""
        if room.buffer not in self.planned:
            return [room.buffer] if room.buffer in self.readable else []
        begin = self.planned[room.buffer][0] + room.start
        end = begin + room.size
        planned, found = self.planned, []
        for buffer in self.readable:
            first, last = planned.get(buffer, (0, 0))
            if (first < end and begin < last) or buffer == room.buffer:
                found.append(buffer)
        return found

    def missing(self, value: str, function: Graph | None) -> str:
        """Why ``value``, or what a band's ``function`` needs of its first operand, can not be read; else nothing."""
        if value in self.ended or value not in self.lost:
            return self.ended.get(value, "")
        place = self.home[value]
        needed = [place] if function is None else bands.read(function, place)
        lost = self.lost[value]
        return next((why for s in needed for b, e, why in lost if b < s.start + s.size and s.start < e), "")

    def overlap(self, a: Stretch, b: Stretch) -> bool:
        """Whether two stretches share bytes without being the same one."""
        if a == b:
            return False
        if a.buffer == b.buffer:
            shift = 0
        elif a.buffer in self.planned and b.buffer in self.planned:
            shift = self.planned[b.buffer][0] - self.planned[a.buffer][0]
        else:
            return False
        return a.start < b.start + shift + b.size and b.start + shift < a.start + a.size

    def free(self, buffer: str) -> None:
        self.freed.add(buffer)
        for value in self.readable.pop(buffer, ()):
            self.ended[value] = "freed"


def _conditions(op: Op) -> list[str]:
    """Values that decide whether the statement runs; the kernel does not see them."""
    names = op.attr("when") if op.has("when") else ()
    return [str(n).removeprefix("!") for n in names] if isinstance(names, tuple) else []


def lifetimes(module: Module, graph: Graph) -> Iterator[str]:
    """No value is read after its bytes are overwritten or freed. At L1 every buffer is freed exactly once, except
    those of graph outputs; at L2, where the plan is settled, nothing is freed."""
    if not _is_main(module, graph):
        return
    functions = {g.name: g for g in module.graphs[1:] if bands.rows_of(g) is not None}
    banded = frozenset(op.operands[0] for op in graph.ops if op.name.startswith("call.") and op.kind in functions)
    arena = _Arena(stretches(graph), banded=banded)
    for op in graph.ops:
        if op.name == "tensor.alloc":
            arena.allocate(op)
            if op.has("input"):
                yield from _input(op, graph.inputs[op.int_("input")].id, arena)
            continue
        if op.name == "tensor.part":
            continue
        if op.name == "tensor.free":
            if op.operands[0] in arena.freed:
                yield f"%{op.operands[0]} is freed twice"
            arena.free(op.operands[0])
            continue
        band = functions.get(op.kind) if op.name.startswith("call.") else None
        if op.has("workspace"):
            workspace, room = arena.rooms[op.str_("workspace")], arena.rooms[op.into]
            arena.end(workspace, f"overwritten by the workspace of %{op.result}")
            target = room if band is None else bands.written(band, room)
            if workspace == target or arena.overlap(workspace, target):
                yield f"%{op.result} shares bytes with its workspace"
        for number, operand in enumerate((*op.operands, *_conditions(op))):
            if why := arena.missing(operand, band if number == 0 else None):
                yield f"{op.name} reads %{operand} after it was {why}"
        if op.name.startswith("view."):
            place = _view(op, arena.home)
            if place is not None:
                arena.put(op.result, place)
        else:
            room, arena.called = arena.rooms[op.into], True
            if room.buffer in arena.freed:
                yield f"%{op.result} is written into %{op.into} after it was freed"
            for number, operand in enumerate(op.operands):
                if operand not in arena.home:
                    continue
                place = arena.home[operand]
                used = [place] if band is None or number else bands.read(band, place)
                target = room if band is None else bands.written(band, room)
                if any(arena.overlap(part, target) for part in used):
                    yield f"{op.name} writes %{op.result} over a stretch of its operand %{operand}"
            if band is None:
                arena.write(op)
            else:
                yield from _band(op, band, arena, functions, graph)
    for out in graph.outputs:
        if why := arena.missing(out, None):
            yield f"the returned %{out} was {why}"
    kept = {arena.home[out].buffer for out in graph.outputs if out in arena.home}
    if module.level == "l2":
        yield from (f"%{b} is freed, but this level has a settled memory plan" for b in sorted(arena.freed))
        return
    yield from (f"%{b} is never freed" for b in arena.allocs if b not in arena.freed and b not in kept)
    yield from (f"the returned buffer %{b} is freed" for b in sorted(kept) if b in arena.freed)


def _input(op: Op, value: str, arena: _Arena) -> Iterator[str]:
    """Inputs are all there before the first call, each in one place."""
    if value in arena.home:
        yield f"input %{value} has a second place, %{op.result}"
    if arena.called:
        yield f"input %{value} is placed in %{op.result} after a call"
    arena.end(arena.rooms[op.result], f"overwritten by input %{value}")
    arena.put(value, arena.rooms[op.result])


def _band(op: Op, band: Graph, arena: _Arena, functions: Mapping[str, Graph], graph: Graph) -> Iterator[str]:
    """A band's rows are written; the last one's value is whole if the others, its ``after``, still are there."""
    layout = op.out.physical
    if layout.shape[0] != 1 or layout.blocks != 1 or len(layout.shape) != 4:
        yield f"the rows of %{op.result} are not one stretch: a band is of one image and one block of channels"
        return
    room = bands.written(band, arena.rooms[op.into])
    arena.end(room, f"overwritten by %{op.result}")
    if not op.has("after"):
        arena.put(op.result, room)
        return
    others = op.attr("after")
    makers = {o.result: o for o in graph.ops if o.name.startswith("call.")}
    rows = [bands.rows_of(band)]
    for name in others if isinstance(others, tuple) else ():
        other = makers.get(str(name))
        if other is None or other.kind not in functions or other.into != op.into or other.operands != op.operands:
            yield f"%{op.result} comes after %{name}, which is no band of it"
            return
        if why := arena.missing(str(name), None):
            yield f"the band %{name} of %{op.result} was {why}"
        rows.append(bands.rows_of(functions[other.kind]))
    if not bands.complete([r for r in rows if r is not None], op.out.dims[2]):
        yield f"the bands of %{op.result} are not its rows"
    arena.put(op.result, arena.rooms[op.into])


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
