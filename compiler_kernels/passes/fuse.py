"""Fuse elementwise operations into the statement that produces their operand (FuseConvRelu, FuseConvReluAdd, ...).

The fused body keeps the operations in graph order, each rounded as if unfused, so no bit can change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
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
# Elementwise with a result or operands of other types; plain row-major kernels only.
ELEMENTWISE_TYPED: Final = frozenset(
    "cast where equal less less_or_equal greater greater_or_equal "
    "logical_and logical_or logical_xor logical_not quantize dequantize "
    "sin cos tan asin acos atan sinh cosh asinh acosh atanh round sign mod is_nan is_inf "
    "bit_and bit_or bit_xor bit_not bit_cast shift_left shift_right".split()
)
ELEMENTWISE: Final = ELEMENTWISE_UNARY | ELEMENTWISE_BINARY | ELEMENTWISE_TYPED | {"affine"}
# Producers whose generated kernel computes one output element at a time, so that a chain can continue in registers.
PRODUCERS: Final = ELEMENTWISE | frozenset(
    "conv conv_transpose gemm matmul max_pool average_pool global_average_pool global_max_pool resize "
    "conv_integer matmul_integer".split()
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
        types = graph.types()
        # Float32 kernels have vector forms, which know no other element type: a group is of one sort from its root on,
        # except that float32 operations may follow a typed root (a cast and the arithmetic after it).
        self.typed = [
            op.kind in ELEMENTWISE_TYPED
            or any(t.dtype != "float32" for t in (op.out, *(types[o] for o in op.operands if o)))
            for op in graph.ops
        ]
        self.readers: dict[str, list[int]] = {}
        for i, op in enumerate(graph.ops):
            for operand in dict.fromkeys(op.operands):
                self.readers.setdefault(operand, []).append(i)

    def grow(self, root: int, taken: set[int]) -> list[int]:
        """Indices of the group of ``root``, ascending; ``taken`` are those of other groups."""
        members, inside = [root], {root}
        if self.ops[root].kind not in PRODUCERS:
            return members
        best = 1
        candidates: list[int] = []  # readers of members, the lowest first
        unread: dict[int, int] = {}  # of members that something outside still reads: by how many statements
        last = root
        while True:
            readers = self.readers.get(self.ops[last].result, ())
            if readers:
                unread[last] = len(readers)
            if any(not self._fits(reader, root) for reader in readers):
                return members[:best]
            for reader in readers:
                heappush(candidates, reader)
            while candidates and candidates[0] in inside:
                heappop(candidates)
            # A graph output is read by the outside, whatever joins the group.
            if not candidates or self.ops[last].result in self.outputs:
                return members[:best]
            index = candidates[0]
            if index in taken or not self._joins(index, inside, root):
                return members[:best]
            members.append(index)
            inside.add(index)
            for maker in {self.made[o] for o in self.ops[index].operands if self.made.get(o) in inside}:
                unread[maker] -= 1
                if not unread[maker]:
                    del unread[maker]
            if not unread:
                best = len(members)
            last = index

    def _fits(self, index: int, root: int) -> bool:
        """Elementwise, of the producer's shape and sort; what does not fit reads from outside the group for good."""
        op = self.ops[index]
        return (
            op.kind in ELEMENTWISE
            and op.out.shape == self.ops[root].out.shape
            and (self.typed[root] or not self.typed[index])
        )

    def _joins(self, index: int, inside: set[int], root: int) -> bool:
        """Whether a fitting operation is not rather part of the group of an earlier operand."""
        op = self.ops[index]
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
