"""The order of calls on a GPU, and where their buffers lie then.

A CPU runs one call after another with all its threads, so its memory plan reuses a buffer as soon as it is read. On a
GPU, calls that do not depend on each other share a launch (merge.py): one after another, small kernels such as the two
directions of a recurrent layer would leave the chip idle. So calls move forward to an earlier one they can share a
launch with, and the arena is planned anew for lifetimes in launches (arena.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.stretches import Stretch, stretches
from compiler_kernels.ir.verify import verify
from compiler_kernels.stage import Json
from compiler_kernels.targets.cuda.arena import homes
from compiler_kernels.targets.cuda.bands import THRIFT, Order, Thrift, in_bands
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.cuda.merge import MOST, can_join, merged
from compiler_kernels.targets.cuda.plan import Emitter, Launch, emit_cuda, kernels_of, launches_of

WINDOW: Final = 16
"""Calls a call may overtake."""


@dataclass(frozen=True)
class Arrangement:
    """An L2 module with its calls in the order of the launches, those launches, and what ``memory.json`` says of the
    arena: nothing where it is the plan of the module's own order."""

    module: Module
    launches: tuple[Launch, ...]
    memory: dict[str, Json]


def scheduled(module: Module, kernels: Mapping[str, CudaKernel]) -> Order:
    """The calls of an L2 module of static shapes in groups that may share a launch, one after another. ``kernels`` by
    function."""
    # Every call is launched, whatever a selection takes (plan.py).
    main = replace(module.main, ops=tuple(_always(op) for op in module.main.ops))
    calls = [n for n, op in enumerate(main.ops) if op.name.startswith("call.")]
    before = _dependencies(main, calls)
    groups = _groups([main.ops[n] for n in calls], before, lambda name: can_join(kernels[name]))
    ops = _reordered(main, [main.ops[calls[c]] for group in groups for c in group])
    moment = [n for n, group in enumerate(groups) for _ in group]
    return Order(replace(module, graphs=(main, *module.graphs[1:])), tuple(ops), tuple(moment), kernels)


def _always(op: Op) -> Op:
    return replace(op, attrs=tuple((k, v) for k, v in op.attrs if k != "when"))


def _overlap(a: Stretch, b: Stretch) -> bool:
    return a.buffer == b.buffer and a.start < b.start + b.size and b.start < a.start + a.size


def _dependencies(main: Graph, calls: Sequence[int]) -> list[set[int]]:
    """Of every call, the earlier ones that must have ended: by buffer, whatever bytes of the arena it has."""
    home, rooms = homes(main), stretches(main)
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


def arranged(
    module: Module,
    gpu: Gpu,
    prefix: str = "cuvil",
    emit: Emitter = emit_cuda,
    apart: bool = False,
    thrift: Thrift = THRIFT,
) -> Arrangement:
    """The launches of an L2 ``module``, joined where they may be, and the module with its calls in their order.

    ``apart``: inputs, outputs and workspace have memory of their own, for tests of who touches what. ``thrift``: when
    convolutions are computed in bands of rows (bands.py).
    """
    kernels = kernels_of(module, gpu, prefix, emit)
    if any(not t.is_static for t in module.main.types().values()):
        return Arrangement(module, tuple(merged(launches_of(module, kernels), prefix)), {})
    found = scheduled(module, kernels).planned(apart)
    if not apart:
        found = in_bands(found, gpu, prefix, thrift)
    verify(found.module)  # that no call reads what another has overwritten in the new arena
    launches = launches_of(found.module, found.order.kernels)
    return Arrangement(found.module, tuple(merged(launches, prefix)), found.memory)
