"""Evaluate arithmetic whose operands are all constants: in binary64, rounded once, with the measured error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.ir.graph import Module, Op, Weight
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.fold_batch_norm import FreshIds, drop_unused_weights
from compiler_kernels.passes.infra import PassResult
from compiler_kernels.passes.measure import rounded
from compiler_kernels.stage import Json

F64 = NDArray[np.float64]

# Only operations NumPy evaluates correctly rounded, or moves data with, in binary64. Anything else stays in the graph:
# folding it would bring another library's rounding into the frozen constants.
_UNARY: Final[Mapping[str, Callable[[F64], F64]]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "reciprocal": lambda x: 1.0 / x,
}
_BINARY: Final[Mapping[str, Callable[[F64, F64], F64]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}


MOST_POWERS: Final = 4096
MOST_EXPONENT: Final = 64
"""Of a power that is folded: the exact rational number it is compared with stays small."""


@dataclass(frozen=True)
class FoldConstants:
    """One sweep suffices: statements are in dependency order and folded results become constants at once."""

    name: ClassVar[str] = "fold-constants"
    changes_bits: ClassVar[bool] = True

    def run(self, module: Module, store: WeightStore) -> PassResult:
        graph = module.main
        notes: list[dict[str, Json]] = []
        ids = FreshIds(graph, "f")
        constants = {w.id: w for w in graph.weights}
        names: dict[str, str] = {}  # of the constants that took the place of results
        kept: list[Op] = []
        outputs = set(graph.outputs)
        for op in graph.ops:
            if any(o in names for o in op.operands):
                op = replace(op, operands=tuple(names.get(o, o) for o in op.operands))
            exact = None if op.result in outputs else _evaluate(constants, store, op)
            if exact is None or not np.all(np.isfinite(exact)):
                kept.append(op)
                continue
            values, error = rounded(np.asarray(exact))
            weight = store.weight(ids.take(), values)
            constants[weight.id], names[op.result] = weight, weight.id
            ids.release(op.result)
            notes.append({"node": op.node, "op": op.kind, **error})
        if not notes:
            return PassResult(module, False)
        changed = drop_unused_weights(replace(graph, ops=tuple(kept), weights=tuple(constants.values())))
        return PassResult(replace(module, graphs=(changed, *module.graphs[1:])), True, tuple(notes))


def _evaluate(constants: Mapping[str, Weight], store: WeightStore, op: Op) -> F64 | None:
    if op.type is None or not op.type.is_static:
        return None
    arrays: list[F64] = []
    for operand in op.operands:
        weight = constants.get(operand)
        if weight is None or weight.type.dtype != "float32":
            return None
        arrays.append(store.get(weight).astype(np.float64))
    with np.errstate(all="ignore"):
        if op.kind in _UNARY:
            return _UNARY[op.kind](arrays[0])
        if op.kind in _BINARY:
            return _BINARY[op.kind](arrays[0], arrays[1])
        if op.kind == "pow":
            return _exact_powers(arrays[0], arrays[1])
    if op.kind == "transpose":
        return np.transpose(arrays[0], op.ints("perm"))
    if op.kind == "reshape":
        return arrays[0].reshape(op.type.dims)
    if op.kind == "expand":
        return np.broadcast_to(arrays[0], op.type.dims)
    if op.kind == "concat":
        return np.concatenate(arrays, axis=op.int_("axis"))
    return None


def _exact_powers(base: F64, exponent: F64) -> F64 | None:
    """Powers that binary64 holds exactly, such as 64 to the -1/2; ``None`` where one is not, or is not known to be."""
    bases, exponents = np.broadcast_arrays(base, exponent)
    if bases.size > MOST_POWERS:
        return None
    found = np.asarray(np.power(bases, exponents))
    for b, e, r in zip(bases.flat, exponents.flat, found.flat, strict=True):
        if not (0 < b < np.inf and 0 < r < np.inf and abs(e) <= MOST_EXPONENT):
            return None
        power = Fraction(float(e))
        if power.denominator > 4 or Fraction(float(r)) ** power.denominator != Fraction(float(b)) ** power.numerator:
            return None
    return found
