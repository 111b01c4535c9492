"""Evaluates a frozen graph on balls, node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from compiler_kernels.errors import UnsupportedError
from evidence.certificate import fixed, selection
from evidence.certificate.ball import Ball, BallArithmetic, distance
from evidence.certificate.elementary import ELEMENTARY
from evidence.certificate.fixed import Array, raised
from evidence.certificate.operators import OPERATIONS
from evidence.certificate.products import PRODUCTS
from evidence.certificate.recurrent import RECURRENT
from evidence.certificate.selection import Value
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefGraph, RefNode, type_name
from evidence.reference.interpreter import OPERATORS, evaluate
from evidence.reference.typed import from_bfloat16

_CA1 = ARITHMETICS["ca1"]
_ALL: Final = "all"
MOVES: Final[dict[str, str | tuple[int, ...]]] = {
    "concat": _ALL, "pad": (0,), "slice": (0,), "transpose": (0,), "reshape": (0,), "expand": (0,),
    "gather": (0,), "gather_elements": (0,), "gather_nd": (0,), "slice_at": (0,), "checked": (0,), "pad_by": (0, 2),
    "tensor_scatter": (0, 1), "compact": (0,),
}  # fmt: skip
"""Operators that copy elements, and the operands whose elements they copy."""
_LOGIC: Final = {"logical_and", "logical_or", "logical_xor", "logical_not"}
_INTEGERS: Final = frozenset(
    "conv_integer matmul_integer matmul add sub mul neg min max relu reduce_sum reduce_max reduce_min cum_sum".split()
)
"""Operators that mean on integers what they mean on real numbers, while nothing wraps."""
_ROUNDING: Final = {"floor": "floor", "ceil": "ceil", "round": "round"}
CERTIFIED: Final = frozenset(
    {*MOVES, *OPERATIONS, *PRODUCTS, *ELEMENTARY, *RECURRENT, *_ROUNDING, "where", "max_pool", "global_max_pool",
     "equal", "less", "less_or_equal", "greater", "greater_or_equal", "arg_max", "arg_min", "cast", "quantize"}
)  # fmt: skip
"""Operators of real numbers that a certificate can be made of."""


@dataclass
class Evaluation:
    """Balls by value id, as far as they were kept, and why anything is unknown or in doubt: node and reason."""

    values: dict[str, Value] = field(default_factory=dict)
    reasons: list[tuple[str, str]] = field(default_factory=list)


@np.errstate(all="ignore")  # an overflow makes a radius infinite, a NaN too (``raised``)
def evaluate_balls(
    graph: RefGraph,
    inputs: Mapping[str, Array],
    words: int,
    visit: Callable[[RefNode, Value], Value | None] | None = None,
    step: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """The graph's outputs as balls, for exactly the numbers in ``inputs`` (by name) and in the weights.

    ``words`` of 20 bits are kept per centre. ``visit`` sees every node's value and may replace it; ``step`` is told how
    far the work is. ``UnsupportedError`` for an operator that no certificate can be made of.
    """
    ar, found = BallArithmetic(words), Evaluation()
    check_operators(graph)
    values: dict[str, Value] = {t.id: exact_value(ar, np.asarray(inputs[t.name])) for t in graph.inputs}
    last_use = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    outputs = {value_id for value_id, _ in graph.outputs}
    converted: dict[str, Value] = {}
    types = {t.id: t.dtype for t in graph.inputs} | {k: type_name(w.dtype) for k, w in graph.weights.items()}
    types |= {node.output: node.dtype for node in graph.nodes}
    for i, node in enumerate(graph.nodes):
        operands: list[Value | None] = []
        for name in node.inputs:
            if name and name not in values and name not in converted:
                converted[name] = exact_value(ar, graph.weights[name])
            operands.append(None if not name else values[name] if name in values else converted[name])
        value = _with_infinity(graph, node, operands)
        value = (
            one(ar, node, operands, types.get(node.inputs[0], "") if node.inputs else "") if value is None else value
        )
        if value.shape != node.shape:
            raise AssertionError(f"{node.op}: shape {value.shape} instead of {node.shape}")
        _note(found, node, value, operands)
        if visit is not None:
            replaced = visit(node, value)
            value = value if replaced is None else replaced
        values[node.output] = value
        for name in {*node.inputs, node.output}:
            if name and last_use.get(name, i) <= i and name not in outputs:
                values.pop(name, None)
                converted.pop(name, None)
        if step is not None:
            step(i + 1, len(graph.nodes))
    for value_id in outputs:
        found.values[value_id] = values[value_id] if value_id in values else exact_value(ar, graph.weights[value_id])
    return found


def _with_infinity(graph: RefGraph, node: RefNode, operands: list[Value | None]) -> Value | None:
    """What a constant infinity does to a bounded value: max(x, -inf) is x, x == -inf is false; else ``None``."""
    if node.op not in ("max", "min") and node.op not in selection.COMPARISONS:
        return None
    for k, name in enumerate(node.inputs):
        constant = graph.weights.get(name)
        other = operands[1 - k]
        if constant is None or constant.dtype.kind != "f" or not constant.size or not isinstance(other, Ball):
            continue
        sign = next((s for s in (-1, 1) if np.all(constant == s * np.inf)), 0)
        if sign and node.op in selection.COMPARISONS and np.isfinite(other.radius).all():
            seen = np.full(node.shape, -sign if k == 1 else sign)
            return np.asarray(selection.COMPARISONS[node.op](seen))
        if sign == {"max": -1, "min": 1}.get(node.op):
            return other.mapped(lambda v: np.broadcast_to(v, node.shape))
    return None


def check_operators(graph: RefGraph) -> None:
    """``UnsupportedError`` for the first operator of real numbers without a certificate."""
    reals = {t.id for t in graph.inputs if _real(t.dtype)} | {
        k for k, w in graph.weights.items() if w.dtype.kind in "fV"
    }
    for node in graph.nodes:
        touched = _real(node.dtype) or any(name in reals for name in node.inputs)
        if node.op not in CERTIFIED and touched:
            raise UnsupportedError(
                f"node {node.node or node.tensor!r}: no certificate can be made of the operator {node.op!r}; use a "
                "model without it, or rely on `cuvil bisect` against float64, which promises no bound"
            )
        if _real(node.dtype):
            reals.add(node.output)


def _real(dtype: str) -> bool:
    return "float" in dtype


def exact_value(ar: BallArithmetic, value: Array) -> Value:
    if value.dtype.kind == "V":
        value = from_bfloat16(value)
    return ar.number(value) if value.dtype.kind == "f" else value


def _ball(ar: BallArithmetic, value: Value | None) -> Ball | None:
    return value if value is None or isinstance(value, Ball) else ar.number(value)


def one(ar: BallArithmetic, node: RefNode, operands: list[Value | None], source: str = "float32") -> Value:
    """One node's value; ``source`` is the element type of its first operand."""
    op = node.op
    real = _real(node.dtype)
    if not real and not any(isinstance(v, Ball) for v in operands):
        return evaluate(_CA1, node, operands)  # integers and truth values, all known
    if op in MOVES:
        data = MOVES[op]
        return selection.moved(ar, node, operands, range(len(operands)) if data == _ALL else data)  # type: ignore[arg-type]
    if op in ("resize", "resize_by") and node.attrs["mode"] == "nearest":
        return selection.moved(ar, node, operands, (0,))
    if op == "where":
        assert operands[0] is not None and operands[1] is not None and operands[2] is not None
        return selection.where(ar, node, operands[0], operands[1], operands[2])
    balls = [_ball(ar, v) for v in operands]
    while balls and balls[-1] is None:
        balls.pop()
    if op in _LOGIC:
        return _logic(ar, node, [b for b in balls if b is not None])
    if op == "cast":
        return _cast(ar, node, balls[0], source)
    if op == "quantize":
        return selection.quantize(ar, node, *balls[:2], *operands[2:3])  # type: ignore[arg-type]
    if op in _ROUNDING:
        return selection.whole(ar, balls[0], _ROUNDING[op])  # type: ignore[arg-type]
    if op in selection.COMPARISONS:
        return selection.compare(ar, node, *balls)  # type: ignore[arg-type]
    if op in ("arg_max", "arg_min"):
        return selection.extreme_index(ar, node, *balls)  # type: ignore[arg-type]
    if op in ("max_pool", "global_max_pool"):
        return getattr(selection, op)(ar, node, *balls)  # type: ignore[no-any-return]
    if op in ELEMENTARY:
        return ELEMENTARY[op](ar, *balls)  # type: ignore[arg-type]
    table: dict[str, Callable[..., Any]] = {**OPERATIONS, **PRODUCTS, **RECURRENT}
    if op not in table or (not real and op not in _INTEGERS):
        return selection.unknown(node.shape)  # integers in doubt, in an operator that is not what it is on real numbers
    value: Ball = table[op](ar, node, *balls)
    return value if real else _unwrapped(value, node.dtype)


