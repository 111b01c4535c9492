"""The arena of a GPU engine: everything that one inference needs for a while, planned together.

Besides the values between calls it holds the inputs, needed until their last reader; the outputs, from their writer to
the end; and the workspace of every call, for that call alone. In the module each is a ``tensor.alloc`` with its
``offset``: of an input with ``input``, its number; of a workspace named by the call's ``workspace``. So the verifier of
buffers (ir/verify_memory.py) sees them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from compiler_kernels.ir import bands
from compiler_kernels.ir.graph import Graph, Module, Op, TensorType, make_attrs
from compiler_kernels.ir.stretches import Stretch, stretches
from compiler_kernels.passes.memory import ALIGNMENT, Lifetime, Piece, aligned, lower_bound, place, rows
from compiler_kernels.stage import Json


def planned(
    module: Module, ops: Sequence[Op], moment: Sequence[int], workspaces: Mapping[str, int], apart: bool = False
) -> tuple[Module, dict[str, Json]]:
    """``module`` with the statements ``ops`` and a place in the arena for all they touch, and the plan's report.

    ``moment[n]``: when call number n of ``ops`` runs; calls of one moment run together. ``workspaces``: bytes by
    function. ``apart`` leaves inputs, outputs and workspaces out of the arena.
    """
    main, buffers = _rooms(module, ops, moment, workspaces, apart)
    offsets, arena = place(buffers)
    ops = [op.with_attrs(offset=offsets[op.result]) if op.result in offsets else op for op in main.ops]
    meta = (*((k, v) for k, v in module.meta if k != "arena_bytes"), ("arena_bytes", str(arena)))
    said: dict[str, Json] = {
        "arena_bytes": arena,
        "lower_bound_bytes": lower_bound(buffers),
        "statements": max(moment, default=-1) + 1,
        "buffers": [{**row, **_said(main, str(row["id"]))} for row in rows(buffers, offsets) if isinstance(row, dict)],
    }
    return replace(module, graphs=(replace(main, ops=tuple(ops)), *module.graphs[1:]), meta=meta), said


def least(module: Module, ops: Sequence[Op], moment: Sequence[int], workspaces: Mapping[str, int]) -> int:
    """Bytes that no plan of :func:`planned` can do without."""
    return lower_bound(_rooms(module, ops, moment, workspaces, False)[1])


def _rooms(
    module: Module, ops: Sequence[Op], moment: Sequence[int], workspaces: Mapping[str, int], apart: bool
) -> tuple[Graph, list[Lifetime]]:
    main = replace(module.main, ops=tuple(ops)) if apart else _with_rooms(module.main, ops, workspaces)
    return main, _lifetimes(main, {f.name: f for f in module.graphs[1:]}, moment, apart)


def _with_rooms(main: Graph, ops: Sequence[Op], workspaces: Mapping[str, int]) -> Graph:
    """``main`` of ``ops``, with allocations of the inputs before them and of each call's workspace before the call."""
    names = {v.id for v in main.inputs} | {w.id for w in main.weights} | {op.result for op in ops}

    def alloc(name: str, ttype: TensorType, **attrs: int) -> Op:
        while name in names:
            name += "_"
        names.add(name)
        return Op("tensor.alloc", (), name, ttype, make_attrs(attrs))

    found = [alloc(f"in{n}", value.type, input=n) for n, value in enumerate(main.inputs)]
    for op in ops:
        size = workspaces.get(op.kind, 0) if op.name.startswith("call.") else 0
        if size:
            found.append(alloc(f"work_{op.result}", TensorType((size,), "uint8")))
            op = op.with_attrs(workspace=found[-1].result)
        found.append(op)
    return replace(main, ops=tuple(found))


def homes(main: Graph) -> dict[str, Stretch]:
    """Where every value lies that lies in a buffer."""
    rooms = stretches(main)
    home: dict[str, Stretch] = {}
    for op in main.ops:
        if op.name == "tensor.alloc" and op.has("input"):
            home[main.inputs[op.int_("input")].id] = rooms[op.result]
        elif op.name.startswith("call."):
            home[op.result] = rooms[op.into]
        elif op.name.startswith("view."):
            places = [home[o] for o in op.operands if o in home]
            if places:
                last = places[-1]
                home[op.result] = Stretch(last.buffer, places[0].start, last.start + last.size - places[0].start)
    return home


def _lifetimes(main: Graph, functions: Mapping[str, Graph], moment: Sequence[int], apart: bool) -> list[Lifetime]:
    """Of every allocation from the first call that touches it to the last; where calls touch parts of it, or bands of
    rows, of each stretch between their borders."""
    home, rooms = homes(main), stretches(main)
    allocs = [op for op in main.ops if op.name == "tensor.alloc" and not (apart and op.has("output"))]
    touched: dict[str, list[tuple[Stretch, int]]] = {op.result: [] for op in main.ops if op.name == "tensor.alloc"}
    calls = [op for op in main.ops if op.name.startswith("call.")]
    for op, when in zip(calls, moment, strict=True):
        used = [home[o] for o in op.operands if o in home] + [rooms[op.into]]
        band = functions[op.kind]
        if bands.rows_of(band) is not None:
            used = [*bands.read(band, home[op.operands[0]]), bands.written(band, rooms[op.into])]
        used += [rooms[op.str_("workspace")]] if op.has("workspace") else []
        for stretch in used:
            touched[stretch.buffer].append((stretch, when))
    return [_lifetime(op, touched[op.result], max(moment, default=0)) for op in allocs]


def _lifetime(op: Op, touched: Sequence[tuple[Stretch, int]], last: int) -> Lifetime:
    # An input is there before the first call, an output is read after the last.
    always = [0] * op.has("input") + [last] * op.has("output")
    times = [when for _, when in touched] + always
    whole = Lifetime(op.result, aligned(op.out.nbytes), min(times, default=0), max(times, default=0))
    cuts = sorted({s.start for s, _ in touched} | {aligned(s.start + s.size) for s, _ in touched})
    if always or len(cuts) < 3 or any(at % ALIGNMENT for at in cuts):
        return whole
    pieces = []
    for start, end in pairwise(cuts):
        here = [when for s, when in touched if s.start < end and start < s.start + s.size]
        if here:
            pieces.append(Piece(start, end - start, min(here), max(here)))
    return replace(whole, pieces=tuple(pieces))


def _said(main: Graph, buffer: str) -> dict[str, Json]:
    """What a buffer is, for a reader of the report."""
    op = next(op for op in main.ops if op.result == buffer)
    if op.has("input"):
        return {"node": f"input {main.inputs[op.int_('input')].name or main.inputs[op.int_('input')].id}"}
    if op.has("output"):
        return {"node": f"output {op.str_('output')}"}
    user = next((o for o in main.ops if o.has("workspace") and o.str_("workspace") == buffer), None)
    if user is not None:
        return {"node": f"workspace of {user.node or user.kind}"}
    inside = {o.result for o in main.ops if o.name == "tensor.part" and o.operands[0] == buffer} | {buffer}
    writer = next((o for o in main.ops if o.into in inside), None)
    return {"node": "" if writer is None else writer.node or writer.kind}
