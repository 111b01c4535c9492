"""The order of calls on a GPU, and where their buffers lie then.

A CPU runs one call after another with all its threads, so its memory plan reuses a buffer as soon as it is read. On a
GPU, calls that do not depend on each other share a launch (merge.py): one after another, small kernels such as the two
directions of a recurrent layer would leave the chip idle. So calls move forward to an earlier one they can share a
launch with, and the arena is planned anew for lifetimes in launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.verify_memory import Stretch, stretches
from compiler_kernels.passes.memory import ALIGNMENT, Lifetime, place
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.merge import MOST, can_join, merged
from compiler_kernels.targets.cuda.plan import Emitter, Launch, emit_cuda, plan

WINDOW: Final = 16
"""Calls a call may overtake."""


def scheduled(module: Module, joinable: Callable[[str], bool]) -> Module:
    """An L2 module with its calls in groups that may share a launch, one after another, and its arena planned for them;
    ``module`` itself where no call moves. ``joinable`` says of a function whether its kernel may share a launch."""
    main = module.main
    calls = [n for n, op in enumerate(main.ops) if op.name.startswith("call.")]
    if any(main.ops[n].has("when") for n in calls) or any(not t.is_static for t in main.types().values()):
        return module
    before = _dependencies(main, calls)
    groups = _groups([main.ops[n] for n in calls], before, joinable)
    if [c for group in groups for c in group] == list(range(len(calls))):
        return module
    ops = _reordered(main, [main.ops[calls[c]] for group in groups for c in group])
    moment = {id(main.ops[calls[c]]): n for n, group in enumerate(groups) for c in group}
    offsets, arena = place(_lifetimes(main, ops, moment))
    ops = [op.with_attrs(offset=offsets[op.result]) if op.result in offsets else op for op in ops]
    meta = tuple((k, str(arena) if k == "arena_bytes" else v) for k, v in module.meta)
    return replace(module, graphs=(replace(main, ops=tuple(ops)), *module.graphs[1:]), meta=meta)


def _homes(main: Graph) -> dict[str, Stretch]:
    """Where every value lies that lies in a buffer."""
    rooms = stretches(main)
    home: dict[str, Stretch] = {}
    for op in main.ops:
        if op.name.startswith("call."):
            home[op.result] = rooms[op.into]
        elif op.name.startswith("view."):
            places = [home[o] for o in op.operands if o in home]
            if places:
                last = places[-1]
                home[op.result] = Stretch(last.buffer, places[0].start, last.start + last.size - places[0].start)
    return home


def _overlap(a: Stretch, b: Stretch) -> bool:
    return a.buffer == b.buffer and a.start < b.start + b.size and b.start < a.start + a.size


def _dependencies(main: Graph, calls: Sequence[int]) -> list[set[int]]:
    """Of every call, the earlier ones that must have ended: by buffer, whatever bytes of the arena it has."""
    home, rooms = _homes(main), stretches(main)
    touched: dict[str, list[tuple[int, Stretch, bool]]] = {}
    before: list[set[int]] = []
    for c, n in enumerate(calls):
        op = main.ops[n]
        own = [(home[o], False) for o in op.operands if o in home] + [(rooms[op.into], True)]
        before.append(
            {
                other
                for stretch, writes in own
                for other, theirs, wrote in touched.get(stretch.buffer, ())
                if (writes or wrote) and _overlap(stretch, theirs)
            }
        )
        for stretch, writes in own:
            touched.setdefault(stretch.buffer, []).append((c, stretch, writes))
    return before


def _groups(calls: Sequence[Op], before: Sequence[set[int]], joinable: Callable[[str], bool]) -> list[list[int]]:
    """Calls in the order of launches; a call joins the earliest group that it may within the window."""
    left, done = list(range(len(calls))), set[int]()
    groups: list[list[int]] = []
    while left:
        group = [left[0]]
        if joinable(calls[left[0]].kind):
            for c in left[1 : 1 + WINDOW]:
                if len(group) == MOST:
                    break
                if joinable(calls[c].kind) and before[c] <= done:
                    group.append(c)
        groups.append(group)
        done.update(group)
        left = [c for c in left if c not in done]
    return groups


def _reordered(main: Graph, calls: Sequence[Op]) -> list[Op]:
    """The statements of ``main`` with the calls in this order, each with what it needs before it."""
    other = {op.result: op for op in main.ops if not op.name.startswith("call.")}
    ops: list[Op] = []

    def need(value: str) -> None:
        op = other.pop(value, None)
        if op is not None:
            for operand in op.operands:
                need(operand)
            ops.append(op)

    for call in calls:
        for operand in (*call.operands, call.into):
            need(operand)
        ops.append(call)
    for value in main.outputs:
        need(value)
    return ops


def _lifetimes(main: Graph, ops: Sequence[Op], moment: Mapping[int, int]) -> list[Lifetime]:
    home, rooms = _homes(main), stretches(main)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for op in ops:
        if op.name.startswith("call."):
            for buffer in (*(home[o].buffer for o in op.operands if o in home), rooms[op.into].buffer):
                first.setdefault(buffer, moment[id(op)])
                last[buffer] = moment[id(op)]
    return [
        Lifetime(op.result, -(-op.out.nbytes // ALIGNMENT) * ALIGNMENT, first[op.result], last[op.result])
        for op in ops
        if op.name == "tensor.alloc" and not op.has("output")
    ]


def arranged(module: Module, gpu: Gpu, prefix: str = "cuvil", emit: Emitter = emit_cuda) -> tuple[Module, list[Launch]]:
    """The launches of an L2 ``module``, joined where they may be, and the module with its calls in their order."""
    launches = plan(module, gpu, prefix, emit)
    joinable = {launch.function.name: can_join(launch.kernel) for launch in launches}
    changed = scheduled(module, joinable.__getitem__)
    if changed is not module:
        verify(changed)  # that no call reads what another has overwritten in the new arena
    return changed, merged(launches if changed is module else plan(changed, gpu, prefix, emit), prefix)
