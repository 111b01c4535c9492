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

    def run(self) -> Graph:
        graph = self.graph
        self.types = graph.types()
        self.joins = find_joins(graph)
        constants = {w.id for w in graph.weights}
        for value in graph.inputs:
            self.buffer_of[value.id] = value.id
        last_use = self._last_uses()
        pending = dict.fromkeys(graph.outputs)
        output_buffers: dict[str, str] = {}
        for index, op in enumerate(graph.ops):
            if op.result in self.joins.joined:
                self.ops.append(replace(op, name="view.concat"))
            elif op.kind == "reshape" and op.operands[0] not in constants and op.result not in pending:
                self.buffer_of[op.result] = self.buffer_of[op.operands[0]]
                self.ops.append(replace(op, name="view.reshape"))
            else:
                self._place(op, index, last_use, output_buffers, pending)
            self._free_dead(index, op, last_use)
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
        for op in reversed(self.graph.ops):
            if op.kind == "reshape" and op.result not in self.graph.outputs:
                last[op.operands[0]] = max(last[op.operands[0]], last[op.result])
        return last

    def _buffer_end(self, buffer: str, last_use: dict[str, int]) -> int:
        return max((last_use[v] for v, b in self.buffer_of.items() if b == buffer and v in last_use), default=-1)

    def _place(
        self, op: Op, index: int, last_use: dict[str, int], output_buffers: dict[str, str], pending: dict[str, None]
    ) -> None:
        if op.result in pending and op.result not in output_buffers:
            position = self.graph.outputs.index(op.result)
            into = self._alloc(op.out, output=self.graph.output_names[position], position=position)
            output_buffers[op.result] = into
            self.ops.append(replace(op, into=into))
            self.buffer_of[op.result] = into
            return
        if op.result in self.joins.place:
            self.ops.append(replace(op, into=self._part(op)))
            return
        for operand in op.operands:
            buffer = self.buffer_of.get(operand, "")
            if (
                buffer in self.owned
                and operand not in self.joins.place
                and operand in elementwise_operands(op)
                and self.types[operand] == op.out
                and self._buffer_end(buffer, last_use) == index
                and not any(self.buffer_of.get(o) == buffer for o in op.operands if o and o != operand)
            ):
                self.ops.append(replace(op, into=buffer).with_attrs(in_place=True))
                self.buffer_of[op.result] = buffer
                return
        into = self._alloc(op.out)
        self.owned.add(into)
        self.ops.append(replace(op, into=into))
        self.buffer_of[op.result] = into

    def _part(self, op: Op) -> str:
        """A stretch of the buffer of a concatenation, which is allocated with the first of its parts."""
        root, start = self.joins.place[op.result]
        if root not in self.roots:
            self.roots[root] = self._alloc(self.types[root])
            self.owned.add(self.roots[root])
            # All members at once, so that the buffer lives until the last use of the last of them.
            self.buffer_of.update(dict.fromkeys([root, *self.joins.members[root]], self.roots[root]))
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

    def _free_dead(self, index: int, op: Op, last_use: dict[str, int]) -> None:
        touched = dict.fromkeys(self.buffer_of.get(v, "") for v in (*op.operands, op.result))
        for buffer in touched:
            if buffer in self.owned and self._buffer_end(buffer, last_use) <= index:
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
