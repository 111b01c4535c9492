"""Resize of sizes known at compile time, by tables: an emitter of ``t0`` for one output element, as in products.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler_kernels.arithmetic.resize import AxisTable, TapTable, is_two_tap, resize_tables, tap_tables
from compiler_kernels.ir.dims import Size
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import Code, c_number, c_type, decode, linear, root_of, strides

FMA = {"float32": "ca1_fmaf", "float64": "ca1_fma64"}
Terms = list[tuple[str, Size]]


@dataclass(frozen=True)
class Taps:
    """One axis of a chain of taps as C text: how many, index and weight of tap ``k<axis>``; ``alone``, if given, says
    at run time that the axis is left alone."""

    axis: int
    count: str
    index: str
    weight: str
    alone: str = ""


def resize(function: Graph, code: Code) -> None:
    """Nested interpolation: an inner axis is finished, and rounded, before an outer axis uses it."""
    op = root_of(function)
    x, dtype = op.operands[0], op.out.dtype
    x_dims = function.types()[x].dims
    step = strides(x_dims)
    code.add(*decode(op.out.dims))
    two = is_two_tap(op)
    tables: Sequence[AxisTable | TapTable] = resize_tables(op, x_dims) if two else tap_tables(op, x_dims)
    moving = {t.axis for t in tables}
    fixed: Terms = [(f"i{a}", step[a]) for a in range(len(x_dims)) if a not in moving]
    if two:
        pairs = resize_tables(op, x_dims)
        for table in pairs:
            _two_tap_arrays(code, table, dtype)
        value = _interpolate(x, pairs, fixed, step, dtype)
    else:
        taps = []
        for row in tap_tables(op, x_dims):
            a, most = row.axis, max(map(len, row.index))
            counts = [str(len(r)) for r in row.index]
            index = [str(v) for r in row.index for v in (*r, *[0] * (most - len(r)))]
            weights = [c_number(v, dtype) for r in row.weights for v in (*r, *[0.0] * (most - len(r)))]
            code.add(
                f"static const int count{a}[] = {{{', '.join(counts)}}};",
                f"static const int at{a}[] = {{{', '.join(index or ['0'])}}};",
                f"static const {c_type(op.out)} w{a}[] = {{{', '.join(weights or ['0'])}}};",
            )
            place = f"[i{a} * {most} + k{a}]"
            taps.append(Taps(a, f"count{a}[i{a}]", f"at{a}{place}", f"w{a}{place}"))
        value = chain_taps(code, x, taps, fixed, step, dtype)
    outside = [t for t in tables if any(t.outside)]
    for moved in outside:
        code.add(f"const int out{moved.axis}[] = {{{', '.join('1' if o else '0' for o in moved.outside)}}};")
    if outside:
        test = " || ".join(f"out{t.axis}[i{t.axis}]" for t in outside)
        value = f"({test}) ? {c_number(op.float_('extrapolation_value'), dtype)} : {value}"
    code.add(f"const {c_type(op.out)} t0 = {value};")


def _two_tap_arrays(code: Code, table: AxisTable, dtype: str) -> None:
    axis, ctype = table.axis, "float" if dtype == "float32" else "double"
    code.add(f"const int low{axis}[] = {{{', '.join(map(str, table.low))}}};")
    if table.weight_low:
        lows, highs = (", ".join(c_number(w, dtype) for w in ws) for ws in (table.weight_low, table.weight_high))
        code.add(
            f"const int high{axis}[] = {{{', '.join(map(str, table.high))}}};",
            f"const {ctype} wl{axis}[] = {{{lows}}};",
            f"const {ctype} wh{axis}[] = {{{highs}}};",
        )


def _interpolate(x: str, tables: Sequence[AxisTable], terms: Terms, step: Sequence[int], dtype: str) -> str:
    """Expression of the value over ``tables`` (outermost first), with ``terms`` fixing the other axes."""
    if not tables:
        return f"{x}[{linear(terms)}]"
    table, rest = tables[0], tables[1:]
    a = table.axis
    low = _interpolate(x, rest, [*terms, (f"low{a}[i{a}]", step[a])], step, dtype)
    if not table.weight_low:
        return low
    high = _interpolate(x, rest, [*terms, (f"high{a}[i{a}]", step[a])], step, dtype)
    return f"{FMA[dtype]}(wh{a}[i{a}], {high}, wl{a}[i{a}] * {low})"


def chain_taps(code: Code, x: str, axes: Sequence[Taps], terms: Terms, step: Sequence[int], dtype: str) -> str:
    """Loops over the taps of ``axes`` (outermost first), each a chain from +0; the expression of the value."""
    if not axes:
        return f"{x}[{linear(terms)}]"
    tap = axes[0]
    a = tap.axis
    code.add(f"{'float' if dtype == 'float32' else 'double'} r{a} = 0;")
    with code.block(f"for (int k{a} = 0; k{a} < {tap.count}; k{a}++)"):
        inner = chain_taps(code, x, axes[1:], [*terms, (tap.index, step[a])], step, dtype)
        if tap.alone:
            code.add(f"const {'float' if dtype == 'float32' else 'double'} v{a} = {inner};")
            code.add(f"r{a} = {tap.alone} ? v{a} : {FMA[dtype]}({tap.weight}, v{a}, r{a});")
        else:
            code.add(f"r{a} = {FMA[dtype]}({tap.weight}, {inner}, r{a});")
    return f"r{a}"
