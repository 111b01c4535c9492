"""Expressions over runtime/ca1_double.h and ca1_whole.h: binary64 functions, remainders, signs and bits."""

from __future__ import annotations

from typing import Final

from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import Op
from compiler_kernels.targets.c.writer import SUFFIX, c_number

# Functions named ca1_<op> in binary32 and ca1_<op>_f64 in binary64.
_BOTH: Final = frozenset("sin cos tan asin acos atan sinh cosh asinh acosh atanh round sign".split())
# Functions that binary32 has elsewhere (ca1_math.h).
_BINARY64: Final = frozenset("sigmoid tanh erf exp log hard_swish softplus pow".split())
_PARAMETERS: Final = {"leaky_relu": ("alpha",), "elu": ("alpha",), "hard_sigmoid": ("alpha", "beta")}
_BITS: Final = {"bit_and": "&", "bit_or": "|", "bit_xor": "^"}


def further_expression(op: Op, arguments: list[str], dtype: str) -> str:
    """C expression of ``op`` over scalar ``arguments`` of element type ``dtype``; empty for other operations."""
    x, row, kind = arguments[0], DTYPES[dtype], op.kind
    integer = row.kind in ("int", "uint")
    listed = ", ".join(arguments)
    if kind in _BITS:
        return f"({row.c})({arguments[0]} {_BITS[kind]} {arguments[1]})"
    if kind == "bit_not":
        return f"({row.c})~{x}"
    if kind == "bit_cast":
        return bit_cast_expression(x, dtype, op.out.dtype)
    if kind == "is_nan":
        return f"({x} != {x})"
    if kind == "is_inf":
        infinity = c_number(float("inf"), dtype)
        tests = [f"{x} == {s}{infinity}" for s, key in (("", "positive"), ("-", "negative")) if dict(op.attrs)[key]]
        return f"({' || '.join(tests)})" if tests else f"({x} != {x} && 0)"
    if kind == "mod":
        name = "fmod" if dict(op.attrs)["fmod"] else "mod"
        return f"ca1_{name}({listed})" if dtype == "float32" else f"ca1_{name}_{SUFFIX[dtype]}({listed})"
    if kind in _BOTH:
        return f"ca1_{kind}({x})" if dtype == "float32" else f"ca1_{kind}_{SUFFIX[dtype]}({x})"
    if kind.startswith("shift_") or (kind == "pow" and integer):
        return f"ca1_{kind}_{SUFFIX[dtype]}({listed})"
    if dtype != "float64":
        return ""
    if kind in _BINARY64:
        return f"ca1_{kind}_f64({listed})"
    if kind in _PARAMETERS:
        parameters = ", ".join(c_number(op.float_(key), dtype) for key in _PARAMETERS[kind])
        return f"ca1_{kind}_f64({x}, {parameters})"
    if kind == "prelu":
        return f"ca1_leaky_relu_f64({listed})"
    if kind == "gelu":
        return f"ca1_gelu_tanh_f64({x})" if op.str_("approximate") == "tanh" else f"ca1_gelu_f64({x})"
    return ""


def bit_cast_expression(x: str, source: str, target: str) -> str:
    """The same bits in another type of that width; anything but zero is true."""
    if target == "bool":
        return f"({x} != 0)"
    if source in ("float32", "float64"):
        x = f"ca1_bits_{SUFFIX[source]}({x})"
    if target in ("float32", "float64"):
        width = 8 * DTYPES[target].nbytes
        return f"ca1_number_{SUFFIX[target]}((uint{width}_t){x})"
    return f"({DTYPES[target].c}){x}"
