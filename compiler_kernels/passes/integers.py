"""Weights of integer convolutions and products in the order their kernels read them.

``integer16``: ``[output block][kernel position][channel pair][16 outputs][2 channels]`` as int16, filled up with 0. A
product of matrices has one kernel position; its channels are the rows of the right operand. The order is the same for
every instruction set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.ir.graph import Graph, Module, Op, TensorType, Weight
from compiler_kernels.ir.layout import BLOCK, packed
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import drop_unused_weights
from compiler_kernels.passes.infra import PassResult

INTEGER: Final = "integer16"
KINDS: Final = frozenset({"conv_integer", "matmul_integer"})
_NARROW: Final = ("int8", "uint8", "int16")


@dataclass(frozen=True)
class LowerIntegers:
    """Runs between fusion and buffers; what it leaves alone goes to the scalar kernels."""

    name: ClassVar[str] = "lower-integers"
    changes_bits: ClassVar[bool] = False

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph, made = module.main, dict[tuple[str, str], Weight]()
        types = graph.types()
        ops = tuple(_lowered(op, graph, types, store, made) for op in graph.ops)
        if not made:
            return PassResult(module, False)
        changed = replace(graph, ops=ops, weights=(*graph.weights, *made.values()))
        return PassResult(replace(module, graphs=(drop_unused_weights(changed),)), True, ({"packed": len(made)},))


def _lowered(
    op: Op, graph: Graph, types: Mapping[str, TensorType], store: WeightStore, made: dict[tuple[str, str], Weight]
) -> Op:
    root = (op.body or (op,))[0]
    if root.kind not in KINDS or not _taken(op, root, graph, types):
        return op
    right = root.operands[1]
    key = (right, root.kind)
    if key not in made:
        weight = graph.weight(right)
        assert weight is not None, right
        flat = pack_integers(store.get(weight), root.kind)
        name = f"{right}.{INTEGER}"
        while name in types or any(w.id == name for w in made.values()):
            name += "_"
        ttype = TensorType(weight.type.dims, "int16", packed(INTEGER, flat.size))
        made[key] = store.packed(name, ttype, flat)
    names = {right: made[key].id}
    operands = tuple(names.get(o, o) for o in op.operands)
    body = tuple(replace(b, operands=(b.operands[0], names[right])) if b is root else b for b in op.body)
    return replace(op, operands=operands, body=body)


def _taken(op: Op, root: Op, graph: Graph, types: Mapping[str, TensorType]) -> bool:
    """One group, 8- or 16-bit operands, constant weights that nothing else in the statement reads, and a chain whose
    outside operands are single numbers, one per output, or of the result's shape."""
    left, right = (types[o] for o in root.operands[:2])
    if graph.weight(root.operands[1]) is None or left.dtype not in _NARROW or right.dtype not in _NARROW:
        return False
    if op.operands.count(root.operands[1]) > 1 or root.operands[0] == root.operands[1] or not op.out.count:
        return False
    if root.kind == "conv_integer":
        if root.int_("group") != 1 or len(left.dims) not in (3, 4) or not right.count:
            return False
    elif len(right.dims) != 2 or len(left.dims) < 2 or not right.count:
        return False
    inner = {o.result for o in op.body}
    chain = (o for inside in op.body[1:] for o in inside.operands if o and o not in inner)
    return all(place(types[o], root.out, root.kind) is not None for o in chain)


def place(operand: TensorType, out: TensorType, kind: str) -> str | None:
    """How an operand of the chain meets the result: ``one`` number, one per ``output``, an ``element``, or not."""
    if operand.count == 1 and len(operand.dims) <= len(out.dims):
        return "one"
    if operand.dims == out.dims:
        return "element"
    axis = 1 if kind == "conv_integer" else len(out.dims) - 1
    aligned = (1,) * (len(out.dims) - len(operand.dims)) + operand.dims
    per_output = tuple(d if a == axis else 1 for a, d in enumerate(out.dims))
    return "output" if aligned == per_output else None


def pack_integers(w: NDArray[np.generic], kind: str) -> NDArray[np.int16]:
    """``w`` (outputs, channels, kernel...) of a convolution or (channels, outputs) of a product, packed and flat."""
    wide = np.asarray(w, np.int16)
    wide = wide.reshape(*wide.shape[:2], -1) if kind == "conv_integer" else wide.T[:, :, None]
    outputs, channels, positions = wide.shape
    full = np.zeros((outputs + -outputs % BLOCK, channels + channels % 2, positions), np.int16)
    full[:outputs, :channels] = wide
    split = full.reshape(-1, BLOCK, full.shape[1] // 2, 2, positions)
    return np.ascontiguousarray(split.transpose(0, 4, 2, 1, 3)).reshape(-1)
