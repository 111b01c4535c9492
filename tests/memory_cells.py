"""A memory plan by its definition, for comparison with the verifier: what each call reads, cell by cell of 64 bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.ir.stretches import Stretch, stretches

CELL = 64


def planned_offsets(main: Graph) -> dict[str, int]:
    """The place of every allocation that has one."""
    return {op.result: op.int_("offset") for op in main.ops if op.name == "tensor.alloc" and op.has("offset")}


def band_cells(function: Graph, ttype: TensorType, result: bool) -> NDArray[np.bool_]:
    """The cells of a blocked value of ``ttype`` that the call of a band writes as its result, or reads as its input."""
    op, layout = function.ops[0], ttype.physical
    first, last = op.ints("rows")
    height, halo = layout.shape[2], layout.halo[0]
    if result:
        rows = [r for r in range(-halo, height + halo) if first <= min(max(r, 0), height - 1) < last]
    else:
        kernel = function.types()[op.operands[1]].dims[2]
        step, gap, pad = op.ints("strides")[0], op.ints("dilations")[0], op.ints("pads")[0]
        rows = sorted({o * step + k * gap - pad for o in range(first, last) for k in range(kernel)})
        rows = [r for r in rows if -halo <= r < height + halo]
    found = np.zeros((layout.blocks, *layout.spatial), dtype=bool)
    found[:, [r + halo for r in rows]] = True
    return found.reshape(-1)


def sees_what_it_should(main: Graph, offsets: Mapping[str, int], functions: Mapping[str, Graph] | None = None) -> bool:
    """Whether every call of an L2 graph reads in the arena what it would read if each buffer had memory of its own, and
    writes none of the bytes it reads, but those of the value it replaces; whether the outputs are there at the end.

    A workspace is written while its call reads; an input is there at the start. ``functions`` are needed where some
    compute bands of rows.
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

    def band(op: Op, function: Graph) -> bool:
        x, room = home[op.operands[0]], rooms[op.into]
        given, made = band_cells(function, function.inputs[0].type, False), band_cells(function, op.out, True)
        if x.buffer in base:
            if not np.array_equal(own[x.buffer][lies(x)][given], arena[shifted(x)][given]):
                return False
            places = (np.flatnonzero(given) + shifted(x).start, np.flatnonzero(made) + shifted(room).start)
            if np.intersect1d(*places).size:
                return False
        if op.has("workspace"):
            work = shifted(rooms[op.str_("workspace")])
            if made[max(0, work.start - shifted(room).start) : max(0, work.stop - shifted(room).start)].any():
                return False
        # One token for all bands, so that the value is whole when the last is written.
        mark = sum(map(ord, op.into)) + len(main.ops)
        own[room.buffer][lies(room)][made] = mark
        arena[shifted(room)][made] = mark
        home[op.result] = room
        return not op.has("after") or whole(room)

    def call(op: Op, token: int) -> bool:
        room = rooms[op.into]
        if op.has("workspace"):
            write(rooms[op.str_("workspace")], -token)
        if functions and functions[op.kind].ops[0].has("rows"):
            return band(op, functions[op.kind])
        if op.has("workspace") and room.buffer in base and meet(rooms[op.str_("workspace")], room):
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
