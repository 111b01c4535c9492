"""Reductions of every element type over any axes: emitters of ``t0`` for one result element.

Sums and products of floating-point values follow section 4 of docs/arithmetic.md; integers wrap, so their order does
not matter; the maximum and minimum keep the first of equal values.
"""

from __future__ import annotations

from math import prod
from typing import Final

from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.targets.c.rows import in_lanes
from compiler_kernels.targets.c.writer import (
    SUFFIX,
    Code,
    c_count,
    c_number,
    c_type,
    decode,
    is_one,
    linear,
    loop,
    root_of,
    strides,
)

_SUMS: Final = {"reduce_sum": "", "reduce_mean": "", "reduce_prod": "_product"}


def reduce(function: Graph, code: Code) -> None:
    """``t0``: the sum, mean, product, maximum or minimum over ``axes``."""
    op = root_of(function)
    x = op.operands[0]
    dims, dtype, axes = function.types()[x].dims, op.out.dtype, op.ints("axes")
    kept = [a for a in range(len(dims)) if a not in axes]
    step, count = strides(dims), prod(dims[a] for a in axes)
    ctype, row = c_type(op.out), DTYPES[dtype]
    code.add(*decode([dims[a] for a in kept]))
    code.add(f"const {ctype} *xb = {x} + {linear([(f'i{n}', step[a]) for n, a in enumerate(kept)])};")
    inner = strides([dims[a] for a in axes])
    terms = [(f"({'k' if is_one(s) else f'k / {s}'} % {dims[a]})", step[a]) for a, s in zip(axes, inner, strict=True)]
    contiguous = axes == tuple(range(len(dims) - len(axes), len(dims)))
    value = "xb[k]" if contiguous else f"xb[{linear(terms)}]"
    lanes = in_lanes(op, len(dims))
    if row.kind != "float":
        _exact(op, dtype, count, value, code)
    elif op.kind not in _SUMS:
        _extreme(op, dtype, count, value, lanes, code)
    else:
        name, suffix = _SUMS[op.kind], "" if dtype == "float32" else "_f64"
        if contiguous and name:
            order = "lanes" if lanes else "positions"
            code.add(f"const {ctype} total = ca1_product_{order}{suffix}(xb, {count}{'' if lanes else ', 1'});")
        elif contiguous:
            order = f"lanes{suffix}(xb, {count}" if lanes else f"positions{suffix}(xb, {count}, 1"
            code.add(f"const {ctype} total = ca1_sum_{order}, CA1_PLAIN, {c_number(0.0, dtype)});")
        else:
            _tree(f"{name}{suffix}", ctype, count, value, code)
    if op.kind != "reduce_mean":
        code.add(f"const {ctype} t0 = total;")
    elif row.kind == "float":
        code.add(f"const {ctype} t0 = total / {c_count(count, dtype)};")
    else:
        code.add(f"const {ctype} t0 = ca1_div_{SUFFIX[dtype]}(total, ({ctype}){count});")


def _exact(op: Op, dtype: str, count: int, value: str, code: Code) -> None:
    """Integers and bool, in which order does not matter."""
    row, suffix = DTYPES[dtype], SUFFIX[dtype]
    if dtype == "bool":
        sign, begin = ("|", 0) if op.kind == "reduce_max" else ("&", 1)
        code.add(f"uint8_t total = {begin};", f"{loop('k', count)} total = total {sign} ({value} != 0);")
        return
    begins = {"reduce_max": row.lowest, "reduce_min": row.highest, "reduce_prod": 1}
    function = {"reduce_max": "max", "reduce_min": "min", "reduce_prod": "mul"}.get(op.kind, "add")
    code.add(
        f"{row.c} total = {c_number(begins.get(op.kind, 0), dtype)};",
        f"{loop('k', count)} total = ca1_{function}_{suffix}(total, {value});",
    )


def _extreme(op: Op, dtype: str, count: int, value: str, lanes: bool, code: Code) -> None:
    name, sign = ("max", "-") if op.kind == "reduce_max" else ("min", "")
    pick = f"ca1_{name}_v1" if dtype == "float32" else f"ca1_{name}_f64"
    ctype, absent = DTYPES[dtype].c, f"{sign}__builtin_inf{'f' if dtype == 'float32' else ''}()"
    if not lanes:
        code.add(f"{ctype} total = {absent};", f"{loop('k', count)} total = {pick}(total, {value});")
        return
    code.add(f"{ctype} lane[16];", f"for (int j = 0; j < 16; j++) lane[j] = {absent};")
    code.add(f"{loop('k', count)} lane[k % 16] = {pick}(lane[k % 16], {value});")
    with code.block("for (int apart = 8; apart >= 1; apart /= 2)"):
        code.add(f"for (int j = 0; j < apart; j++) lane[j] = {pick}(lane[j], lane[j + apart]);")
    code.add(f"const {ctype} total = lane[0];")


def _tree(suffix: str, ctype: str, count: int, value: str, code: Code) -> None:
    """Positions of several axes in row-major order."""
    sign, begin = ("*", "1") if "product" in suffix else ("+", "0")
    code.add(f"ca1_tree{suffix} tree;", f"ca1_tree_init{suffix}(&tree);")
    with code.block(f"for (int first = 0; first < {count}; first += 64)"):
        code.add(f"{ctype} acc = {begin};")
        code.add(f"for (int k = first; k < first + 64 && k < {count}; k++) acc = acc {sign} {value};")
        code.add(f"ca1_tree_push{suffix}(&tree, acc);")
    code.add(f"const {ctype} total = ca1_tree_sum{suffix}(&tree);")
