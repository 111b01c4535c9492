"""Scalar kernels over run-time sizes, row by row: the coordinates of a row are divided out once, not per element.

An emitter of one element declares its coordinates with ``decode``. Where the last axis is long enough, its statements
become the body of a loop along that axis, in which compilers find what does not move and vectorise the rest.
"""

from __future__ import annotations

from typing import Final

from compiler_kernels.ir.dims import Size, product
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import decode

SHORTEST: Final = 8


def by_rows(function: Graph, lines: list[str]) -> tuple[list[str], Size] | None:
    """The lines of one row and the number of rows; ``None`` where elements are better computed one by one."""
    out = function.ops[0].out
    last = len(out.shape) - 1
    if last < 1 or function.ops[-1].out.shape != out.shape:
        return None
    width = out.extents[last]
    if isinstance(width, int) and width < SHORTEST:
        return None
    wanted = decode(out.dims)
    if not any(line in wanted for line in lines):
        return None
    rest = [line for line in lines if line not in wanted]
    if any(line.lstrip().startswith("const int i") and line.lstrip()[11:12].isdigit() for line in rest):
        return None  # coordinates of another shape
    used = {line for line in lines if line in wanted}
    rows = [row for row, flat in zip(decode(out.dims[:-1], flat="row"), wanted, strict=False) if flat in used]
    loop = f"for (int i{last} = 0; i{last} < {width}; i{last}++) {{"
    body = [f"    {line}" for line in (f"const int i = row * {width} + i{last};", *rest)]
    return ["const int row = i;", *rows, loop, *body, "}"], product(out.extents[:-1])
