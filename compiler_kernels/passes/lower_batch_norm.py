"""After the freeze: write the two constants of an unfolded BatchNormalization, as its definition says.

a = scale / sqrt(var + epsilon), b = B - mean * a in binary64, each rounded once; y = fma(x, a, b). The definition
already fixes these bits, so computing them at compile time changes none. Where a parameter is a run-time tensor, the
same binary64 operations become statements of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from compiler_kernels.ir.graph import Attr, Graph, Module, Op, TensorType, Weight, make_attrs
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
                if all(graph.weight(o) is not None for o in op.operands[1:]):
                    found = _constants(graph, store, op, ids)
                    made += found
                    a, b = (w.id for w in found)
                else:
                    statements = _Statements(op, ids, store)
                    a, b = statements.affine()
                    ops += statements.ops
                    made += statements.weights
                op = replace(op, name="op.affine", operands=(op.operands[0], a, b), attrs=())
            ops.append(op)
        changed = replace(graph, ops=tuple(ops), weights=(*graph.weights, *made))
        return PassResult(replace(module, graphs=(drop_unused_weights(changed),)), True)


def _constants(graph: Graph, store: WeightStore, op: Op, ids: FreshIds) -> tuple[Weight, Weight]:
    arrays = []
    for operand in op.operands[1:]:
        weight = graph.weight(operand)
        assert weight is not None
        arrays.append(store.get(weight).astype(np.float64))
    scale, shift, mean, var = arrays
    a = scale / np.sqrt(var + op.float_("epsilon"))
    to = np.dtype(op.out.dtype)
    new_a = store.weight(ids.take(), a.astype(to))
    return new_a, store.weight(ids.take(), (shift - mean * a).astype(to))


class _Statements:
    """The statements of one norm with run-time parameters, and the constants they read."""

    def __init__(self, norm: Op, ids: FreshIds, store: WeightStore) -> None:
        self._norm, self._ids, self._store = norm, ids, store
        self._channels = (norm.out.shape[1],)
        self.ops: list[Op] = []
        self.weights: list[Weight] = []

    def affine(self) -> tuple[str, str]:
        """Value ids of a and b."""
        scale, shift, mean, var = (self._cast(o, "float64") for o in self._norm.operands[1:])
        epsilon = self._store.weight(self._ids.take(), np.array(self._norm.float_("epsilon"), dtype=np.float64))
        self.weights.append(epsilon)
        root = self._emit("sqrt", (self._emit("add", (var, epsilon.id)),))
        a = self._emit("div", (scale, root))
        b = self._emit("sub", (shift, self._emit("mul", (mean, a))))
        return self._cast(a, self._norm.out.dtype), self._cast(b, self._norm.out.dtype)

    def _cast(self, operand: str, to: str) -> str:
        if to == self._norm.out.dtype == "float64":
            return operand
        return self._emit("cast", (operand,), to, to=to)

    def _emit(self, kind: str, operands: tuple[str, ...], dtype: str = "float64", **attrs: Attr) -> str:
        result = self._ids.take()
        ttype = TensorType(self._channels, dtype)
        self.ops.append(Op(f"op.{kind}", operands, result, ttype, make_attrs(attrs), node=self._norm.node))
        return result
