"""Evaluates a frozen graph node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from evidence.reference import movement, norms, pooling, products, recurrent, resize
from evidence.reference.algebra import ALGEBRA
from evidence.reference.arithmetic import ARITHMETICS, Arithmetic, Array
from evidence.reference.elementwise import ELEMENTWISE
from evidence.reference.errors import ReferenceError
from evidence.reference.further import FURTHER, integer_power
from evidence.reference.graph import RefGraph, RefNode, storage
from evidence.reference.indexing import INDEXING
from evidence.reference.ordering import ORDERING
from evidence.reference.quantized import QUANTIZED
from evidence.reference.reductions import REDUCTIONS
from evidence.reference.runtime_values import RUNTIME
from evidence.reference.sampling import SAMPLING
from evidence.reference.trees import TREES
from evidence.reference.typed import BFLOAT16, INTEGER, TYPED, from_bfloat16

_MOVEMENT: dict[str, Callable[..., Array]] = {
    "concat": movement.concat,
    "pad": movement.pad,
    "slice": movement.slice_,
    "transpose": movement.transpose,
    "reshape": movement.reshape,
    "expand": movement.expand,
}
_ANY: dict[str, Callable[..., Array]] = {
    **_MOVEMENT,
    **TYPED,
    **RUNTIME,
    "resize": resize.resize,
    "resize_by": resize.resize_by,
    **REDUCTIONS,
    **SAMPLING,
    **INDEXING,
    **ORDERING,
    **TREES,
    **ALGEBRA,
    **QUANTIZED,
    **FURTHER,
}
"""Operators that look after element types themselves."""
OPERATORS: dict[str, Callable[..., Array]] = {
    **_ANY,
    **ELEMENTWISE,
    "conv": products.conv,
    "conv_transpose": products.conv_transpose,
    "gemm": products.gemm,
    "matmul": products.matmul,
    "max_pool": pooling.max_pool,
    "average_pool": pooling.average_pool,
    "global_average_pool": pooling.global_average_pool,
    "global_max_pool": pooling.global_max_pool,
    "softmax": pooling.softmax,
    "log_softmax": pooling.log_softmax,
    "batch_normalization": norms.batch_normalization,
    "layer_normalization": norms.layer_normalization,
    "rms_normalization": norms.rms_normalization,
    "instance_normalization": norms.instance_normalization,
    "group_normalization": norms.group_normalization,
    "lstm": recurrent.lstm,
    "gru": recurrent.gru,
    "rnn": recurrent.rnn,
}

_INTEGER: dict[str, Callable[..., Array]] = {
    **INTEGER,
    "pow": lambda ar, node, x, y: integer_power(x, y),
    "max_pool": pooling.max_pool_integers,
    "global_max_pool": pooling.global_max_pool_integers,
}
_FLOATING = frozenset(f for name, f in OPERATORS.items() if name not in _ANY)
"""Operators of floating-point operands only: the arithmetic's own type, or binary64 as the graph says."""


def run(
    graph: RefGraph,
    inputs: Mapping[str, Array],
    arithmetic: str = "ca1",
    keep: Literal["all", "outputs"] = "outputs",
) -> dict[str, Array]:
    """Evaluate ``graph`` on ``inputs`` (by input name) and return values by id.

    ``arithmetic`` is ``ca1`` (binary32, bit-exact) or ``float64`` (the yardstick). ``keep="all"`` returns every node's
    value and the outputs, ``"outputs"`` only the latter. NaN is canonical (quiet, positive, no payload) in whatever is
    returned. Raises :class:`ReferenceError` for a missing or misshapen input, an unknown operator or arithmetic.
    """
    ar = ARITHMETICS.get(arithmetic)
    if ar is None:
        raise ReferenceError(f"arithmetic {arithmetic!r} is not one of {', '.join(ARITHMETICS)}")
    return interpret(ar, graph, inputs, keep)


