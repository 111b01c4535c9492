"""Fold BatchNormalization into the convolution before it: W*a and (bias - mean)*a + B in binary64, rounded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        graph = module.main
        notes: list[dict[str, Json]] = []
        while (pair := _find(graph)) is not None:
            graph, note = _fold(graph, store, *pair)
            notes.append(note)
        if not notes:
            return PassResult(module, False)
        return PassResult(replace(module, graphs=(graph, *module.graphs[1:])), True, tuple(notes))


def _find(graph: Graph) -> tuple[Op, Op] | None:
    uses = graph.uses()
    producers = {op.result: op for op in graph.ops}
    constants = {w.id for w in graph.weights}
    for norm in graph.ops:
        if norm.name != "op.batch_normalization" or not all(o in constants for o in norm.operands[1:]):
            continue
        conv = producers.get(norm.operands[0])
        if conv is None or conv.name not in ("op.conv", "op.conv_transpose") or uses[conv.result] != 1:
            continue
        if all(o in constants for o in conv.operands[1:] if o):
            return conv, norm
    return None


def _fold(graph: Graph, store: WeightStore, conv: Op, norm: Op) -> tuple[Graph, dict[str, Json]]:
    def constant(value_id: str) -> NDArray[np.float64]:
        weight = graph.weight(value_id)
        assert weight is not None
        return store.get(weight).astype(np.float64)

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
    new_w, error_w = rounded(exact_w)
    new_b, error_b = rounded(exact_b)
    names = fresh_ids(graph, 2, "f")
    w, b = store.weight(names[0], new_w), store.weight(names[1], new_b)
    merged = replace(
        conv,
        operands=(conv.operands[0], w.id, b.id),
        result=norm.result,
        type=norm.type,
        tensor=norm.tensor,
        node=conv.node,
    )
    ops = tuple(merged if op is norm else op for op in graph.ops if op is not conv)
    changed = drop_unused_weights(replace(graph, ops=ops, weights=(*graph.weights, w, b)))
    return changed, {"node": norm.node, "into": conv.node, "weights": error_w, "bias": error_b}


def fresh_ids(graph: Graph, count: int, prefix: str) -> list[str]:
    """``count`` value ids ``<prefix>0, <prefix>1...`` that the graph does not use yet."""
    taken = set(graph.types())
    found: list[str] = []
    number = 0
    while len(found) < count:
        if f"{prefix}{number}" not in taken:
            found.append(f"{prefix}{number}")
        number += 1
    return found


def drop_unused_weights(graph: Graph) -> Graph:
    """The graph without constants that no statement and no output reads."""
    uses = graph.uses()
    return replace(graph, weights=tuple(w for w in graph.weights if w.id in uses))
