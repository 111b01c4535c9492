"""Ordering, scanning and counting: TopK, ArgMax, cumulative sums, NonZero, Unique, NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.products import axis_names
from compiler_kernels.targets.c.writer import (
    SUFFIX,
    Code,
    c_number,
    c_type,
    decode,
    is_one,
    linear,
    loop,
    root_of,
    strides,
)


def _line(function: Graph) -> tuple[int, int, int]:
    """Lines of the first operand along ``axis``: elements before the axis, along it, behind it."""
    op = root_of(function)
    dims, axis = function.types()[op.operands[0]].dims, op.int_("axis")
    return prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :])


def lines(function: Graph) -> int:
    before, _, inner = _line(function)
    return before * inner


def _start(size: int, inner: int) -> str:
    """Where line ``i`` of lines of ``size`` elements begins."""
    return f"i * {size}" if is_one(inner) else f"(i / {inner}) * {size * inner} + i % {inner}"


def topk_indices(function: Graph, code: Code) -> None:
    """Item ``i`` is one line along the axis; its result row is also the heap."""
    op = root_of(function)
    x, (_, size, inner) = op.operands[0], _line(function)
    k, descending = op.int_("k"), int(bool(op.attr("largest")))
    suffix = SUFFIX[function.types()[x].dtype]
    code.add(
        f"ca1_first_{suffix}({x} + {_start(size, inner)}, {size}, {inner}, 1, {descending}, {k}, "
        f"y + {_start(k, inner)}, {inner});"
    )


def sort_rows(function: Graph, code: Code) -> None:
    """All rows in ascending order: one item."""
    op = root_of(function)
    x = function.types()[op.operands[0]]
    rows, columns = x.dims
    code.add(f"ca1_first_{SUFFIX[x.dtype]}({op.operands[0]}, {rows}, {columns}, {columns}, 0, {rows}, y, 1);")


def arg_extreme(function: Graph, code: Code) -> None:
    """Index of the largest or smallest element of a line; NaN counts as either."""
    op = root_of(function)
    x, (_, size, inner) = op.operands[0], _line(function)
    ttype = function.types()[x]
    suffix = SUFFIX[ttype.dtype]
    code.add(f"const {c_type(ttype)} *line = {x} + {_start(size, inner)};", "int64_t t0 = 0;")
    with code.block(f"for (int k = 1; k < {size}; k++)"):
        step = "" if is_one(inner) else f" * {inner}"
        code.add(f"const {c_type(ttype)} a = line[k{step}], b = line[t0{step}];")
        better = "a > b" if op.kind == "arg_max" else "a < b"
        test = f"{better} || (a != a && b == b)"
        if op.attr("select_last"):
            test += f" || ca1_level_{suffix}(a, b)"
        code.add(f"if ({test}) t0 = k;")


def scan(function: Graph, code: Code) -> None:
    """Item ``i`` is one line: running sums or products, each element added to the sum of those before it."""
    op = root_of(function)
    x, (_, size, inner) = op.operands[0], _line(function)
    dtype, ctype = op.out.dtype, c_type(op.out)
    sums = op.kind == "cum_sum"
    sign = "+" if sums else "*"
    plain = dtype in ("float32", "float64")
    following = f"acc {sign} line[at]" if plain else f"ca1_{'add' if sums else 'mul'}_{SUFFIX[dtype]}(acc, line[at])"
    place = "k" if not op.attr("reverse") else f"({size - 1} - k)"
    code.add(f"const {ctype} *line = {x} + {_start(size, inner)};", f"{ctype} *out = y + {_start(size, inner)};")
    code.add(f"{ctype} acc = {c_number(0 if sums else 1, dtype)};")
    with code.block(loop("k", size)):
        code.add(f"const int at = {place}{'' if is_one(inner) else f' * {inner}'};")
        if op.attr("exclusive"):
            code.add("out[at] = acc;")
        code.add(f"acc = k == 0 ? line[at] : ({ctype})({following});")
        if not op.attr("exclusive"):
            code.add("out[at] = acc;")


def one_item(function: Graph) -> int:
    return 1


def nonzero(function: Graph, code: Code) -> None:
    """Coordinates of the elements that are not zero in row-major order, one row per axis; the rest is 0."""
    op = root_of(function)
    x = op.operands[0]
    dims = function.types()[x].dims or (1,)
    count = prod(dims)
    code.add("int found = 0;")
    with code.block(loop("e", count)):
        code.add(f"if ({x}[e] == 0) continue;")
        code.add(*decode(dims, "c", "e"))
        code.add(*(f"y[{a * count} + found] = c{a};" for a in range(len(dims))), "found++;")
    code.add(f"for (int e = found; e < {count}; e++)")
    code.add(f"    for (int a = 0; a < {len(dims)}; a++) y[a * {count} + e] = 0;")


def count_nonzero(function: Graph, code: Code) -> None:
    op = root_of(function)
    count = function.types()[op.operands[0]].count
    code.add("int64_t t0 = 0;", f"for (int e = 0; e < {count}; e++) t0 += {op.operands[0]}[e] != 0;")


def compact(function: Graph, code: Code) -> None:
    """The elements within the first ``sizes`` of every axis, one after another in row-major order; the rest is 0."""
    op = root_of(function)
    x, sizes = op.operands
    dims, step = op.out.dims, strides(op.out.dims)
    code.add("int total = 1, rest = i, at = 0;")
    for a in reversed(range(len(dims))):
        code.add(f"const int s{a} = (int)ca1_start({sizes}[{a}], {dims[a]});")
        code.add(f"total *= s{a};", f"if (s{a} > 0) {{ at += rest % s{a} * {step[a]}; rest /= s{a}; }}")
    code.add(f"const {c_type(op.out)} t0 = i < total ? {x}[at] : 0;")


def max_pool_indices(function: Graph, code: Code) -> None:
    """Where the maximum of the window lies, counted through all of x; the first of equal ones, the first NaN."""
    op = root_of(function)
    x = op.operands[0]
    dims = function.types()[x].dims
    axes, step = axis_names(len(dims) - 2), strides(dims)
    kernel, jump, dilations, pads = (op.ints(key) for key in ("kernel", "strides", "dilations", "pads"))
    positions = prod(kernel)
    code.add(*decode(op.out.dims), f"const int plane = {linear([('i0', step[0]), ('i1', step[1])])};")
    code.add("float best = 0.0f;", "int64_t t0 = -1;")
    with code.block(loop("k", positions)):
        inner = positions
        for a, name in enumerate(axes):
            inner //= kernel[a]
            index = f"{f'k / {inner}' if inner > 1 else 'k'} % {kernel[a]}"
            code.add(f"const int x{name} = {linear([(f'i{a + 2}', jump[a])], -pads[a])} + ({index}) * {dilations[a]};")
            code.add(f"if (x{name} < 0 || x{name} >= {dims[a + 2]}) continue;")
        code.add(f"const float value = {x}[plane + {linear([(f'x{n}', step[a + 2]) for a, n in enumerate(axes)])}];")
        code.add("if (t0 >= 0 && !(value > best || (value != value && best == best))) continue;", "best = value;")
        if op.attr("column_major"):
            spatial = [prod(dims[2 : a + 2]) for a in range(len(axes))]
            index = linear([(f"x{n}", spatial[a]) for a, n in enumerate(axes)])
        else:
            index = linear([(f"x{n}", step[a + 2]) for a, n in enumerate(axes)])
        code.add(f"t0 = plane + {index};")


def suppression_items(function: Graph) -> int:
    batch, classes, _ = root_of(function).out.dims
    return batch * classes


def non_max_suppression(function: Graph, code: Code) -> None:
    """Item ``i`` is one class of one image: boxes in their order, each kept unless one kept before overlaps it."""
    op = root_of(function)
    boxes, scores, order, most, overlap, lowest = (*op.operands, *[""] * (6 - len(op.operands)))
    _, classes, limit = op.out.dims
    count = function.types()[boxes].dims[1]
    code.add(
        f"const float *box = {boxes} + (i / {classes}) * {4 * count}, *score = {scores} + i * {count};",
        f"const int64_t *sorted = {order} + i * {count};",
        f"int64_t *out = y + i * {limit};",
        f"const int64_t most = {f'{most}[0] < {limit} ? {most}[0] : {limit}' if most else limit};",
        f"const float overlap = {f'{overlap}[0]' if overlap else '0.0f'};",
        "int kept = 0;",
    )
    with code.block(f"for (int k = 0; k < {count} && kept < most; k++)"):
        code.add(f"const int b = ca1_read_at(sorted[k], {count});")
        if lowest:
            code.add(f"if (!(score[b] > {lowest}[0])) continue;")
        code.add("int free = 1;")
        center = int(bool(op.attr("center_point")))
        with code.block("for (int s = 0; s < kept && free; s++)"):
            code.add(f"free = !ca1_overlap(box + 4 * b, box + 4 * out[s], {center}, overlap);")
        code.add("if (free) out[kept++] = b;")
    code.add(f"for (int k = kept; k < {limit}; k++) out[k] = -1;")
    if not lowest:
        code.add("(void)score;")


POINT: Final[Mapping[str, Callable[[Graph, Code], None]]] = {
    "arg_max": arg_extreme,
    "arg_min": arg_extreme,
    "count_nonzero": count_nonzero,
    "compact": compact,
    "max_pool_indices": max_pool_indices,
}
"""Emitters of one output element ``t0``."""
ROW: Final[Mapping[str, tuple[Callable[[Graph, Code], None], Callable[[Graph], int]]]] = {
    "topk_indices": (topk_indices, lines),
    "sort_rows": (sort_rows, one_item),
    "cum_sum": (scan, lines),
    "cum_prod": (scan, lines),
    "nonzero": (nonzero, one_item),
    "non_max_suppression": (non_max_suppression, suppression_items),
}
"""Emitters of a whole item, and the number of items."""
