"""Pooling: emitters of ``t0`` for one output element, as in products.py."""

from __future__ import annotations

from math import prod

from compiler_kernels.arithmetic.order import SUM_LEAF
from compiler_kernels.ir.dtypes import DTYPES
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.products import axis_names
from compiler_kernels.targets.c.writer import (
    SUFFIX,
    Code,
    c_count,
    c_number,
    c_type,
    decode,
    linear,
    loop,
    root_of,
    strides,
)


def pool(function: Graph, code: Code) -> None:
    """MaxPool scans the window with an absent border; AveragePool sums window positions, leaf 64 and tree."""
    op = root_of(function)
    x = op.operands[0]
    x_dims = function.types()[x].dims
    axes = axis_names(len(x_dims) - 2)
    kernel, steps = op.ints("kernel"), op.ints("strides")
    dilations, pads = op.ints("dilations"), op.ints("pads")
    x_step, rank = strides(x_dims), len(axes)
    average = op.kind == "average_pool"
    include = average and bool(op.attr("count_include_pad"))
    positions = prod(kernel)
    tree = average and positions > SUM_LEAF
    dtype, ctype = op.out.dtype, c_type(op.out)
    suffix, zero = ("" if dtype == "float32" else "_f64"), c_number(0.0, dtype)
    code.add(*decode(op.out.dims), f"const {ctype} *xc = {x} + {linear([('i0', x_step[0]), ('i1', x_step[1])])};")
    for a, name in enumerate(axes):
        code.add(f"const int s{name} = {linear([(f'i{a + 2}', steps[a])], -pads[a])};")
    code.add(f"{ctype} acc = {zero};" if average else f"{ctype} best = {_lowest(dtype)};")
    if average:
        code.add("int count = 0;")
    if tree:
        code.add(f"ca1_tree{suffix} tree;", f"ca1_tree_init{suffix}(&tree);")
    with code.block(loop("k", positions)):
        if tree:
            code.add(f"if (k % {SUM_LEAF} == 0 && k > 0) {{ ca1_tree_push{suffix}(&tree, acc); acc = {zero}; }}")
        step = positions
        for a, name in enumerate(axes):
            step //= kernel[a]
            index = f"{f'k / {step}' if step > 1 else 'k'} % {kernel[a]}"
            code.add(f"const int x{name} = s{name} + ({index}) * {dilations[a]};")
        if include:
            inside = [f"x{n} >= {-pads[a]} && x{n} < {x_dims[a + 2] + pads[rank + a]}" for a, n in enumerate(axes)]
            code.add(f"if ({' && '.join(inside)}) count++;")
        for a, name in enumerate(axes):
            code.add(f"if (x{name} < 0 || x{name} >= {x_dims[a + 2]}) continue;")
        if average and not include:
            code.add("count++;")
        value = f"xc[{linear([(f'x{n}', x_step[a + 2]) for a, n in enumerate(axes)])}]"
        code.add(f"acc = acc + {value};" if average else f"best = {_maximum(dtype)}(best, {value});")
    if tree:
        code.add(f"ca1_tree_push{suffix}(&tree, acc);", f"acc = ca1_tree_sum{suffix}(&tree);")
    code.add(f"const {ctype} t0 = acc / ({ctype})count;" if average else f"const {ctype} t0 = best;")


def _lowest(dtype: str) -> str:
    """What the maximum of a window without elements is."""
    row = DTYPES[dtype]
    if row.kind != "float":
        return c_number(row.lowest, dtype)
    return "-__builtin_inff()" if dtype == "float32" else "-__builtin_inf()"


def _maximum(dtype: str) -> str:
    return "ca1_max_v1" if dtype == "float32" else f"ca1_max_{SUFFIX[dtype]}"


def global_pool(function: Graph, code: Code) -> None:
    """Mean or maximum over all spatial positions in row-major order."""
    op = root_of(function)
    x, ctype, dtype = op.operands[0], c_type(op.out), op.out.dtype
    count = prod(function.types()[x].dims[2:])
    code.add(f"const {ctype} *xc = {x} + i * {count};")
    if op.kind == "global_average_pool":
        suffix = "" if dtype == "float32" else "_f64"
        total = f"ca1_sum_positions{suffix}(xc, {count}, 1, CA1_PLAIN, {c_number(0.0, dtype)})"
        code.add(f"const {ctype} t0 = {total} / {c_count(count, dtype)};")
        return
    code.add(f"{ctype} best = {_lowest(dtype)};")
    code.add(f"for (int k = 0; k < {count}; k++) best = {_maximum(dtype)}(best, xc[k]);", f"const {ctype} t0 = best;")
