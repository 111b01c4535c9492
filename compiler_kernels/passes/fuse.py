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
    """Grows chains producer -> elementwise -> elementwise while each intermediate value has exactly one reader."""

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
    uses = graph.uses()
    position = {op.result: i for i, op in enumerate(graph.ops)}
    chain_of: dict[str, list[Op]] = {}
    last_position: list[tuple[int, list[Op]]] = []
    for op in graph.ops:
        chain = _chain_to_extend(op, chain_of, uses)
        if chain is None:
            chain = []
        chain.append(op)
        chain_of[op.result] = chain
    seen: set[int] = set()
    for op in graph.ops:
        chain = chain_of[op.result]
        if id(chain) not in seen:
            seen.add(id(chain))
            last_position.append((position[chain[-1].result], chain))
    return [chain for _, chain in sorted(last_position, key=lambda item: item[0])]


def _chain_to_extend(op: Op, chain_of: dict[str, list[Op]], uses: dict[str, int]) -> list[Op] | None:
    if op.kind not in ELEMENTWISE:
        return None
    for operand in op.operands:
        chain = chain_of.get(operand)
        if chain is None or chain[-1].result != operand or uses[operand] != 1 or op.operands.count(operand) != 1:
            continue
        if op.kind == "affine" and operand != op.operands[0]:
            continue
        if chain[0].kind in PRODUCERS and chain[-1].out.shape == op.out.shape:
            return chain
    return None


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
