"""Expressions of elementwise operations; every one is a single CA-1 operation or a function of ca1_math.h."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.targets.c.writer import broadcast_index, c_float

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


def expression(op: Op, arguments: list[str]) -> str:
    """C expression of one elementwise operation over scalar ``arguments``."""
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


def body_lines(function: Graph, skip_root: bool, flat: str = "i") -> tuple[list[str], bool]:
    """Statements computing every temporary after the root (or from it), and whether coordinates are needed."""
    types: Mapping[str, TensorType] = function.types()
    params = {v.id for v in function.inputs}
    lines: list[str] = []
    needs_coordinates = False
    for op in function.ops[1:] if skip_root else function.ops:
        arguments = []
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
        lines.append(f"const float {op.result} = {expression(op, arguments)};")
    return lines, needs_coordinates
