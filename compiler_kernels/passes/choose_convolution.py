"""Choose the arithmetic of every convolution before the freeze: direct, or a Winograd form (docs/arithmetic.md, 3.6).

The choice looks at the graph and the policy only, never at a target, so that one frozen graph serves all of them, and
never at the size of the batch, so that a row has the same bits in every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Final, Literal

import numpy as np

from compiler_kernels.arithmetic.winograd import DIRECT, WINOGRAD, transformed_weights
from compiler_kernels.ir.graph import Graph, Module, Op, TensorType
from compiler_kernels.ir.symbols import symbols_of
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.convolution_error import measured_errors
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.stage import Json

PLANE: Final = "W23/32"
LINE: Final = "W1-23/32"
# With fewer channels the transforms of the inputs and outputs weigh too much, in time and in error.
MIN_CHANNELS: Final = 16
MIN_OUTPUTS: Final = 16
GAIN: Final = 1.15
"""A form is chosen when its estimate is this many times below that of the direct sum."""
# One multiply-add is the unit. A transform's step is an addition with its share of loads and stores; a weight read
# from beyond the caches costs as much as some multiply-adds, which matters where few outputs share it.
STEP: Final = 3.25
WEIGHT: Final = 14.0


@dataclass(frozen=True)
class ChooseConvolution:
    """``prefer`` and ``winograd`` are those of the policy's section ``numerics``."""

    prefer: Literal["speed", "size"] = "speed"
    winograd: Literal["allow", "forbid"] = "allow"
    name: ClassVar[str] = "choose-convolution"
    changes_bits: ClassVar[bool] = True

    def run(self, module: Module, store: WeightStore) -> PassResult:
        """Transformed weights are 16/9 (one axis: 4/3) as large, so ``prefer: size`` keeps every convolution direct.
        Where sizes depend on symbols every convolution stays direct: their kernels know no transforms."""
        if self.winograd == "forbid" or self.prefer == "size" or symbols_of(module.meta):
            return PassResult(module, False)
        graph = module.main
        types = graph.types()
        ops: list[Op] = []
        notes: list[dict[str, Json]] = []
        for op in graph.ops:
            form = candidate(op, types, graph)
            costs = {n: cost(op, types, n) for n in (DIRECT, form)} if form else {}
            if form and costs[DIRECT] >= GAIN * costs[form]:
                weight = graph.weight(op.operands[1])
                assert weight is not None
                w = store.get(weight).astype(np.float32)
                if np.all(np.isfinite(transformed_weights(form, w))):
                    op = op.with_attrs(arithmetic=form)
                    errors = measured_errors(w, form)
                    notes.append(_note(op, form, costs, {n: products(op, types, n) for n in costs}, errors))
            ops.append(op)
        if not notes:
            return PassResult(module, False)
        changed = replace(graph, ops=tuple(ops))
        return PassResult(replace(module, graphs=(changed, *module.graphs[1:])), True, tuple(notes))


def _note(
    op: Op, form: str, costs: Mapping[str, float], counts: Mapping[str, int], errors: Mapping[str, float]
) -> dict[str, Json]:
    return {
        "node": op.node,
        "arithmetic": form,
        "multiplications": dict(counts),
        "cost_ratio": round(costs[DIRECT] / costs[form], 3),
        "rms_relative_error": dict(errors),
    }


def candidate(op: Op, types: Mapping[str, TensorType], graph: Graph) -> str:
    """The form that exists for ``op`` and is accurate enough for its channels, else the empty string."""
    if op.name != "op.conv" or op.has("arithmetic") or graph.weight(op.operands[1]) is None or op.int_("group") != 1:
        return ""
    if op.out.dtype != "float32":
        return ""
    w = types[op.operands[1]].dims
    if any(v != 1 for key in ("strides", "dilations") for v in op.ints(key)):
        return ""
    if w[1] < MIN_CHANNELS or w[0] < MIN_OUTPUTS:
        return ""
    if len(w) == 4 and w[2:] == (3, 3):
        return PLANE
    return LINE if len(w) == 3 and w[2] >= 3 else ""


def products(op: Op, types: Mapping[str, TensorType], name: str) -> int:
    """Multiplications of one inference of ``op`` in arithmetic ``name``."""
    w, out = types[op.operands[1]].dims, op.out.dims
    if name == DIRECT:
        return prod(out) * prod(w[1:])
    form = WINOGRAD[name]
    return _tiles(out) * form.products * form.groups(w[2:]) * w[0] * w[1]


def _tiles(out: tuple[int, ...]) -> int:
    return out[0] * prod(-(-d // 2) for d in out[2:])


def cost(op: Op, types: Mapping[str, TensorType], name: str) -> float:
    """Estimated work of one image in multiply-adds: products, transforms with their memory traffic, and reading the
    weights. The other images of a batch do not count: they would make a row's bits depend on how many there are."""
    w, out = types[op.operands[1]].dims, (1, *op.out.dims[1:])
    total = products(op, types, name) / max(1, op.out.dims[0])
    if name == DIRECT:
        return total + WEIGHT * prod(w)
    form = WINOGRAD[name]
    if form.axes == 2:  # additions, loads and stores of a tile: 24 + 8 + 16 per input channel, 24 + 16 + 4 per output
        transforms = _tiles(out) * STEP * (48 * w[1] + 44 * w[0])
    else:  # of a pair: 6 + 2 + 6 per input channel, 4 + 4 + 2 per output
        transforms = _tiles(out) * STEP * (14 * w[1] + 10 * w[0])
    return total + transforms + WEIGHT * form.products * form.groups(w[2:]) * w[0] * w[1]
