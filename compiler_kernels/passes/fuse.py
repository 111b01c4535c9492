"""Fuse elementwise operations into the statement that produces their operand (FuseConvRelu, FuseConvReluAdd, ...).

The fused body keeps the operations in graph order, each rounded as if unfused, so no bit can change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.stage import Json

ELEMENTWISE_UNARY: Final = frozenset(
    "relu sigmoid tanh erf exp log sqrt neg abs reciprocal floor ceil leaky_relu elu hard_sigmoid hard_swish softplus "
    "gelu clip".split()
)
ELEMENTWISE_BINARY: Final = frozenset("add sub mul div min max pow prelu".split())
ELEMENTWISE: Final = ELEMENTWISE_UNARY | ELEMENTWISE_BINARY | {"affine"}
# Producers whose generated kernel computes one output element at a time, so that a chain can continue in registers.
PRODUCERS: Final = ELEMENTWISE | frozenset(
    "conv conv_transpose gemm matmul max_pool average_pool global_average_pool global_max_pool resize".split()
)


@dataclass(frozen=True)
class FuseElementwise:
    """Grows groups producer -> elementwise -> elementwise whose inner values nothing outside reads.

    A value may be read several times inside, as x in x * (erf(x / c) + 1)."""

    name: ClassVar[str] = "fuse-elementwise"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = module.main
        chains = _chains(graph)
        if not any(len(chain) > 1 for chain in chains):
            return PassResult(module, False)
        # A fused statement stands where its last operation stood: every other operand is defined by then.
        ops = tuple(chain[0] if len(chain) == 1 else fused_statement(chain) for chain in chains)
        notes: list[dict[str, Json]] = [
            {"fused": fused_statement(c).name, "nodes": [o.node for o in c]} for c in chains if len(c) > 1
        ]
        return PassResult(replace(module, graphs=(replace(graph, ops=ops),)), True, tuple(notes))


def _chains(graph: Graph) -> list[list[Op]]:
    """Groups in the order of their last operations; a group of one is a statement as it was."""
    region = _Region(graph)
    taken: set[int] = set()
    groups: list[tuple[int, list[Op]]] = []
    for index in range(len(graph.ops)):
        if index not in taken:
            members = region.grow(index, taken)
            taken.update(members)
            groups.append((members[-1], [graph.ops[i] for i in members]))
    return [group for _, group in sorted(groups, key=lambda item: item[0])]


class _Region:
    """Finds, from a producer, the largest group of elementwise operations of which only the last is read outside."""

    def __init__(self, graph: Graph) -> None:
        self.ops = graph.ops
        self.outputs = set(graph.outputs)
        self.made = {op.result: i for i, op in enumerate(graph.ops)}
        self.readers: dict[str, list[int]] = {}
        for i, op in enumerate(graph.ops):
            for operand in dict.fromkeys(op.operands):
                self.readers.setdefault(operand, []).append(i)

    def grow(self, root: int, taken: set[int]) -> list[int]:
        """Indices of the group of ``root``, ascending; ``taken`` are those of other groups."""
        best = members = [root]
        if self.ops[root].kind not in PRODUCERS:
            return best
        inside = {root}
        while True:
            candidates = [i for m in members for i in self.readers.get(self.ops[m].result, ()) if i not in inside]
            if not candidates:
                return best
            index = min(candidates)
            if index in taken or not self._joins(index, inside, root):
                return best
            members = [*members, index]
            inside.add(index)
            if self._closed(members, inside):
                best = members

    def _joins(self, index: int, inside: set[int], root: int) -> bool:
        """Elementwise, of the producer's shape, and not rather part of the group of an earlier operand."""
        op = self.ops[index]
        if op.kind not in ELEMENTWISE or op.out.shape != self.ops[root].out.shape:
            return False
        if op.kind == "affine" and self.made.get(op.operands[0]) not in inside:
            return False
        for operand in op.operands:
            maker = self.made.get(operand)
            if maker in inside:
                return True
            if maker is not None and self._could_carry(operand, op):
                return False
        return False

    def _could_carry(self, value: str, op: Op) -> bool:
        maker = self.ops[self.made[value]]
        alone = len(self.readers[value]) == 1 and value not in self.outputs
        return alone and maker.kind in PRODUCERS and maker.out.shape == op.out.shape

    def _closed(self, members: list[int], inside: set[int]) -> bool:
        """Every member but the last is read, by members only."""
        for m in members[:-1]:
            value = self.ops[m].result
            if value in self.outputs or not inside.issuperset(self.readers.get(value, ())):
                return False
        return True


def fused_statement(chain: list[Op]) -> Op:
    """One ``fused.<kinds>`` statement whose body is ``chain``; operands are the outside values, first use first."""
    inner = {op.result for op in chain}
    operands: list[str] = []
    for op in chain:
        operands += [o for o in op.operands if o and o not in inner and o not in operands]
    last = chain[-1]
    name = "fused." + "_".join(op.kind for op in chain)
    return Op(
        name,
        tuple(operands),
        last.result,
        last.type,
        (),
        "",
        tuple(chain),
        " + ".join(op.node for op in chain),
        last.tensor,
    )
