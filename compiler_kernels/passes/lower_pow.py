"""After the freeze: pow with a constant exponent of 2 or 3 is products, as its definition says (no bit changes)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from compiler_kernels.ir.graph import Module, Op
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import drop_unused_weights
from compiler_kernels.passes.infra import PassResult

POWERS: Final = (2.0, 3.0)


@dataclass(frozen=True)
class LowerPow:
    """pow(x, 2) is x * x, pow(x, 3) is (x * x) * x: a few instructions in place of a function computed in binary64."""

    name: ClassVar[str] = "lower-pow"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = module.main
        types = graph.types()
        ops: list[Op] = []
        taken = set(types)
        for op in graph.ops:
            weight = graph.weight(op.operands[1]) if op.name == "op.pow" else None
            exponents = np.unique(store.get(weight)) if weight is not None else np.empty(0)
            x = op.operands[0] if op.operands else ""
            if exponents.size != 1 or float(exponents[0]) not in POWERS or types[x].shape != op.out.shape:
                ops.append(op)
                continue
            if float(exponents[0]) == 2.0:
                ops.append(replace(op, name="op.mul", operands=(x, x)))
                continue
            square = f"{op.result}.sq"
            while square in taken:
                square += "_"
            taken.add(square)
            ops.append(replace(op, name="op.mul", operands=(x, x), result=square, tensor=""))
            ops.append(replace(op, name="op.mul", operands=(square, x)))
        if tuple(ops) == graph.ops:
            return PassResult(module, False)
        return PassResult(replace(module, graphs=(drop_unused_weights(replace(graph, ops=tuple(ops))),)), True)
