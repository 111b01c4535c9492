"""A memory plan by its definition, for comparison with the verifier: what each call reads, cell by cell of 64 bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.verify_memory import Stretch, stretches

CELL = 64


def planned_offsets(main: Graph) -> dict[str, int]:
    """The place of every allocation that has one."""
    return {op.result: op.int_("offset") for op in main.ops if op.name == "tensor.alloc" and op.has("offset")}


def sees_what_it_should(main: Graph, offsets: Mapping[str, int]) -> bool:
    """Whether every call of an L2 graph reads in the arena what it would read if each buffer had memory of its own, and
    writes none of the bytes it reads, but those of the value it replaces; whether the outputs are there at the end.

    A workspace is written while its call reads; an input is there at the start.
    """
    rooms, home = stretches(main), {}
    own = {
        op.result: np.zeros(-(-op.out.nbytes // CELL), dtype=np.int64) for op in main.ops if op.name == "tensor.alloc"
    }
    base = {name: at // CELL for name, at in offsets.items()}
    arena = np.zeros(max(base[name] + len(own[name]) for name in base) + 1, dtype=np.int64)

    def lies(place: Stretch) -> slice:
        return slice(place.start // CELL, -(-(place.start + place.size) // CELL))

    def shifted(place: Stretch) -> slice:
        inside = lies(place)
        return slice(base[place.buffer] + inside.start, base[place.buffer] + inside.stop)

    def meet(a: Stretch, b: Stretch) -> bool:
        here, there = shifted(a), shifted(b)
        return here.start < there.stop and there.start < here.stop

    def write(place: Stretch, token: int) -> None:
        own[place.buffer][lies(place)] = token
        if place.buffer in base:
            arena[shifted(place)] = token

    def whole(place: Stretch) -> bool:
        return place.buffer not in base or np.array_equal(own[place.buffer][lies(place)], arena[shifted(place)])

    def call(op: Op, token: int) -> bool:
        room = rooms[op.into]
        if op.has("workspace"):
            write(rooms[op.str_("workspace")], -token)
            if room.buffer in base and meet(rooms[op.str_("workspace")], room):
                return False
        for place in (home[o] for o in op.operands if o in home):
            if not whole(place):
                return False
            if room.buffer in base and place.buffer in base and room != place and meet(room, place):
                return False
        write(room, token)
        home[op.result] = room
        return True

    for token, op in enumerate(main.ops, 1):
        if op.name == "tensor.alloc" and op.has("input"):
            home[main.inputs[op.int_("input")].id] = rooms[op.result]
            write(rooms[op.result], token)
        elif op.name.startswith("view."):
            places = [home[o] for o in op.operands if o in home]
            if places:
                home[op.result] = Stretch(places[0].buffer, places[0].start, op.out.nbytes)
        elif op.name.startswith("call.") and not call(op, token):
            return False
    return all(whole(home[out]) for out in main.outputs if out in home)
