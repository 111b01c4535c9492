"""L1: statements that only one side of a selection reads run only when the selection will take that side.

``op.where`` on a single condition is what run-time control flow becomes (importers/control_flow.py). A skipped
statement leaves its buffer as it was; nothing reads it, because every reader is skipped as well or is the selection,
which takes the other side. So no bit of any output can change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from compiler_kernels.ir.graph import Graph, Module, Op, TensorType, all_operands
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.infra import PassResult

_STORAGE = ("tensor.alloc", "tensor.part", "tensor.free")


@dataclass(frozen=True)
class SkipUnselected:
    """Adds ``when=["c", "!d"]`` to statements that run only if the value c is true and d is false, outermost first."""

    name: ClassVar[str] = "skip-unselected"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = module.main
        conditions = _conditions(graph)
        if not conditions:
            return PassResult(module, False)
        ops = tuple(
            op.with_attrs(when=tuple(conditions[i])) if i in conditions else op for i, op in enumerate(graph.ops)
        )
        notes = ({"statements": len(conditions)},)
        return PassResult(replace(module, graphs=(replace(graph, ops=ops),)), True, notes)


def _conditions(graph: Graph) -> dict[int, list[str]]:
    made = {op.result: i for i, op in enumerate(graph.ops) if op.result and op.name not in _STORAGE}
    readers: dict[str, set[int]] = {}
    for i, op in enumerate(graph.ops):
        if op.name not in _STORAGE:
            for operand in all_operands(op):
                readers.setdefault(operand, set()).add(i)
    found: dict[int, list[str]] = {}
    types = graph.types()
    # Outer selections come later in the text than inner ones: backwards, conditions are met outermost first.
    for index in range(len(graph.ops) - 1, -1, -1):
        for condition, arm, other, mark in _arms(graph.ops[index], types):
            if arm == other:
                continue
            for skipped in _only_for(index, arm, graph, made, readers):
                if skipped > made.get(condition, -1) and graph.ops[skipped].result != condition:
                    found.setdefault(skipped, []).append(f"{mark}{condition}")
    return found


def _arms(op: Op, types: Mapping[str, TensorType]) -> Iterator[tuple[str, str, str, str]]:
    """(condition, arm, other arm, mark) of a selection by one run-time condition, as a statement or first in one."""
    root = op.body[0] if op.body else op
    if op.name in _STORAGE or root.kind != "where":
        return
    condition, yes, no = root.operands
    if not types[condition].is_static or types[condition].count != 1:
        return
    later = {o for inner in op.body[1:] for o in inner.operands}
    if yes not in later:
        yield condition, yes, no, ""
    if no not in later:
        yield condition, no, yes, "!"


def _only_for(
    selection: int, arm: str, graph: Graph, made: Mapping[str, int], readers: Mapping[str, set[int]]
) -> list[int]:
    """Statements whose results reach nothing but operand ``arm`` of statement ``selection``."""
    if readers.get(arm) != {selection} or arm in graph.outputs or arm not in made:
        return []
    chosen, pending = {made[arm]}, [made[arm]]
    while pending:
        for operand in all_operands(graph.ops[pending.pop()]):
            maker = made.get(operand)
            if maker is None or maker in chosen or operand in graph.outputs:
                continue
            if readers[operand] <= chosen:
                chosen.add(maker)
                pending.append(maker)
    return sorted(i for i in chosen if not graph.ops[i].name.startswith("view."))
