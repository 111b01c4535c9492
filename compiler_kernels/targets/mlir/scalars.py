"""Elementwise operations as scalar arithmetic, and their ``linalg.generic`` with NumPy broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from compiler_kernels.ir.graph import Op
from compiler_kernels.targets.mlir.writer import FLOATS, Body, Tensor, Writer

Rule = Callable[[Op, Body, Sequence[str]], str]

# Operations that are one operation of arith or math.
DIRECT: Final[Mapping[str, str]] = {
    "add": "arith.addf", "sub": "arith.subf", "mul": "arith.mulf", "div": "arith.divf", "neg": "arith.negf",
    "abs": "math.absf", "exp": "math.exp", "log": "math.log", "sqrt": "math.sqrt", "tanh": "math.tanh",
    "erf": "math.erf", "floor": "math.floor", "ceil": "math.ceil", "pow": "math.powf", "sin": "math.sin",
    "cos": "math.cos", "tan": "math.tan", "atan": "math.atan", "round": "math.roundeven",
}  # fmt: skip


def _direct(name: str) -> Rule:
    return lambda op, b, x: b.op(name, *x)


def _relu(op: Op, b: Body, x: Sequence[str]) -> str:
    return b.extreme("oge", x[0], b.const(0.0))


def _sigmoid(op: Op, b: Body, x: Sequence[str]) -> str:
    one = b.const(1.0)
    return b.op("arith.divf", one, b.op("arith.addf", one, b.op("math.exp", b.op("arith.negf", x[0]))))


def _reciprocal(op: Op, b: Body, x: Sequence[str]) -> str:
    return b.op("arith.divf", b.const(1.0), x[0])


def _hard_sigmoid(op: Op, b: Body, x: Sequence[str]) -> str:
    return _ramp(b, x[0], op.float_("alpha"), op.float_("beta"))


def _ramp(b: Body, x: str, alpha: float, beta: float) -> str:
    """min(max(alpha * x + beta, 0), 1)."""
    line = b.op("arith.addf", b.op("arith.mulf", b.const(alpha), x), b.const(beta))
    return b.extreme("ole", b.extreme("oge", line, b.const(0.0)), b.const(1.0))


def _hard_swish(op: Op, b: Body, x: Sequence[str]) -> str:
    return b.op("arith.mulf", x[0], _ramp(b, x[0], 1 / 6, 0.5))


def _softplus(op: Op, b: Body, x: Sequence[str]) -> str:
    """max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    tail = b.op("math.log1p", b.op("math.exp", b.op("arith.negf", b.op("math.absf", x[0]))))
    return b.op("arith.addf", _relu(op, b, x), tail)


def _below(op: Op, b: Body, x: str, other: str) -> str:
    """x where it is not negative, else ``other``."""
    return b.select(b.compare("oge", x, b.const(0.0)), x, other)


def _leaky_relu(op: Op, b: Body, x: Sequence[str]) -> str:
    return _below(op, b, x[0], b.op("arith.mulf", b.const(op.float_("alpha")), x[0]))


def _prelu(op: Op, b: Body, x: Sequence[str]) -> str:
    return _below(op, b, x[0], b.op("arith.mulf", x[1], x[0]))


def _elu(op: Op, b: Body, x: Sequence[str]) -> str:
    slope = b.op("arith.subf", b.op("math.exp", x[0]), b.const(1.0))
    return _below(op, b, x[0], b.op("arith.mulf", b.const(op.float_("alpha")), slope))


def _gelu(op: Op, b: Body, x: Sequence[str]) -> str:
    if op.str_("approximate") == "tanh":
        cubic = b.op("arith.mulf", b.const(0.044715), b.op("arith.mulf", x[0], b.op("arith.mulf", x[0], x[0])))
        inner = b.op("arith.mulf", b.const(math.sqrt(2 / math.pi)), b.op("arith.addf", x[0], cubic))
        curve = b.op("math.tanh", inner)
    else:
        curve = b.op("math.erf", b.op("arith.mulf", x[0], b.const(math.sqrt(0.5))))
    half = b.op("arith.mulf", b.const(0.5), x[0])
    return b.op("arith.mulf", half, b.op("arith.addf", curve, b.const(1.0)))


def _clip(op: Op, b: Body, x: Sequence[str]) -> str:
    value = x[0]
    for key, how in (("lo", "oge"), ("hi", "ole")):
        if op.has(key):
            bound = op.attr(key)
            assert isinstance(bound, int | float)
            value = b.extreme(how, value, b.const(float(bound)))
    return value


SCALARS: Final[Mapping[str, Rule]] = {
    "relu": _relu,
    "sigmoid": _sigmoid,
    "reciprocal": _reciprocal,
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "softplus": _softplus,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "elu": _elu,
    "gelu": _gelu,
    "clip": _clip,
    "max": lambda op, b, x: b.extreme("oge", x[0], x[1]),
    "min": lambda op, b, x: b.extreme("ole", x[0], x[1]),
    **{kind: _direct(name) for kind, name in DIRECT.items()},
}


def broadcast(x: Tensor, dims: Sequence[int]) -> list[str]:
    """Index expressions of an operand under NumPy broadcasting to ``dims``."""
    lead = len(dims) - x.rank
    return [f"d{lead + i}" if d == dims[lead + i] else "0" for i, d in enumerate(x.dims)]


def elementwise(op: Op, writer: Writer, operands: Sequence[Tensor]) -> Tensor | None:
    """The result of a floating-point elementwise operation; ``None`` for anything else."""
    rule = SCALARS.get(op.kind)
    if rule is None or op.out.dtype not in FLOATS or any(t.dtype != op.out.dtype for t in operands):
        return None
    dims = op.out.dims
    pairs = [(t, broadcast(t, dims)) for t in operands]
    into = writer.empty(dims, op.out.dtype)
    tile = (*[0] * (len(dims) - 1), *writer.tile[-1:]) if dims else ()
    return writer.generic(
        op.result, pairs, into, "p" * len(dims), lambda b: rule(op, b, b.args[: len(pairs)]), tile=tile
    )
