"""After the freeze: write the two constants of an unfolded BatchNormalization, as its definition says.

a = scale / sqrt(var + epsilon), b = B - mean * a in binary64, each rounded once; y = fma(x, a, b). The definition
already fixes these bits, so computing them at compile time changes none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import drop_unused_weights, fresh_ids
from compiler_kernels.passes.infra import PassResult


@dataclass(frozen=True)
class LowerBatchNorm:
    name: ClassVar[str] = "lower-batch-norm"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = module.main
        norms = [op for op in graph.ops if op.name == "op.batch_normalization"]
        for op in norms:
            graph = _lower(graph, store, op)
        if not norms:
            return PassResult(module, False)
        return PassResult(replace(module, graphs=(drop_unused_weights(graph),)), True)


def _lower(graph: Graph, store: WeightStore, op: Op) -> Graph:
    arrays = []
    for operand in op.operands[1:]:
        weight = graph.weight(operand)
        if weight is None:
            raise UnsupportedError(f"node '{op.node}' (BatchNormalization): its parameters must be constants")
        arrays.append(store.get(weight).astype(np.float64))
    scale, shift, mean, var = arrays
    a = scale / np.sqrt(var + op.float_("epsilon"))
    names = fresh_ids(graph, 2, "n")
    new_a = store.weight(names[0], a.astype(np.float32))
    new_b = store.weight(names[1], (shift - mean * a).astype(np.float32))
    affine = replace(op, name="op.affine", operands=(op.operands[0], new_a.id, new_b.id), attrs=())
    ops = tuple(affine if o is op else o for o in graph.ops)
    return replace(graph, ops=ops, weights=(*graph.weights, new_a, new_b))
