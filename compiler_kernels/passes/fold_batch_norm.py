"""Fold BatchNormalization into the convolution before it: W*a and (bias - mean)*a + B in binary64, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.ir.graph import Graph, Module, Op
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.passes.measure import rounded
from compiler_kernels.stage import Json


@dataclass(frozen=True)
class FoldBatchNorm:
    """Applies where the convolution's result has no other reader and all parameters are constants."""

    name: ClassVar[str] = "fold-batch-norm"
    changes_bits: ClassVar[bool] = True

    def run(self, module: Module, store: WeightStore) -> PassResult:
        work = _Folding(module.main, store)
        graph = work.run()
        if not work.notes:
            return PassResult(module, False)
        return PassResult(replace(module, graphs=(graph, *module.graphs[1:])), True, tuple(work.notes))


@dataclass
class _Folding:
    """One sweep: a convolution stands before its norm, so what has been merged can be merged again."""

    graph: Graph
    store: WeightStore
    notes: list[dict[str, Json]] = field(default_factory=list)

    def run(self) -> Graph:
        graph = self.graph
        self.uses = graph.uses()
        self.constants = {w.id: w for w in graph.weights}
        self.ids = FreshIds(graph, "f")
        kept: dict[str, Op] = {}  # by result, in order
        for op in graph.ops:
            conv = self._convolution(op, kept)
            if conv is not None:
                del kept[conv.result]
                op = self._merged(conv, op)
            kept[op.result] = op
        changed = replace(graph, ops=tuple(kept.values()), weights=tuple(self.constants.values()))
        return drop_unused_weights(changed) if self.notes else graph

    def _convolution(self, norm: Op, kept: dict[str, Op]) -> Op | None:
        """The convolution that ``norm`` can be folded into, if there is one."""
        constants = self.constants
        if norm.name != "op.batch_normalization" or norm.out.dtype != "float32":
            return None
        if not all(o in constants for o in norm.operands[1:]):
            return None
        conv = kept.get(norm.operands[0])
        if conv is None or conv.name not in ("op.conv", "op.conv_transpose") or self.uses[conv.result] != 1:
            return None
        return conv if all(o in constants for o in conv.operands[1:] if o) else None

    def _merged(self, conv: Op, norm: Op) -> Op:
        new_w, error_w, new_b, error_b = _folded(conv, norm, self._constant)
        w, b = (self.store.weight(self.ids.take(), values) for values in (new_w, new_b))
        self.constants.update({w.id: w, b.id: b})
        self.uses.update({w.id: 1, b.id: 1})
        self.ids.release(conv.result)
        for operand in (*conv.operands[1:], *norm.operands[1:]):
            if operand:
                self.uses[operand] -= 1
        # Names of constants nothing reads any more are free for the next fold.
        if not self.notes:
            gone = [c for c in self.constants if not self.uses.get(c)]
        else:
            gone = [c for c in (*conv.operands[1:], *norm.operands[1:]) if c and not self.uses[c]]
        for name in dict.fromkeys(gone):
            self.constants.pop(name, None)
            self.ids.release(name)
        self.notes.append({"node": norm.node, "into": conv.node, "weights": error_w, "bias": error_b})
        return replace(
            conv,
            operands=(conv.operands[0], w.id, b.id),
            result=norm.result,
            type=norm.type,
            tensor=norm.tensor,
            node=conv.node,
        )

    def _constant(self, value_id: str) -> NDArray[np.float64]:
        return self.store.get(self.constants[value_id]).astype(np.float64)


def _folded(
    conv: Op, norm: Op, constant: Callable[[str], NDArray[np.float64]]
) -> tuple[NDArray[np.float32], dict[str, Json], NDArray[np.float32], dict[str, Json]]:
    """New weights with their error, new bias with its error."""
    scale, shift, mean, var = (constant(o) for o in norm.operands[1:])
    factor = scale / np.sqrt(var + norm.float_("epsilon"))
    weights = constant(conv.operands[1])
    if conv.name == "op.conv":
        exact_w = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
    else:
        # ConvTranspose weights are (C, M/group, k...): channel m of group g belongs to rows g*C/group ...
        group = conv.int_("group")
        rows, per_group = weights.shape[0] // group, weights.shape[1]
        by_row = np.repeat(factor.reshape(group, per_group), rows, axis=0)
        exact_w = weights * by_row.reshape(weights.shape[0], per_group, *[1] * (weights.ndim - 2))
    bias = constant(conv.operands[2]) if len(conv.operands) > 2 and conv.operands[2] else np.zeros_like(mean)
    exact_b = (bias - mean) * factor + shift
    return (*rounded(exact_w), *rounded(exact_b))


class FreshIds:
    """Value ids ``<prefix>0, <prefix>1...`` that a graph does not use, the lowest first."""

    def __init__(self, graph: Graph, prefix: str) -> None:
        self.taken = set(graph.types())
        self.prefix = prefix
        self.number = 0

    def take(self) -> str:
        while (name := f"{self.prefix}{self.number}") in self.taken:
            self.number += 1
        self.taken.add(name)
        return name

    def release(self, name: str) -> None:
        """``name`` is no longer defined in the graph."""
        self.taken.discard(name)
        digits = name.removeprefix(self.prefix)
        if name.startswith(self.prefix) and digits.isdecimal() and str(int(digits)) == digits:
            self.number = min(self.number, int(digits))


def drop_unused_weights(graph: Graph) -> Graph:
    """The graph without constants that no statement and no output reads."""
    uses = graph.uses()
    return replace(graph, weights=tuple(w for w in graph.weights if w.id in uses))
