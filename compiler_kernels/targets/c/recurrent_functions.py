"""C text of the activations of recurrent operators, composed of elementwise ones (docs/arithmetic.md, section 12)."""

from __future__ import annotations

from compiler_kernels.ir.graph import Attr, Op, TensorType, make_attrs
from compiler_kernels.ir.recurrent_functions import Function
from compiler_kernels.targets.c.elementwise import expression
from compiler_kernels.targets.c.writer import c_number


def applied(function: Function, x: str, dtype: str) -> str:
    """``function`` of the C variable ``x`` of type float or double."""

    def op(kind: str, *operands: str, **attrs: Attr) -> str:
        found = Op(f"op.{kind}", ("x",) * len(operands), "t", TensorType((), dtype), make_attrs(attrs))
        return f"({expression(found, list(operands), dtype)})"

    name = function.name
    alpha, beta = c_number(function.alpha, dtype), c_number(function.beta, dtype)
    if name == "affine":
        return op("add", op("mul", alpha, x), beta)
    if name == "thresholded_relu":
        return f"({alpha} < {x} ? {x} : {c_number(0.0, dtype)})"
    if name == "scaled_tanh":
        return op("mul", alpha, op("tanh", op("mul", beta, x)))
    if name == "softsign":
        return op("div", x, op("add", c_number(1.0, dtype), op("abs", x)))
    if name in ("leaky_relu", "elu"):
        return op(name, x, alpha=function.alpha)
    if name == "hard_sigmoid":
        return op(name, x, alpha=function.alpha, beta=function.beta)
    return op(name, x)


def clipped(x: str, limit: float | None, dtype: str) -> str:
    """min(max(x, -limit), limit), or ``x`` where there is no limit."""
    if limit is None:
        return x
    low, high = c_number(-limit, dtype), c_number(limit, dtype)
    if dtype == "float32":
        return f"ca1_minn_v1(ca1_maxn_v1({x}, {low}), {high})"
    return f"ca1_min_f64(ca1_max_f64({x}, {low}), {high})"
