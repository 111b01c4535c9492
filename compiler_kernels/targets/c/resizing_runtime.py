"""Resize whose sizes, scales or region are known at run time only: coordinates by runtime/ca1_resize.h.

An item is a row of the result along its last axis; what belongs to the other axes is computed once for the row.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any, Final

from compiler_kernels.arithmetic.resize import binary32
from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.dims import Size
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.targets.c.elementwise import body_lines
from compiler_kernels.targets.c.resizing import FMA, Taps, Terms, chain_taps
from compiler_kernels.targets.c.runtime_checks import refuse
from compiler_kernels.targets.c.sizes import most
from compiler_kernels.targets.c.writer import SUFFIX, Code, c_float, c_number, c_type, decode, linear, root_of, strides

MOST_TAPS: Final = 4096
"""Weights of one output along one axis, which a kernel keeps on its stack."""
_LIMIT: Final = 1 << 24
_NEAREST: Final = {
    "round_prefer_floor": "CA1_PREFER_FLOOR",
    "round_prefer_ceil": "CA1_PREFER_CEIL",
    "floor": "CA1_FLOOR",
    "ceil": "CA1_CEIL",
}


def items(function: Graph) -> Any:
    """Rows along the last axis, at least one, which checks."""
    rows: Size = prod(root_of(function).out.dims[:-1])
    return max(1, rows) if isinstance(rows, int) else rows


def resize(function: Graph, code: Code) -> None:
    """``resize`` of symbolic sizes, and ``resize_by``."""
    op, types = root_of(function), function.types()
    x, dtype = op.operands[0], op.out.dtype
    dims, out = types[x].dims, op.out.dims
    step, last = strides(dims), len(out) - 1
    regions = types[op.operands[2]].count // 2 if len(op.operands) > 2 and op.operands[2] else 0
    axes = _setup(op, dims, regions, code)
    if op.out.is_static and op.out.count == 0:
        return
    code.add("const int row = i;", *decode(out[:-1], flat="row"))
    fixed: Terms = [(f"i{a}", step[a]) for a in range(len(out)) if a not in axes]
    for a in axes:
        if a != last:
            code.add(*_along(op, a, dims[a], out[a]))
    with code.block(f"for (int i{last} = 0; i{last} < {out[last]}; i{last}++)"):
        code.add(f"const int i = row * {out[last]} + i{last};")
        if last in axes:
            code.add(*_along(op, last, dims[last], out[last]))
        value = _value(op, x, axes, fixed, step, dims, code)
        if op.str_("coordinate_mode") == "tf_crop_and_resize" and axes:
            test = " || ".join(f"outside{a}" for a in axes)
            value = f"({test}) ? {c_number(op.float_('extrapolation_value'), dtype)} : {value}"
        code.add(f"const {c_type(op.out)} t0 = {value};", *body_lines(function, skip_root=True)[0])
        code.add(f"y[i] = {function.ops[-1].result};")


def _setup(op: Op, dims: tuple[int, ...], regions: int, code: Code) -> list[int]:
    """``ca1_axis a<axis>`` of every axis that may move, outermost first, and the checks of run-time operands, of which
    the roi has ``regions`` begins before as many ends."""
    out, mode, rank = op.out.dims, op.str_("coordinate_mode"), len(dims)
    crop, cubic = mode == "tf_crop_and_resize", op.str_("mode") == "cubic"
    by = op.kind == "resize_by"
    named = list(zip(op.ints("entries"), op.ints("axes"), strict=True)) if by else [(a, a) for a in range(rank)]
    scale_operand, roi_operand = (*op.operands, "", "")[1:3] if by else ("", "")
    scales = () if by else op.floats("scales")
    roi = () if by else op.floats("roi")
    found = []
    if by:
        code.add("int bad = 0;")
    for k, a in named:
        n, m = dims[a], out[a]
        if most(n) >= _LIMIT or most(m) >= _LIMIT:
            raise UnsupportedError(f"operator {op.kind}: axis {a} has {_LIMIT} elements or more")
        span = roi[a : a + rank + 1 : rank] if roi else ()
        scale = Fraction(binary32(scales[a])) if scales else None
        if not by and str(n) == str(m) and scale in (None, 1) and span in ((), (0.0, 1.0)):
            continue
        if scale is not None and not Fraction(1, 1 << 14) <= scale <= 1 << 14:
            raise UnsupportedError(f"operator resize: scale {float(scale)} of symbolic sizes is outside [2^-14, 2^14]")
        found.append(a)
        p, q = (f"INT64_C({scale.numerator})", f"INT64_C({scale.denominator})") if scale else (str(m), str(n))
        if scale_operand:
            code.add(f"int64_t up{a}, down{a};", f"bad |= !ca1_scale({scale_operand}[{k}], &up{a}, &down{a});")
            p, q = f"up{a}", f"down{a}"
        kind = "CA1_HALF_PIXEL" if crop else f"CA1_{mode.upper()}"
        code.add(f"ca1_axis a{a} = ca1_axis_of({kind}, {n}, {m}, {p}, {q});")
        begin, end = (c_float(span[0]), c_float(span[1])) if span else ("0.0f", "1.0f")
        if roi_operand:
            begin, end = f"{roi_operand}[{k}]", f"{roi_operand}[{regions + k}]"
        if crop:
            good = f"ca1_axis_crop(&a{a}, {begin}, {end})"
            if not by and any((Fraction(binary32(v)) * 2**40).denominator != 1 or abs(v) >= 1024 for v in span):
                raise UnsupportedError("operator resize: a roi of symbolic sizes must be multiples of 2^-40 below 1024")
            code.add(f"bad |= !{good};" if by else f"(void){good};")
        if cubic:
            fits = f"ca1_axis_cubic(&a{a}, {int(_antialias(op))})"
            if by:
                code.add(f"bad |= !{fits};")
            elif crop or most(n) * most(m) >= 1 << 30 or (scale and 2 * max(scale.as_integer_ratio()) >= 1 << 30):
                raise UnsupportedError("operator resize: cubic weights of these symbolic sizes do not fit 128 bits")
        if scale_operand:
            factor = f" * ({end} - {begin})" if crop else ""
            code.add(f"const float s{a} = (float){n}{factor} * {scale_operand}[{k}];")
            # NaN and what is too large for an integer end in the first comparison
            floor = f"!(s{a} >= {c_float(float(m))} && s{a} < {c_float(float(m + 1))})"
            half = f"__builtin_fabs((double){n} * (double){scale_operand}[{k}] - {float(m)}) > 0.5005"
            code.add(f"bad |= {half if op.attr('rounded') else floor};")
    if by:
        code.add(*(f"if (bad) a{a} = ca1_axis_of(CA1_ASYMMETRIC, {dims[a]}, {out[a]}, 1, 1);" for a in found))
        refuse(code, "bad && i == 0", op.str_("message"))
    return sorted(found)


def _antialias(op: Op) -> bool:
    return bool(op.has("antialias") and op.attr("antialias"))


def _along(op: Op, a: int, n: Size, m: Size) -> list[str]:
    """Statements that find what output ``i<a>`` reads along axis ``a``."""
    mode, real = op.str_("mode"), c_type(op.out)
    lines = []
    if op.str_("coordinate_mode") == "tf_crop_and_resize":
        lines.append(f"const int outside{a} = !a{a}.alone && ca1_axis_outside(&a{a}, i{a});")
    if mode == "nearest":
        return [*lines, f"const int at{a} = ca1_axis_nearest(&a{a}, i{a}, {_NEAREST[op.str_('nearest_mode')]});"]
    suffix = SUFFIX[op.out.dtype]
    if mode == "linear" and not _antialias(op):
        return [
            *lines,
            f"{real} w{a}[2];",
            f"const int low{a} = ca1_axis_linear_{suffix}(&a{a}, i{a}, w{a});",
            f"const int high{a} = low{a} + 1 < {n} ? low{a} + 1 : low{a};",
        ]
    cubic = mode == "cubic"
    coefficient = Fraction(binary32(op.float_("cubic_coefficient"))) if cubic else Fraction(0)
    room = taps_at_most(op, a, n, m)
    given = [int(cubic), int(_antialias(op)), int(bool(op.attr("exclude_outside")))]
    ratio = [f"INT64_C({coefficient.numerator})", f"INT64_C({coefficient.denominator})"]
    if max(abs(coefficient.numerator), coefficient.denominator) >= 1 << 27:
        raise UnsupportedError(f"operator {op.kind}: cubic coefficient {float(coefficient)} at run-time sizes")
    arguments = ", ".join(map(str, [f"&a{a}", f"i{a}", *given, *ratio, room, f"&first{a}", f"w{a}"]))
    return [
        *lines,
        f"int first{a};",
        f"{real} w{a}[{room}];",
        f"int count{a} = ca1_axis_taps_{suffix}({arguments});",
        f"if (a{a}.alone) first{a} = i{a}, count{a} = 1;",
    ]


def taps_at_most(op: Op, a: int, n: Size, m: Size) -> int:
    """Most taps of one output along axis ``a``; ``UnsupportedError`` beyond what a kernel keeps."""
    if not _antialias(op):
        return 4
    scales = () if op.kind == "resize_by" else op.floats("scales")
    if scales:
        stretch = 1 / Fraction(binary32(scales[a]))
    elif op.kind == "resize_by" and isinstance(m, int):
        stretch = Fraction(1000 * most(n), 1000 * m - 501)  # the scale gives m elements, at worst rounded up
    else:
        stretch = Fraction(most(n), m if isinstance(m, int) else 1)
    reach = (2 if op.str_("mode") == "cubic" else 1) * max(stretch, Fraction(1))
    room = 2 * int(reach) + 3
    if room > MOST_TAPS:
        raise UnsupportedError(f"operator {op.kind}: antialias over {room} elements; bound the sizes of axis {a}")
    return room


def _value(op: Op, x: str, axes: list[int], fixed: Terms, step: list[int], dims: tuple[int, ...], code: Code) -> str:
    if op.str_("mode") == "nearest":
        return f"{x}[{linear([*fixed, *((f'at{a}', step[a]) for a in axes)])}]"
    if op.str_("mode") == "linear" and not _antialias(op):
        return _linear(op.out.dtype, x, axes, fixed, step, code)
    taps = [Taps(a, f"count{a}", f"ca1_within(first{a} + k{a}, {dims[a]})", f"w{a}[k{a}]", f"a{a}.alone") for a in axes]
    return chain_taps(code, x, taps, fixed, step, op.out.dtype)


def _linear(dtype: str, x: str, axes: list[int], terms: Terms, step: list[int], code: Code) -> str:
    """The name of the value over ``axes``; the corners are combined from the innermost axis outwards."""
    real = "float" if dtype == "float32" else "double"

    def corner(rest: list[int], at: Terms, name: str) -> str:
        if not rest:
            return f"{x}[{linear(at)}]"
        a = rest[0]
        low = corner(rest[1:], [*at, (f"low{a}", step[a])], name + "a")
        high = corner(rest[1:], [*at, (f"high{a}", step[a])], name + "b")
        code.add(f"const {real} {name}l = {low};")
        code.add(f"const {real} {name} = a{a}.alone ? {name}l : {FMA[dtype]}(w{a}[1], {high}, w{a}[0] * {name}l);")
        return name

    return corner(axes, terms, "v")
