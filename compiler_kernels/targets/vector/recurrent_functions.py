"""Vector text of the activations of recurrent operators (docs/arithmetic.md, section 12)."""

from __future__ import annotations

from compiler_kernels.ir.graph import Attr, Op, TensorType, make_attrs
from compiler_kernels.ir.recurrent_functions import Function
from compiler_kernels.targets.c.writer import c_float
from compiler_kernels.targets.vector.vec import Vec


def applied(vec: Vec, function: Function, x: str) -> str:
    """``function`` of the vector ``x``, which is read once or is a variable. Those of ``IN_VECTORS`` only."""

    def op(kind: str, *operands: str, **attrs: Attr) -> str:
        return vec.expression(Op(f"op.{kind}", operands, "t", TensorType(()), make_attrs(attrs)), list(operands))

    name = function.name
    alpha, beta = vec.set1(c_float(function.alpha)), vec.set1(c_float(function.beta))
    if name == "affine":
        return op("add", op("mul", alpha, x), beta)
    if name == "scaled_tanh":
        return op("mul", alpha, op("tanh", op("mul", beta, x)))
    if name == "softsign":
        return op("div", x, op("add", vec.set1("1.0f"), op("abs", x)))
    if name in ("leaky_relu", "elu"):
        return op(name, x, alpha=function.alpha)
    if name == "hard_sigmoid":
        return op(name, x, alpha=function.alpha, beta=function.beta)
    return op(name, x)
