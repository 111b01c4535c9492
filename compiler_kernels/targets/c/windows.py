"""Pooling and resize: emitters of ``t0`` for one output element, as in products.py."""

from __future__ import annotations

from math import prod

from compiler_kernels.arithmetic.order import SUM_LEAF
from compiler_kernels.arithmetic.resize import AxisTable, resize_tables
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.products import axis_names
from compiler_kernels.targets.c.writer import Code, c_count, c_float, decode, linear, loop, root_of, strides


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
    code.add(*decode(op.out.dims), f"const float *xc = {x} + {linear([('i0', x_step[0]), ('i1', x_step[1])])};")
    for a, name in enumerate(axes):
        code.add(f"const int s{name} = {linear([(f'i{a + 2}', steps[a])], -pads[a])};")
    code.add("float acc = 0.0f;" if average else "float best = -__builtin_inff();")
    if average:
        code.add("int count = 0;")
    if tree:
        code.add("ca1_tree tree;", "ca1_tree_init(&tree);")
    with code.block(loop("k", positions)):
        if tree:
            code.add(f"if (k % {SUM_LEAF} == 0 && k > 0) {{ ca1_tree_push(&tree, acc); acc = 0.0f; }}")
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
        code.add(f"acc = acc + {value};" if average else f"best = ca1_max_v1(best, {value});")
    if tree:
        code.add("ca1_tree_push(&tree, acc);", "acc = ca1_tree_sum(&tree);")
    code.add("const float t0 = acc / (float)count;" if average else "const float t0 = best;")


def global_pool(function: Graph, code: Code) -> None:
    """Mean or maximum over all spatial positions in row-major order."""
    op = root_of(function)
    x = op.operands[0]
    count = prod(function.types()[x].dims[2:])
    code.add(f"const float *xc = {x} + i * {count};")
    if op.kind == "global_average_pool":
        code.add(f"const float t0 = ca1_sum_positions(xc, {count}, 1, CA1_PLAIN, 0.0f) / {c_count(count)};")
        return
    code.add("float best = -__builtin_inff();")
    code.add(f"for (int k = 0; k < {count}; k++) best = ca1_max_v1(best, xc[k]);", "const float t0 = best;")


def resize(function: Graph, code: Code) -> None:
    """Nested two-tap interpolation: an inner axis is finished, and rounded, before an outer axis uses it."""
    op = root_of(function)
    x = op.operands[0]
    x_dims = function.types()[x].dims
    x_step = strides(x_dims)
    tables = {t.axis: t for t in resize_tables(op, x_dims)}
    code.add(*decode(op.out.dims))
    for axis, table in tables.items():
        code.add(f"const int low{axis}[] = {{{', '.join(map(str, table.low))}}};")
        if table.weight_low:
            code.add(
                f"const int high{axis}[] = {{{', '.join(map(str, table.high))}}};",
                f"const float wl{axis}[] = {{{', '.join(map(c_float, table.weight_low))}}};",
                f"const float wh{axis}[] = {{{', '.join(map(c_float, table.weight_high))}}};",
            )
    fixed = [(f"i{a}", x_step[a]) for a in range(len(x_dims)) if a not in tables]
    expression = _interpolate(code, x, list(tables.values()), fixed, x_step)
    outside = [t for t in tables.values() if any(t.outside)]
    if outside:
        for table in outside:
            code.add(f"const int out{table.axis}[] = {{{', '.join('1' if o else '0' for o in table.outside)}}};")
        test = " || ".join(f"out{t.axis}[i{t.axis}]" for t in outside)
        expression = f"({test}) ? {c_float(op.float_('extrapolation_value'))} : {expression}"
    code.add(f"const float t0 = {expression};")


def _interpolate(code: Code, x: str, tables: list[AxisTable], terms: list[tuple[str, int]], step: list[int]) -> str:
    """Expression of the value over ``tables`` (outermost first), with ``terms`` fixing the other axes."""
    if not tables:
        return f"{x}[{linear(terms)}]"
    table, rest = tables[0], tables[1:]
    a = table.axis
    low = _interpolate(code, x, rest, [*terms, (f"low{a}[i{a}]", step[a])], step)
    if not table.weight_low:
        return low
    high = _interpolate(code, x, rest, [*terms, (f"high{a}[i{a}]", step[a])], step)
    return f"ca1_fmaf(wh{a}[i{a}], {high}, wl{a}[i{a}] * {low})"
