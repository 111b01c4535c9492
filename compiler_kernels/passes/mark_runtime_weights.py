"""Mark convolutions whose weights are computed at run time: their padding taps must be executed.

Constant weights are finite, so a tap outside x gives +0 whether it is skipped or executed; a computed weight may be an
infinity, and 0 times an infinity is NaN (docs/arithmetic.md, 3.5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from compiler_kernels.ir.graph import Module, Op
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.infra import PassResult


@dataclass(frozen=True)
class MarkRuntimeWeights:
    name: ClassVar[str] = "mark-runtime-weights"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = module.main
        constants = {w.id for w in graph.weights}

        def marked(op: Op) -> Op:
            if op.name in ("op.conv", "op.conv_transpose") and op.operands[1] not in constants:
                return op.with_attrs(runtime_weights=True)
            return op

        ops = tuple(marked(op) for op in graph.ops)
        return PassResult(replace(module, graphs=(replace(graph, ops=ops),)), ops != graph.ops)