def _unwrapped(value: Ball, dtype: str) -> Ball:
    """Integers in doubt, unknown where they may have left their type and wrapped."""
    if dtype == "bool":
        return value
    info = np.iinfo(dtype)
    middle = fixed.to_float(value.centre)
    # What wraps is a whole number beyond the type: at least 1 away from what is in it.
    low, high = max(float(info.min), -(2.0**62)), min(float(info.max), 2.0**62)
    inside = (middle - value.radius > low - 0.99) & (middle + value.radius < high + 0.99)
    return Ball(value.centre, np.where(inside, value.radius, np.inf))


def _logic(ar: BallArithmetic, node: RefNode, balls: list[Ball]) -> Value:
    """Truth values in doubt: a result is in doubt where changing a doubtful operand would change it."""
    known = [np.broadcast_to(fixed.to_float(b.centre) > 0.5, b.shape) for b in balls]
    doubtful = [b.radius > 0 for b in balls]
    function: Any = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}.get(
        node.op
    )
    if function is None:
        return selection.truth(~known[0], ~doubtful[0])
    value = function(*known)
    flips = [function(known[0] ^ doubtful[0], known[1]), function(known[0], known[1] ^ doubtful[1]),
             function(known[0] ^ doubtful[0], known[1] ^ doubtful[1])]  # fmt: skip
    return selection.truth(value, np.logical_and.reduce([f == value for f in flips]))


