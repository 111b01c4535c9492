"""Recurrent operations after the freeze: the products with x of all time steps become one matrix product before them.

What is left, ``<kind>_steps``, runs through time on those products. Its recurrence weights are packed in panels of 16
columns (``recurrent16``: all gates, for a gru first z and r, then h), and Wb + Rb, which the definition rounds once, is
a constant.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.ir.graph import Graph, Module, Op, TensorType, Weight
from compiler_kernels.ir.layout import packed
from compiler_kernels.ir.recurrent_functions import IN_VECTORS, functions
from compiler_kernels.ir.shapes_recurrent import GATES
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import drop_unused_weights
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.passes.products import panels

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class LowerRecurrent:
    """Takes binary32 operations whose weights and biases are constants and whose activations have a form in vectors;
    others stay and go to the scalar kernels."""

    name: ClassVar[str] = "lower-recurrent"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        work = _Lowering(module.main, store)
        ops = tuple(new for op in module.main.ops for new in work.lowered(op))
        if not work.weights:
            return PassResult(module, False)
        graph = replace(module.main, ops=ops, weights=(*module.main.weights, *work.weights.values()))
        return PassResult(replace(module, graphs=(drop_unused_weights(graph),)), True)


def reset_split(op: Op, hidden: int) -> int:
    """Columns whose recurrent sums are made first: all, or z and r of a gru."""
    return 2 * hidden if op.kind.startswith("gru") else GATES[op.kind.removesuffix("_steps")] * hidden


@dataclass
class _Lowering:
    graph: Graph
    store: WeightStore
    weights: dict[str, Weight] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def lowered(self, op: Op) -> list[Op]:
        if op.kind not in GATES or op.out.dtype != "float32" or any(f.name not in IN_VECTORS for f in functions(op)):
            return [op]
        if any(o and self.graph.weight(o) is None for o in op.operands[1:4]):
            return [op]
        x, w, r, b, h0, c0, p = (*op.operands, *[""] * (7 - len(op.operands)))
        hidden, gates = op.out.dims[2], GATES[op.kind]
        bias, rb = self._biases(op, b, gates * hidden)
        across = self._constant(f"{w}.t", np.ascontiguousarray(self._array(w).T))
        product = Op(
            "op.matmul", (x, across), self._fresh(f"{op.result}.x"), TensorType((*op.out.dims[:2], gates * hidden)),
            node=op.node,
        )  # fmt: skip
        operands = [product.result, self._packed(r, op, hidden), self._constant(f"{op.result}.b", bias), "", h0, c0, p]
        if rb is not None:
            operands[3] = self._constant(f"{op.result}.rb", rb)
        while not operands[-1]:
            operands.pop()
        return [product, replace(op, name=f"op.{op.kind}_steps", operands=tuple(operands))]

    def _array(self, value: str) -> Floats:
        weight = self.graph.weight(value)
        assert weight is not None, value
        return self.store.get(weight).astype(np.float32)

    def _biases(self, op: Op, b: str, count: int) -> tuple[Floats, Floats | None]:
        """The bias of every gate and, of a gru with ``linear_before_reset``, Rb of the last gate apart."""
        both = self._array(b).reshape(2, count) if b else np.zeros((2, count), dtype=np.float32)
        with np.errstate(all="ignore"):
            total = (both[0] + both[1]) + np.float32(0)
        if op.kind == "gru" and op.attr("linear_before_reset"):
            last = slice(count // 3 * 2, None)
            total[last] = both[0, last] + np.float32(0)
            return total, both[1, last] + np.float32(0)
        return total, None

    def _packed(self, r: str, op: Op, hidden: int) -> str:
        across = np.ascontiguousarray(self._array(r).T)
        split = reset_split(op, hidden)
        parts = [panels(part[None]) for part in (across[:, :split], across[:, split:]) if part.shape[1]]
        flat = np.concatenate(parts)
        name = self._fresh(f"{r}.r16")
        ttype = TensorType(across.shape, "float32", packed("recurrent16", flat.size))
        self.weights[name] = self.store.packed(name, ttype, flat)
        return name

    def _constant(self, stem: str, array: Floats) -> str:
        name = self._fresh(stem)
        self.weights[name] = self.store.weight(name, array)
        return name

    def _fresh(self, name: str) -> str:
        known = self.taken or set(self.graph.types())
        while name in known:
            name += "_"
        self.taken = known | {name}
        return name
