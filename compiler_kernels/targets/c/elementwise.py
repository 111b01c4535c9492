"""Expressions of elementwise operations; every one is a single CA-1 operation or a function of ca1_math.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.dtypes import DTYPES, HALVES
from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.targets.c.elementwise_more import further_expression
from compiler_kernels.targets.c.writer import SUFFIX, broadcast_index, c_float, c_number, c_type

_UNARY: Final = {
    "relu": "ca1_relu_v1({0})",
    "sigmoid": "ca1_sigmoid({0})",
    "tanh": "ca1_tanh({0})",
    "erf": "ca1_erf({0})",
    "exp": "ca1_exp({0})",
    "log": "ca1_log({0})",
    "sqrt": "ca1_sqrt_v1({0})",
    "neg": "-{0}",
    "abs": "ca1_abs_v1({0})",
    "reciprocal": "1.0f / {0}",
    "floor": "__builtin_floorf({0})",
    "ceil": "__builtin_ceilf({0})",
    "hard_swish": "ca1_hard_swish({0})",
    "softplus": "ca1_softplus({0})",
}
_BINARY: Final = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "min": "ca1_min_v1({0}, {1})",
    "max": "ca1_max_v1({0}, {1})",
    "pow": "ca1_pow({0}, {1})",
    "prelu": "ca1_leaky_relu_v1({0}, {1})",
}


_COMPARISON: Final = {
    "equal": "==",
    "less": "<",
    "less_or_equal": "<=",
    "greater": ">",
    "greater_or_equal": ">=",
    "logical_and": "&",
    "logical_or": "|",
    "logical_xor": "^",
}
# Operations with a function for every computed type but binary32 in runtime/ca1_typed.h.
_TYPED: Final = frozenset("add sub mul div neg abs relu max min".split())
_WIDE: Final = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "sqrt": "__builtin_sqrt({0})",
    "reciprocal": "1.0 / {0}",
    "floor": "__builtin_floor({0})",
    "ceil": "__builtin_ceil({0})",
}
"""binary64: operations that are one C expression."""


def cast_expression(x: str, source: str, target: str) -> str:
    """Integers wrap; floating-point values round to nearest even, or truncate and saturate to an integer; anything but
    zero is true. Conversions to and from the half types pass through binary64, exactly where the source is one."""
    if source == target:
        return x
    rows = DTYPES[source], DTYPES[target]
    if rows[0].kind != "float" and rows[1].kind in ("int", "uint"):
        return f"({rows[1].c}){x}"
    if rows[1].kind == "bool" and rows[0].kind != "float":
        return f"({x} != 0)"
    if target == "float32" and rows[0].kind != "float":
        return f"(float){x}"
    wide = f"ca1_from_{SUFFIX[source]}({x})" if source in HALVES else f"(double){x}"
    return f"ca1_to_{SUFFIX[target]}({wide})"


def expression(op: Op, arguments: list[str], dtype: str = "float32") -> str:
    """C expression of one elementwise operation over scalar ``arguments`` of element type ``dtype`` (for ``where``, of
    the values)."""
    if op.kind in _COMPARISON:
        return f"({arguments[0]} {_COMPARISON[op.kind]} {arguments[1]})"
    if op.kind == "logical_not":
        return f"!{arguments[0]}"
    if op.kind == "where":
        return f"({arguments[0]} ? {arguments[1]} : {arguments[2]})"
    if op.kind == "quantize":
        steps = f"__builtin_rintf({arguments[0]} / {arguments[1]})"
        zero = f" + (float){arguments[2]}" if len(arguments) > 2 else ""
        return f"ca1_near_{SUFFIX[op.out.dtype]}({steps}{zero})"
    if op.kind == "dequantize":
        value = f"((float){arguments[0]} - (float){arguments[2]})" if len(arguments) > 2 else f"(float){arguments[0]}"
        return f"{value} * {arguments[1]}"
    if op.kind == "cast":
        return cast_expression(arguments[0], dtype, op.out.dtype)
    found = further_expression(op, arguments, dtype)
    if found:
        return found
    if dtype != "float32":
        return _typed(op, arguments, dtype)
    if op.kind in _UNARY:
        return _UNARY[op.kind].format(*arguments)
    if op.kind in _BINARY:
        return _BINARY[op.kind].format(*arguments)
    x = arguments[0]
    if op.kind == "leaky_relu":
        return f"ca1_leaky_relu_v1({x}, {c_float(op.float_('alpha'))})"
    if op.kind == "elu":
        return f"ca1_elu({x}, {c_float(op.float_('alpha'))})"
    if op.kind == "hard_sigmoid":
        return f"ca1_hard_sigmoid_v1({x}, {c_float(op.float_('alpha'))}, {c_float(op.float_('beta'))})"
    if op.kind == "gelu":
        return f"ca1_gelu_tanh({x})" if op.str_("approximate") == "tanh" else f"ca1_gelu({x})"
    if op.kind == "clip":
        text = x
        if op.has("lo"):
            text = f"ca1_max_v1({text}, {c_float(op.float_('lo'))})"
        if op.has("hi"):
            text = f"ca1_min_v1({text}, {c_float(op.float_('hi'))})"
        return text
    if op.kind == "affine":
        return f"ca1_fmaf({x}, {arguments[1]}, {arguments[2]})"
    raise AssertionError(f"not elementwise: {op.kind}")


def _typed(op: Op, arguments: list[str], dtype: str) -> str:
    """An operation on integers or binary64 values."""
    if op.kind == "affine":
        return f"ca1_fma64({', '.join(arguments)})"
    if dtype == "float64" and op.kind in _WIDE:
        return _WIDE[op.kind].format(*arguments)
    if op.kind in _TYPED:
        return f"ca1_{op.kind}_{SUFFIX[dtype]}({', '.join(arguments)})"
    if op.kind == "clip":
        text = arguments[0]
        for key, function in (("lo", "max"), ("hi", "min")):
            if op.has(key):
                text = f"ca1_{function}_{SUFFIX[dtype]}({text}, {c_number(op.number(key), dtype)})"
        return text
    raise UnsupportedError(f"operator {op.kind} has no kernel for {dtype}")


def body_lines(function: Graph, skip_root: bool, flat: str = "i") -> tuple[list[str], bool]:
    """Statements computing every temporary after the root (or from it), and whether coordinates are needed."""
    types: Mapping[str, TensorType] = function.types()
    params = {v.id for v in function.inputs}
    lines: list[str] = []
    needs_coordinates = False
    for op in function.ops[1:] if skip_root else function.ops:
        arguments = []
        dtype = types[op.operands[-1]].dtype
        for position, operand in enumerate(op.operands):
            if operand not in params:
                arguments.append(operand)
                continue
            ttype = types[operand]
            if op.kind == "affine" and position > 0:
                ttype = TensorType((ttype.dims[0], *[1] * (len(op.out.dims) - 2)))
            index = broadcast_index(ttype, op.out, flat=flat)
            needs_coordinates |= index not in (flat, "0")
            arguments.append(f"{operand}[{index}]")
        lines.append(f"const {c_type(op.out)} {op.result} = {expression(op, arguments, dtype)};")
    return lines, needs_coordinates
