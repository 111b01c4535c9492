"""Determinants and counts of n-grams: an item is a matrix, or a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import Code, c_number, c_type, loop, root_of


def det_items(function: Graph) -> int:
    return prod(root_of(function).out.dims)


def det(function: Graph, code: Code) -> None:
    """Elimination with partial pivoting on a copy of matrix ``i`` (docs/arithmetic.md, section 21)."""
    op = root_of(function)
    size, dtype, ctype = function.types()[op.operands[0]].dims[-1], op.out.dtype, c_type(op.out)
    fma, mag = ("ca1_fmaf", "ca1_abs_v1") if dtype == "float32" else ("ca1_fma64", "ca1_abs_f64")
    zero, one = c_number(0.0, dtype), c_number(1.0, dtype)
    if size == 0:
        code.add(f"y[i] = {one};")
        return
    code.add(f"{ctype} m[{size}][{size}], d = {one};")
    code.add(f"__builtin_memcpy(m, {op.operands[0]} + i * {size * size}, sizeof m);")
    with code.block(loop("k", size)):
        code.add("int p = k;")
        code.add(f"for (int r = k + 1; r < {size}; r++) p = {mag}(m[r][k]) > {mag}(m[p][k]) ? r : p;")
        with code.block(f"for (int c = k; c < {size}; c++)"):
            code.add(f"const {ctype} other = m[p][c];", "m[p][c] = m[k][c];", "m[k][c] = other;")
        code.add("d = (p != k ? -d : d) * m[k][k];")
        with code.block(f"for (int r = k + 1; r < {size}; r++)"):
            code.add(f"const {ctype} f = m[k][k] == {zero} ? {zero} : m[r][k] / m[k][k];")
            code.add(f"for (int c = k + 1; c < {size}; c++) m[r][c] = {fma}(-f, m[k][c], m[r][c]);")
    code.add("y[i] = d;")


def ngram_items(function: Graph) -> int:
    return root_of(function).out.dims[0]


def count_ngrams(function: Graph, code: Code) -> None:
    """Row ``i``: every gram at every place and distance between its elements; single elements at one distance."""
    op = root_of(function)
    types = function.types()
    (x, grams), columns, length = op.operands, op.int_("columns"), types[op.operands[0]].dims[1]
    count, width = types[grams].dims
    code.add(f"const {c_type(types[x])} *row = {x} + i * {length};", f"float *out = y + i * {columns};")
    code.add(f"for (int j = 0; j < {columns}; j++) out[j] = 0.0f;")
    with code.block(loop("g", count)):
        code.add(f"const int64_t *gram = {grams} + g * {width};", "const int n = (int)gram[0];", "int64_t found = 0;")
        with (
            code.block(f"for (int s = 1; s <= (n == 1 ? 1 : {op.int_('skips') + 1}); s++)"),
            code.block(f"for (int at = 0; at + (n - 1) * s < {length}; at++)"),
        ):
            code.add("int same = 1;", "for (int e = 0; e < n; e++) same &= row[at + e * s] == gram[2 + e];")
            code.add("found += same;")
        code.add("out[gram[1]] = out[gram[1]] + (float)found;")


ROW: Final[Mapping[str, tuple[Callable[[Graph, Code], None], Callable[[Graph], int]]]] = {
    "det": (det, det_items),
    "count_ngrams": (count_ngrams, ngram_items),
}
"""Emitters of a whole item, and the number of items."""
