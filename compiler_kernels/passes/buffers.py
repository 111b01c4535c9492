"""L0 -> L1: give every value a buffer, mark in-place statements, state where each buffer begins and ends to live."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from compiler_kernels.ir.graph import Graph, Module, Op, TensorType, make_attrs
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fuse import ELEMENTWISE
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.passes.joins import Joins, find_joins


@dataclass(frozen=True)
class AssignBuffers:
    """A statement may write into an operand's buffer when it reads that operand only at the element it writes."""

    name: ClassVar[str] = "assign-buffers"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = _Lowering(module.main).run()
        return PassResult(replace(module, level="l1", graphs=(graph,)), True)


def elementwise_operands(op: Op) -> set[str]:
    """Operands of a statement that its kernel reads only at the index it writes (same shape, elementwise position)."""
    body = op.body or (op,)
    pointwise, elsewhere = {body[-1].result}, set[str]()
    for inner in reversed(body):
        at_its_index = inner.kind in ELEMENTWISE and inner.result in pointwise - elsewhere
        (pointwise if at_its_index else elsewhere).update(o for o in inner.operands if o)
    return pointwise - elsewhere - {o.result for o in body}


@dataclass
class _Lowering:
    graph: Graph
    ops: list[Op] = field(default_factory=list)
    buffer_of: dict[str, str] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)  # buffers of the arena, which can be reused and freed
    counter: int = 0
    joins: Joins = field(default_factory=Joins)
    roots: dict[str, str] = field(default_factory=dict)  # buffer of every outermost concatenation begun so far
    last_use: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)  # last use of any value known to lie in a buffer

    def run(self) -> Graph:
        graph = self.graph
        self.types = graph.types()
        self.joins = find_joins(graph)
        constants = {w.id for w in graph.weights}
        self.last_use = self._last_uses()
        for value in graph.inputs:
            self._put(value.id, value.id)
        pending = dict.fromkeys(graph.outputs)
        output_buffers: dict[str, str] = {}
        for index, op in enumerate(graph.ops):
            if op.result in self.joins.joined:
                self.ops.append(replace(op, name="view.concat"))
            elif op.kind == "reshape" and op.operands[0] not in constants and op.result not in pending:
                self._put(op.result, self.buffer_of[op.operands[0]])
                self.ops.append(replace(op, name="view.reshape"))
            else:
                self._place(op, index, output_buffers, pending)
            self._free_dead(index, op)
        outputs = [self._output(i, vid, output_buffers) for i, vid in enumerate(graph.outputs)]
        return replace(graph, ops=tuple(self.ops), outputs=tuple(outputs))

    def _last_uses(self) -> dict[str, int]:
        """Last statement that reads each value; a view's source lives as long as the view."""
        last: dict[str, int] = {}
        for index, op in enumerate(self.graph.ops):
            for operand in op.operands:
                last[operand] = index
            last.setdefault(op.result, index)
        for out in self.graph.outputs:
            last[out] = len(self.graph.ops)
        outputs = set(self.graph.outputs)
        for op in reversed(self.graph.ops):
            if op.kind == "reshape" and op.result not in outputs:
                last[op.operands[0]] = max(last[op.operands[0]], last[op.result])
        return last

    def _put(self, value: str, buffer: str) -> None:
        """``value`` lies in ``buffer``, for good."""
        self.buffer_of[value] = buffer
        self.ends[buffer] = max(self.ends.get(buffer, -1), self.last_use.get(value, -1))

    def _place(self, op: Op, index: int, output_buffers: dict[str, str], pending: dict[str, None]) -> None:
        if op.result in pending and op.result not in output_buffers:
            position = self.graph.outputs.index(op.result)
            into = self._alloc(op.out, output=self.graph.output_names[position], position=position)
            output_buffers[op.result] = into
            self.ops.append(replace(op, into=into))
            self._put(op.result, into)
            return
        if op.result in self.joins.place:
            self.ops.append(replace(op, into=self._part(op)))
            return
        pointwise = elementwise_operands(op)
        for operand in op.operands:
            buffer = self.buffer_of.get(operand, "")
            if (
                buffer in self.owned
                and operand not in self.joins.place
                and operand in pointwise
                and self.types[operand] == op.out
                and self.ends[buffer] == index
                and not any(self.buffer_of.get(o) == buffer for o in op.operands if o and o != operand)
            ):
                self.ops.append(replace(op, into=buffer).with_attrs(in_place=True))
                self._put(op.result, buffer)
                return
        into = self._alloc(op.out)
        self.owned.add(into)
        self.ops.append(replace(op, into=into))
        self._put(op.result, into)

    def _part(self, op: Op) -> str:
        """A stretch of the buffer of a concatenation, which is allocated with the first of its parts."""
        root, start = self.joins.place[op.result]
        if root not in self.roots:
            self.roots[root] = self._alloc(self.types[root])
            self.owned.add(self.roots[root])
            # All members at once, so that the buffer lives until the last use of the last of them.
            for member in (root, *self.joins.members[root]):
                self._put(member, self.roots[root])
        return self._name(Op("tensor.part", (self.roots[root],), "", op.out, make_attrs({"first": start})))

    def _alloc(self, ttype: TensorType, output: str = "", position: int = -1) -> str:
        attrs = make_attrs({"output": output, "position": position}) if output else ()
        return self._name(Op("tensor.alloc", (), "", ttype, attrs))

    def _name(self, op: Op) -> str:
        """Append ``op``, which defines a buffer, under a new name."""
        while f"b{self.counter}" in self.types:
            self.counter += 1
        name = f"b{self.counter}"
        self.counter += 1
        self.ops.append(replace(op, result=name))
        return name

    def _free_dead(self, index: int, op: Op) -> None:
        touched = dict.fromkeys(self.buffer_of.get(v, "") for v in (*op.operands, op.result))
        for buffer in touched:
            if buffer in self.owned and self.ends[buffer] <= index:
                self.ops.append(Op("tensor.free", (buffer,)))
                self.owned.discard(buffer)

    def _output(self, position: int, value_id: str, output_buffers: dict[str, str]) -> str:
        """The value to return at ``position``; an input, constant, view or repeated output is copied."""
        if output_buffers.get(value_id) and self.graph.outputs.index(value_id) == position:
            return value_id
        ttype = self.types[value_id]
        into = self._alloc(ttype, output=self.graph.output_names[position], position=position)
        result = f"copy{position}"
        self.ops.append(Op("op.copy", (value_id,), result, ttype, (), into))
        for buffer in list(self.owned):
            if self.buffer_of.get(value_id) == buffer and value_id not in self.graph.outputs[position + 1 :]:
                self.ops.append(Op("tensor.free", (buffer,)))
                self.owned.discard(buffer)
        return result