def interpret(
    ar: Arithmetic, graph: RefGraph, inputs: Mapping[str, Array], keep: Literal["all", "outputs"] = "outputs"
) -> dict[str, Array]:
    """:func:`run` in any arithmetic; the vector generator uses it with deliberately different orders."""
    values = {key: _widened(ar, value) for key, value in graph.weights.items()}
    for tensor in graph.inputs:
        if tensor.name not in inputs:
            raise ReferenceError(f"input {tensor.name!r} is missing")
        value = np.asarray(inputs[tensor.name])
        if value.dtype.kind == "V" and value.dtype.itemsize == 2 and tensor.dtype == "bfloat16":
            value = value.view(storage("bfloat16"))
        if value.shape != tensor.shape or value.dtype != storage(tensor.dtype):
            raise ReferenceError(
                f"input {tensor.name!r}: got {value.dtype}{list(value.shape)}, the graph takes "
                f"{tensor.dtype}{list(tensor.shape)}"
            )
        values[tensor.id] = _widened(ar, value)
    outputs = {value_id for value_id, _ in graph.outputs} | {sizes for _, sizes in graph.extents}
    last_use = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    result: dict[str, Array] = {}
    for i, node in enumerate(graph.nodes):
        value = evaluate(ar, node, [values[name] if name else None for name in node.inputs])
        values[node.output] = value
        if keep == "all":
            result[node.output] = value
        for name in {*node.inputs, node.output}:
            if name and last_use.get(name, i) <= i and name not in outputs:
                values.pop(name, None)
    for value_id, sizes in graph.extents:  # the bound gave room; the value is the first elements
        shape = tuple(int(n) for n in values[sizes])
        values[value_id] = values[value_id].reshape(-1)[: int(np.prod(shape, dtype=np.int64))].reshape(shape)
    result.update({value_id: _canonical_nan(values[value_id]) for value_id, _ in graph.outputs})
    return result


def evaluate(ar: Arithmetic, node: RefNode, operands: list[Any]) -> Array:
    """One node's value, shape checked against the graph, NaN canonical."""
    integers = any(v is not None and v.dtype.kind in "iu" for v in operands)
    operator = _INTEGER.get(node.op) if integers and node.op in _INTEGER else OPERATORS.get(node.op)
    if operator is None:
        raise ReferenceError(f"operator {node.op!r} (node {node.node!r}) is not defined in CA-1")
    if operator in _FLOATING and any(v is not None and v.dtype not in (ar.dtype, np.float64) for v in operands):
        raise ReferenceError(f"operator {node.op!r} (node {node.node!r}) is not defined for these element types")
    while operands and operands[-1] is None:
        operands = operands[:-1]
    with np.errstate(all="ignore"):
        value = np.asarray(operator(ar, node, *operands))
    if value.shape != node.shape:
        raise ReferenceError(
            f"operator {node.op!r} (node {node.node!r}) gives shape {list(value.shape)}, "
            f"the graph says {list(node.shape)}"
        )
    if ar.dtype == np.float32 and value.dtype != storage(node.dtype):
        raise ReferenceError(
            f"operator {node.op!r} (node {node.node!r}) gives {value.dtype}, the graph says {node.dtype}"
        )
    return _canonical_nan(value)


def _widened(ar: Arithmetic, value: Array) -> Array:
    with np.errstate(invalid="ignore"):  # widening a signalling NaN makes it quiet
        if value.dtype == np.float32 or (ar.dtype == np.float64 and value.dtype == np.float16):
            return value.astype(ar.dtype)
        return from_bfloat16(value).astype(ar.dtype) if ar.dtype == np.float64 and value.dtype == BFLOAT16 else value


def _canonical_nan(value: Array) -> Array:
    if not np.issubdtype(value.dtype, np.floating):
        return value
    bad = np.isnan(value)
    return np.where(bad, value.dtype.type(np.nan), value) if bad.any() else value
