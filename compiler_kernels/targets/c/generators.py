"""Random words and draws, and the place of a maximum as ones and zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import Code, c_number, c_type, root_of


def random_bits(function: Graph, code: Code) -> None:
    op = root_of(function)
    seed, stream, word = (op.int_(key) for key in ("seed", "stream", "word"))
    code.add(f"const uint32_t t0 = ca1_random_bits({seed}ull, {stream}u, (uint32_t)i, {word});")


def multinomial(function: Graph, code: Code) -> None:
    """One draw: the first class whose running sum of exp(x - maximum) exceeds u times the whole sum."""
    op = root_of(function)
    types = function.types()
    x, u = op.operands
    classes, samples = types[x].dims[1], types[u].dims[1]
    code.add(
        f"const float *row = {x} + i / {samples} * {classes};",
        "float m = row[0], all = 0.0f, sum = 0.0f;",
        f"for (int k = 1; k < {classes}; k++) m = ca1_max_v1(m, row[k]);",
        f"for (int k = 0; k < {classes}; k++) all = all + ca1_exp(row[k] - m);",
        f"const float bound = {u}[i] * all;",
        f"int32_t t0 = {classes - 1};",
    )
    with code.block(f"for (int k = 0; k < {classes}; k++)"):
        code.add("sum = sum + ca1_exp(row[k] - m);")
        with code.block("if (sum > bound)"):
            code.add("t0 = k;", "break;")


def hardmax(function: Graph, code: Code) -> None:
    """One where the first NaN or else the first maximum of the line stands, zero elsewhere."""
    op = root_of(function)
    size, inner = op.out.dims[op.int_("axis")], prod(op.out.dims[op.int_("axis") + 1 :])
    kind, one, zero = c_type(op.out), *(c_number(v, op.out.dtype) for v in (1.0, 0.0))
    code.add(
        f"const int base = i / {inner} * {size * inner} + i % {inner};",
        f"const {kind} *line = {op.operands[0]} + base;",
        f"{kind} *out = y + base;",
        "int best = 0;",
    )
    with code.block(f"for (int k = 1; k < {size}; k++)"):
        code.add(
            f"const {kind} v = line[k * {inner}], m = line[best * {inner}];",
            "if (v > m || (v != v && m == m)) best = k;",
        )
    code.add(f"for (int k = 0; k < {size}; k++) out[k * {inner}] = k == best ? {one} : {zero};")


def hardmax_items(function: Graph) -> int:
    """Lines along the axis; none where the tensor is empty."""
    op = root_of(function)
    dims, axis = op.out.dims, op.int_("axis")
    return prod(dims[:axis]) * prod(dims[axis + 1 :]) if dims[axis] else 0


POINT: Final[Mapping[str, Callable[[Graph, Code], None]]] = {"random_bits": random_bits, "multinomial": multinomial}
ROW: Final[Mapping[str, tuple[Callable[[Graph, Code], None], Callable[[Graph], int]]]] = {
    "hardmax": (hardmax, hardmax_items)
}