def _cast(ar: BallArithmetic, node: RefNode, x: Ball | None, source: str) -> Value:
    """Between floating-point types the exact cast is the identity: the engine's rounding counts as rounding."""
    assert x is not None
    to = str(node.attrs["to"])
    if _real(to):
        return x
    if to == "bool":
        sign, sure = ar.order(x, ar.fraction(0))
        return selection.truth(sign != 0, sure)
    if not _real(source) and not x.exact:
        return _unwrapped(x, to)  # between integer types a cast wraps
    return selection.to_integer(ar, x, to, "trunc")


def _note(found: Evaluation, node: RefNode, value: Value, operands: list[Value | None]) -> None:
    if not isinstance(value, Ball):
        return
    before = any(isinstance(v, Ball) and not np.isfinite(v.radius).all() for v in operands)
    name = node.node or node.tensor or node.output
    if not np.isfinite(value.radius).all():
        if not before:
            found.reasons.append(
                (name, f"{node.op}: a value is unknown (a divisor, root, logarithm or index in doubt)")
            )
    elif node.op in ("quantize", "cast", "floor", "ceil", "round", *selection.COMPARISONS):
        doubtful = int(np.count_nonzero(value.radius >= 0.5)) if node.op != "cast" or not _real(node.dtype) else 0
        if doubtful:
            found.reasons.append(
                (name, f"{node.op}: {doubtful} values lie within rounding of a step; both sides are kept")
            )


def recentred(words: int, actual: Mapping[str, Array]) -> Callable[[RefNode, Value], Value]:
    """A visitor that makes the plain forward bound: every centre becomes the engine's own number, and the radius grows
    by the rounding committed there."""
    ar = BallArithmetic(words)

    def visit(node: RefNode, value: Value) -> Value:
        if not isinstance(value, Ball) or node.output not in actual:
            return value
        numbers = actual[node.output]
        numbers = from_bfloat16(numbers) if numbers.dtype.kind == "V" else numbers
        return Ball(ar.number(numbers).centre, raised(distance(ar, value, numbers)))

    return visit


__all__ = ["CERTIFIED", "OPERATORS", "Evaluation", "check_operators", "evaluate_balls", "one", "recentred"]
