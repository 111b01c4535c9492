"""Convolutions and products of 8- and 16-bit integers with constant weights (passes/integers.py).

Sums are modulo 2^32, so their order is free: several threads share the channels of a result and meet in shared memory.
Of a convolution a thread has four output channels at one position, of a product one result. What follows a sum is the
scalar kernel's chain.
"""

from __future__ import annotations

from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.passes.integers import INTEGER, KINDS
from compiler_kernels.targets.c.elementwise import body_lines
from compiler_kernels.targets.c.scalar import without_unused_coordinates
from compiler_kernels.targets.c.writer import Code, c_type, decode, linear, strides
from compiler_kernels.targets.cuda.families.text import indexable, kernel_text, launched, split
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel

THREADS: Final = 128
MOST_SHARES: Final = 8
"""Threads that share a sum."""
ENOUGH: Final = 1024
"""Threads of a multiprocessor beyond which a sum is not shared."""


def integer(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The kernel of a ``conv_integer`` or ``matmul_integer`` with packed weights, and of what is fused behind it."""
    op, types = function.ops[0], function.types()
    if op.kind not in KINDS or any(not t.is_static for t in types.values()):
        return None
    if not types[op.operands[1]].layout.startswith(f"packed {INTEGER} ") or not indexable(function):
        return None
    conv, w = op.kind == "conv_integer", types[op.operands[1]].dims
    columns, depth = (w[0], w[1]) if conv else (w[1], w[0])
    rows, wide = op.out.count // columns, 4 if conv else 1
    groups = -(-columns // wide)
    shares = 1
    while shares < min(MOST_SHARES, depth // 2) and 2 * shares * rows * groups <= gpu.multiprocessors * ENOUGH:
        shares *= 2
    across = THREADS // shares
    with kernel_text(function, name) as code:
        _place(code, conv, rows, groups, across)
        code.add(f"unsigned total[{wide}] = {{0}};", "cuvil_grid_wait();")
        test = [f"row < {rows}"] * (conv and rows % across > 0) + [f"group < {groups}"] * (not conv)
        with code.block(f"if ({' && '.join(test)})" if test else ""):
            (_conv if conv else _matmul)(function, code, shares)
        results = wide * across
        if shares > 1:
            code.add("unsigned *part = (unsigned *)cuvil_shared;")
            code.add(*(f"part[(share * {wide} + {j}) * {across} + at] = total[{j}];" for j in range(wide)))
            code.add("__syncthreads();")
            with code.block(f"for (int e = threadIdx.x; e < {results}; e += {THREADS})"):
                code.add("unsigned sum = 0;", "#pragma unroll")
                code.add(f"for (int s = 0; s < {shares}; s++) sum += part[s * {results} + e];")
                _finish(function, code, conv, f"e / {across}", f"e % {across}", "sum", (rows, columns, across))
        else:
            code.add("#pragma unroll")
            with code.block(f"for (int j = 0; j < {wide}; j++)"):
                _finish(function, code, conv, "j", "at", "total[j]", (rows, columns, across))
    blocks = -(-rows // across) * groups if conv else rows * -(-groups // across)
    shared = 4 * results * shares if shares > 1 else 0
    return launched(function, name, code, blocks, THREADS, shared, independent=shares == 1)


def _place(code: Code, conv: bool, rows: int, groups: int, across: int) -> None:
    """``share``, ``at``, and ``row`` and ``group`` (of columns) of the thread; neighbours are neighbours in memory."""
    code.add(f"const int share = (int)threadIdx.x / {across}, at = (int)threadIdx.x % {across};", "(void)share;")
    if conv:
        code.add(f"const int group = block % {groups}, first = block / {groups} * {across}, row = first + at;")
    else:
        tiles = -(-groups // across)
        code.add(f"const int row = block / {tiles}, first = block % {tiles} * {across}, group = first + at;")


def _finish(
    function: Graph, code: Code, conv: bool, part: str, at: str, total: str, sizes: tuple[int, int, int]
) -> None:
    """The chain on ``total``, the sum of column ``part`` of the group (of a convolution) of thread ``at``."""
    op, (rows, columns, across) = function.ops[0], sizes
    if conv:
        spatial = prod(op.out.dims[2:])
        code.add(f"const int position = first + {at}, channel = group * 4 + {part};")
        tests = [f"position >= {rows}"] * (rows % across > 0) + [f"channel >= {columns}"] * (columns % 4 > 0)
        place = f"(position / {spatial} * {columns} + channel) * {spatial} + position % {spatial}"
    else:
        code.add(f"const int column = first + {at};")
        tests = [f"column >= {columns}"] * (columns % across > 0)
        place = f"row * {columns} + column"
    code.add(*([f"if ({' || '.join(tests)}) continue;"] if tests else []), f"const int i = {place};")
    lines, _ = body_lines(function, skip_root=True)
    body = [*decode(op.out.dims), f"const int32_t {op.result} = (int32_t){total};", *lines]
    code.add(*without_unused_coordinates([*body, f"y[i] = {function.ops[-1].result};"]))


def _pairs(code: Code, channels: int, step: int, wide: int, shares: int) -> None:
    """Products of the thread's share of the channels from ``x`` on, ``step`` elements apart, with pairs of weights from
    ``w`` on, those of ``wide`` columns next to each other."""
    begin, by = ("share", f"pair += {shares}") if shares > 1 else ("0", "pair++")
    lanes = "xyzw" if wide == 4 else ""

    def products(code: Code, low: str, high: str) -> None:
        for j in range(wide):
            two = f"two.{lanes[j]}" if lanes else "two"
            code.add(f"total[{j}] += (unsigned)((int)(int16_t){two} * {low});")
            code.add(*([f"total[{j}] += (unsigned)(({two} >> 16) * {high});"] if high else []))

    kind, cast = ("int4", "*(const int4 *)&") if lanes else ("int", "")
    code.add("#pragma unroll 4")
    with code.block(f"for (int pair = {begin}; pair < {channels // 2}; {by})"):
        code.add(f"const {kind} two = {cast}w[pair * {BLOCK}];")
        code.add(f"const int low = (int)x[{linear([('pair', 2 * step)])}];")
        code.add(f"const int high = (int)x[{linear([('pair', 2 * step)], step)}];")
        products(code, "low", "high")
    if channels % 2:
        last = channels // 2
        with code.block("if (share == 0)" if shares > 1 else ""):
            code.add(f"const {kind} two = {cast}w[{last * BLOCK}];", f"const int low = (int)x[{2 * last * step}];")
            products(code, "low", "")


def _conv(function: Graph, code: Code, shares: int) -> None:
    op, types = function.ops[0], function.types()
    x, w = types[op.operands[0]], types[op.operands[1]]
    rank, channels = len(x.dims) - 2, w.dims[1]
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    x_step, positions, pairs = strides(x.dims), prod(w.dims[2:]), -(-channels // 2)
    places = [f"o{a}" for a in range(rank)]
    split(code, "row", [x.dims[0], *op.out.dims[2:]], ["n", *places])
    panel = f"group / {BLOCK // 4} * {positions * pairs * BLOCK} + group % {BLOCK // 4} * 4"
    code.add(f"const int *rows = (const int *){op.operands[1]} + {panel};")
    for a in range(rank):
        code.add(f"for (int k{a} = 0; k{a} < {w.dims[a + 2]}; k{a}++) {{")
        code.depth += 1
        code.add(f"const int x{a} = {linear([(f'o{a}', steps[a]), (f'k{a}', dilations[a])], -pads[a])};")
        code.add(f"if (x{a} < 0 || x{a} >= {x.dims[a + 2]}) continue;")
    place = linear([("n", x_step[0]), *((f"x{a}", x_step[a + 2]) for a in range(rank))])
    position = linear([(f"k{a}", s) for a, s in enumerate(strides(w.dims[2:]))])
    code.add(f"const {c_type(x)} *x = {op.operands[0]} + {place};")
    code.add(f"const int *w = rows + ({position}) * {pairs * BLOCK};")
    _pairs(code, channels, x_step[1], 4, shares)
    for _ in range(rank):
        code.depth -= 1
        code.add("}")


def _matmul(function: Graph, code: Code, shares: int) -> None:
    op, types = function.ops[0], function.types()
    x, depth = types[op.operands[0]], types[op.operands[1]].dims[0]
    panel = f"group / {BLOCK} * {-(-depth // 2) * BLOCK} + group % {BLOCK}"
    code.add(
        f"const {c_type(x)} *x = {op.operands[0]} + row * {depth};",
        f"const int *w = (const int *){op.operands[1]} + {panel};",
    )
    _pairs(code, depth, 1, 1, shares)
