"""Choose where every activation lies: blocked by 16 channels with a zero halo, wherever kernels can use that.

Values that both sides of an edge cannot agree on pass through ``op.relayout``. Layouts do not depend on the target.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

from compiler_kernels.ir.graph import Graph, Module, Op, TensorType, Weight
from compiler_kernels.ir.layout import BLOCK, c16, planar
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import drop_unused_weights
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.passes.layout_rules import C16, PLAIN, Demand, demand, is_narrow, narrow_parts
from compiler_kernels.passes.packing import pack_weight


@dataclass(frozen=True)
class AssignLayouts:
    """Runs between fusion and buffers. Halo: the widest that any reader of a value asks for, per axis."""

    name: ClassVar[str] = "assign-layouts"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        work = _Assignment(module.main, store)
        graph = work.run()
        if graph is module.main:
            return PassResult(module, False)
        count = sum(1 for k in work.kinds.values() if k == C16)
        moved = sum(1 for op in graph.ops if op.name == "op.relayout")
        return PassResult(replace(module, graphs=(graph,)), True, ({"blocked": count, "relayouts": moved},))


@dataclass
class _Assignment:
    graph: Graph
    store: WeightStore
    kinds: dict[str, str] = field(default_factory=dict)  # layout kind of every value that is not a constant
    types: dict[str, TensorType] = field(default_factory=dict)
    halos: dict[str, tuple[int, ...]] = field(default_factory=dict)
    copies: dict[tuple[str, str], str] = field(default_factory=dict)
    weights: dict[tuple[str, str, str], Weight] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    nodes: dict[str, str] = field(default_factory=dict)  # source node of every value made so far

    def run(self) -> Graph:
        graph = self.graph
        self.types = graph.types()
        self.kinds = {v.id: PLAIN for v in graph.inputs}
        for op in graph.ops:
            wanted = demand(op, self.types, self.kinds)
            if wanted and is_narrow(op, self.types, graph):
                for part in narrow_parts(op):
                    self._statement(part, replace(wanted, result=PLAIN) if part.kind == "conv" else None)
            else:
                self._statement(op, wanted)
        if all(kind == PLAIN for kind in self.kinds.values()):
            return graph
        outputs = tuple(self._as(o, PLAIN) if o in self.kinds else o for o in graph.outputs)
        self._share_halos()
        constants = (*graph.weights, *{w.id: w for w in self.weights.values()}.values())
        changed = replace(
            graph, ops=tuple(self._typed(op, outputs) for op in self.ops), outputs=outputs, weights=constants
        )
        return drop_unused_weights(changed)

    def _statement(self, op: Op, wanted: Demand | None) -> None:
        renamed: dict[str, str] = {}
        body = op.body or (op,)
        for operand in dict.fromkeys(o for o in op.operands if o):
            if operand not in self.kinds:
                packing = wanted.operands.get(operand, PLAIN) if wanted else PLAIN
                renamed[operand] = operand if packing == PLAIN else self._packed(operand, packing, body[0])
                continue
            kind = wanted.operands[operand] if wanted else PLAIN
            renamed[operand] = self._as(operand, kind)
            if wanted and kind != PLAIN:
                self._need(renamed[operand], wanted.halo.get(operand, (0,) * (len(self.types[operand].dims) - 2)))
        self.kinds[op.result] = wanted.result if wanted else PLAIN
        self.types[op.result] = op.out
        self.nodes[op.result] = op.node
        inside = tuple(_renamed(o, renamed) for o in op.body)
        self.ops.append(replace(_renamed(op, renamed), body=inside))

    def _need(self, value: str, halo: tuple[int, ...]) -> None:
        known = self.halos.get(value, (0,) * len(halo))
        self.halos[value] = tuple(map(max, known, halo))

    def _as(self, value: str, kind: str) -> str:
        """``value`` in layout ``kind``: itself, or a copy made once."""
        have = self.kinds[value]
        if have == kind:
            return value
        if (value, kind) not in self.copies:
            ttype = self.types[value]
            result = f"{value}.{kind}"
            while result in self.types:
                result += "_"
            # Blocks of 16 channels at a single position are the plain order already.
            whole = prod(ttype.dims[2:]) == 1 and (ttype.dims[1] % BLOCK == 0 or ttype.dims[0] == 1)
            name = "op.reshape" if have == C16 and kind == PLAIN and whole else "op.relayout"
            self.ops.append(Op(name, (value,), result, ttype, node=self.nodes.get(value, "")))
            self.copies[value, kind] = result
            self.types[result], self.kinds[result] = ttype, kind
        return self.copies[value, kind]

    def _packed(self, operand: str, packing: str, root: Op) -> str:
        phases = repr((root.attrs, root.out.dims)) if root.kind == "conv_transpose" else ""
        key = (operand, packing, phases)
        if key not in self.weights:
            weight = self.graph.weight(operand)
            assert weight is not None, operand
            ttype, data = pack_weight(packing, root, weight, self.store)
            name = f"{operand}.{packing}" + (f".{len(self.weights)}" if phases else "")
            while name in self.types:
                name += "_"
            self.weights[key] = self.store.packed(name, ttype, data)
            self.types[name] = ttype
        return self.weights[key].id

    def _share_halos(self) -> None:
        """The parts of a blocked concatenation get the halo of the whole, so that they may lie inside it."""
        joins = [o for o in self.ops if o.name == "op.concat" and o.int_("axis") == 1 and self.kinds[o.result] == C16]
        changed = True
        while changed:
            changed = False
            for op in joins:
                members = (*op.operands, op.result)
                zero = (0,) * (len(op.out.dims) - 2)
                widest = tuple(max(h) for h in zip(*(self.halos.get(m, zero) for m in members), strict=True))
                for member in members:
                    if self.halos.get(member, zero) != widest:
                        self.halos[member], changed = widest, True

    def _typed(self, op: Op, outputs: tuple[str, ...]) -> Op:
        kind = self.kinds[op.result]
        if kind == PLAIN:
            # No view where the value has a halo after all, or where the engine's own buffer must receive it.
            unpacked = op.name == "op.reshape" and self.kinds.get(op.operands[0]) == C16
            moved = unpacked and (any(self.halos.get(op.operands[0], ())) or op.result in outputs)
            return replace(op, name="op.relayout") if moved else op
        halo = self.halos.get(op.result, (0,) * (len(op.out.dims) - 2))
        ttype = replace(op.out, layout=c16(halo) if kind == C16 else planar(halo))
        if not op.body:
            return replace(op, type=ttype)
        return replace(op, type=ttype, body=(*op.body[:-1], replace(op.body[-1], type=ttype)))


def _renamed(op: Op, names: dict[str, str]) -> Op:
    return replace(op, operands=tuple(names.get(o, o) for o in op.operands))
