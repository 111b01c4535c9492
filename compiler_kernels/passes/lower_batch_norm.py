"""After the freeze: write the two constants of an unfolded BatchNormalization, as its definition says.

a = scale / sqrt(var + epsilon), b = B - mean * a in binary64, each rounded once; y = fma(x, a, b). The definition
already fixes these bits, so computing them at compile time changes none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.graph import Graph, Module, Op, Weight
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import FreshIds, drop_unused_weights
from compiler_kernels.passes.infra import PassResult


@dataclass(frozen=True)
class LowerBatchNorm:
    name: ClassVar[str] = "lower-batch-norm"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = module.main
        if not any(op.name == "op.batch_normalization" for op in graph.ops):
            return PassResult(module, False)
        ids = FreshIds(graph, "n")
        ops: list[Op] = []
        made: list[Weight] = []
        for op in graph.ops:
            if op.name == "op.batch_normalization":
                a, b = _constants(graph, store, op, ids)
                op = replace(op, name="op.affine", operands=(op.operands[0], a.id, b.id), attrs=())
                made += [a, b]
            ops.append(op)
        changed = replace(graph, ops=tuple(ops), weights=(*graph.weights, *made))
        return PassResult(replace(module, graphs=(drop_unused_weights(changed),)), True)


def _constants(graph: Graph, store: WeightStore, op: Op, ids: FreshIds) -> tuple[Weight, Weight]:
    arrays = []
    for operand in op.operands[1:]:
        weight = graph.weight(operand)
        if weight is None:
            raise UnsupportedError(f"node '{op.node}' (BatchNormalization): its parameters must be constants")
        arrays.append(store.get(weight).astype(np.float64))
    scale, shift, mean, var = arrays
    a = scale / np.sqrt(var + op.float_("epsilon"))
    new_a = store.weight(ids.take(), a.astype(np.float32))
    return new_a, store.weight(ids.take(), (shift - mean * a).astype(np.float32))
