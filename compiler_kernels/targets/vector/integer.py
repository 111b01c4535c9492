"""Convolutions and matrix products of 8- and 16-bit integers with the chain behind them.

A work item is a strip of positions (rows of an image, rows of the left operand) times a group of output blocks. It
copies what it reads into scratch as pairs of channels, sums tiles of positions x blocks of 16 outputs in registers, and
runs the chain over the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.text import format_op
from compiler_kernels.passes.integers import INTEGER, KINDS
from compiler_kernels.targets.c.writer import Code, Kernel, c_type, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.integer_chain import Chain

COPY_BYTES: Final = 48 * 1024
SUM_BYTES: Final = 64 * 1024
"""Most bytes of operands an item copies, and of sums it holds, so that they stay near the processor."""
LONGEST: Final = 48
"""Most rows of a strip of a product."""
ITEMS: Final = 16
ITEM_PRODUCTS: Final = 500_000
"""The work is cut into at most ``ITEMS`` images' strips, none of far fewer products than this: rows between two strips
are copied twice, and a chain over few positions is slow."""


@dataclass(frozen=True)
class Plan:
    """A convolution as ``images`` of ``rows`` x ``columns`` outputs; a product is one image of one column per row."""

    images: int
    channels: int
    outputs: int
    source: tuple[int, int]
    result: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    by_row: bool
    """Outputs lie next to each other (a product), not positions (a convolution)."""

    @property
    def pairs(self) -> int:
        return -(-self.channels // 2)

    @property
    def blocks(self) -> int:
        return -(-self.outputs // BLOCK)

    @property
    def groups(self) -> int:
        return -(-self.blocks // 8)

    @property
    def width(self) -> int:
        """Columns of a copied row: those some tap reads."""
        return (self.result[1] - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1

    def copied_rows(self, rows: int) -> int:
        return (rows - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1

    @property
    def row(self) -> int:
        """int16 numbers of a copied row."""
        return self.width * self.pairs * 2

    @property
    def strip(self) -> int:
        """Rows of results per item."""
        rows, columns = self.result
        products = self.images * rows * columns * self.outputs * self.channels * prod(self.kernel)
        items = max(1, min(ITEMS, products // ITEM_PRODUCTS))
        wanted = -(-rows * self.images * self.groups // items)
        row_bytes = columns * BLOCK * 2 * 4

        def fits(count: int) -> bool:
            return self.copied_rows(count) * self.row * 2 <= COPY_BYTES and count * row_bytes <= SUM_BYTES

        fitting = next((r for r in range(min(rows, wanted), 1, -1) if fits(r)), 1)
        return min(rows, wanted, fitting, LONGEST if self.by_row else rows)


def plan_of(function: Graph, op: Op) -> Plan:
    x = function.types()[op.operands[0]].dims
    if op.kind == "matmul_integer":
        rows, one = (prod(x[:-1]), 1), (1, 1)
        return Plan(1, x[-1], op.out.dims[-1], rows, rows, one, one, one, (0, 0), True)
    w = function.types()[op.operands[1]].dims
    flat = len(x) == 3

    def two(values: tuple[int, ...], fill: int) -> tuple[int, int]:
        return (fill, values[0]) if flat else (values[0], values[1])

    return Plan(
        x[0], x[1], w[0], two(x[2:], 1), two(op.out.dims[2:], 1), two(w[2:], 1), two(op.ints("strides"), 1),
        two(op.ints("dilations"), 1), two(op.ints("pads")[: len(x) - 2], 0), False,
    )  # fmt: skip


def integer(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """The kernel of a statement whose root's weights passes/integers.py has packed; ``None`` for anything else."""
    op = function.ops[0]
    if op.kind not in KINDS or not function.types()[op.operands[1]].layout.startswith(f"packed {INTEGER} "):
        return None
    return _Writer(function, op, plan_of(function, op), isa, name).kernel()


@dataclass
class _Writer:
    function: Graph
    op: Op
    plan: Plan
    isa: Isa
    name: str

    @property
    def most(self) -> tuple[int, int]:
        """Positions and blocks of a tile, for the number of registers."""
        if self.isa.lanes == BLOCK:
            return (12, 2) if self.plan.blocks > 1 else (24, 1)
        return (5, 1) if self.isa.lanes == 4 else (6, 1)

    def kernel(self) -> Kernel:
        plan, code, function = self.plan, Code(), self.function
        for inner in function.ops:
            code.add(*(f"/* {line.strip().replace('*/', '* /')} */" for line in format_op(inner)))
        last_group = plan.blocks - (plan.groups - 1) * 8
        widths = {min(self.most[1], b) for b in (min(8, plan.blocks), last_group)}
        widths |= {b % self.most[1] for b in (min(8, plan.blocks), last_group)} - {0}
        lines = (plan.strip, plan.result[0] % plan.strip) if plan.by_row else plan.result[1:]
        sizes = {size for line in lines for _, size, _ in _cut(line, self.most[0])}
        for blocks in sorted(widths):
            for size in sorted(sizes):
                self._tile(code, size, blocks)
        strips = -(-plan.result[0] // plan.strip)
        copied = plan.copied_rows(plan.strip) * plan.row
        sums = plan.strip * plan.result[1]
        lanes = self.most[1] * BLOCK
        params = "".join(f"const {c_type(v.type)} *{v.id}, " for v in function.inputs)
        with (
            code.block(
                f"static void {self.name}({params}{c_type(function.ops[-1].out)} *y, float *scratch, "
                "int begin, int end)"
            ),
            code.block("for (int i = begin; i < end; i++)"),
        ):
            code.add(
                f"const int group = i % {plan.groups}, first = i / {plan.groups} % {strips} * {plan.strip};",
                f"const int n = i / {plan.groups * strips}, rows = "
                f"{plan.result[0]} - first < {plan.strip} ? {plan.result[0]} - first : {plan.strip};",
                "int16_t *copy = (int16_t *)scratch;",
                f"int32_t *sums = (int32_t *)(copy + {copied + copied % 2}), *line = sums + {sums * lanes};",
                "(void)line;",
            )
            self._copy(code)
            with code.block(f"for (int b = group * 8; b < (group + 1) * 8 && b < {plan.blocks}; b += {self.most[1]})"):
                self._tiles(code, sorted(widths))
                Chain(function, self.op.kind, plan.outputs).emit(code, lanes, plan.result, plan.by_row)
        scratch = (copied + copied % 2) // 2 + sums * lanes + (0 if plan.by_row else sums)
        return Kernel(
            self.name, "\n".join(code.lines) + "\n", len(function.inputs), plan.images * strips * plan.groups, scratch
        )

    def _tile(self, code: Code, size: int, blocks: int) -> None:
        """Sums of ``size`` positions and ``blocks`` blocks, stored [position][block][16]."""
        plan, lanes = self.plan, self.isa.lanes
        vectors, step = blocks * BLOCK // lanes, plan.pairs * 2
        per_block = prod(plan.kernel) * plan.pairs * BLOCK * 2
        vtype = f"ca1_i32_v{lanes}"
        stride = plan.row if plan.by_row else plan.stride[1] * step
        with code.block(f"static CA1_TARGET void {self._tile_name(size, blocks)}"
                        "(const int16_t *x, const int16_t *w, int32_t *sums)"):  # fmt: skip
            names = [[f"a{p}_{v}" for v in range(vectors)] for p in range(size)]
            for row in names:
                code.add(f"{vtype} {', '.join(f'{a} = ca1_iset1_v{lanes}(0)' for a in row)};")
            with (
                code.block(f"for (int kh = 0; kh < {plan.kernel[0]}; kh++)"),
                code.block(f"for (int kw = 0; kw < {plan.kernel[1]}; kw++)"),
            ):
                at = linear([("kh", plan.dilation[0] * plan.row), ("kw", plan.dilation[1] * step)])
                code.add(f"const int16_t *xt = x + {at};")
                code.add(f"const int16_t *wt = w + (kh * {plan.kernel[1]} + kw) * {plan.pairs * BLOCK * 2};")
                with code.block(f"for (int c = 0; c < {plan.pairs}; c++)"):
                    for p, row in enumerate(names):
                        for v, a in enumerate(row):
                            block, part = divmod(v * lanes, BLOCK)
                            weight = linear([("wt", 1), ("c", BLOCK * 2)], block * per_block + part * 2)
                            value = linear([("xt", 1), ("c", 2)], p * stride)
                            code.add(f"{a} = ca1_madd_v{lanes}({a}, {weight}, {value});")
            for p, row in enumerate(names):
                for v, a in enumerate(row):
                    code.add(f"ca1_istore_v{lanes}(sums + {p * self.most[1] * BLOCK + v * lanes}, {a});")

    def _tile_name(self, size: int, blocks: int) -> str:
        return f"{self.name}_{size}x{blocks}"

    def _tiles(self, code: Code, widths: list[int]) -> None:
        """Calls of the tile functions for every position of the strip and the blocks from ``b`` on."""
        plan, (_, most) = self.plan, self.most
        per_block = prod(plan.kernel) * plan.pairs * BLOCK * 2
        code.add(f"const int16_t *w = {self.op.operands[1]} + (long)b * {per_block};")
        if len(widths) > 1:
            code.add(f"const int wide = (group + 1) * 8 < {plan.blocks} ? (group + 1) * 8 - b : {plan.blocks} - b;")

        def call(size: int, x: str, sums: str) -> str:
            calls = [f"{self._tile_name(size, b)}({x}, w, {sums});" for b in widths]
            return calls[0] if len(calls) == 1 else f"if (wide < {most}) {calls[0]} else {calls[1]}"

        def calls(count: int, x: str, step: int, sums: str) -> None:
            for first, size, pieces in _cut(count, self.most[0]):
                with code.block(f"for (int t = 0; t < {pieces}; t++)"):
                    at = linear([("t", size)], first)
                    code.add(f"const int at = {at};", call(size, f"{x} + at * {step}", f"{sums} + at * {most * BLOCK}"))

        if plan.by_row:
            for count in dict.fromkeys(c for c in (plan.strip, plan.result[0] % plan.strip) if c):
                with code.block(f"if (rows == {count})"):
                    calls(count, "copy", plan.row, "sums")
            return
        with code.block("for (int r = 0; r < rows; r++)"):
            code.add(f"const int16_t *xr = copy + r * {plan.stride[0] * plan.row};")
            code.add(f"int32_t *tr = sums + r * {plan.result[1] * most * BLOCK};")
            calls(plan.result[1], "xr", plan.stride[1] * plan.pairs * 2, "tr")

    def _copy(self, code: Code) -> None:
        """The rows that the strip reads as [row][column][channel pair][2]; 0 outside x and for a channel too many."""
        plan, x = self.plan, self.op.operands[0]
        ctype = c_type(self.function.types()[x])
        odd = plan.channels % 2
        if plan.by_row:
            with code.block("for (int r = 0; r < rows; r++)"):
                code.add(f"const {ctype} *from = {x} + (long)(first + r) * {plan.channels};")
                code.add(f"int16_t *to = copy + r * {plan.row};")
                code.add(f"for (int c = 0; c < {plan.channels}; c++) to[c] = from[c];")
                if odd:
                    code.add(f"to[{plan.channels}] = 0;")
            return
        (height, wide), step = plan.source, plan.pairs * 2
        low, high = plan.pad[1], min(plan.width, wide + plan.pad[1])
        with code.block(f"for (int r = 0; r < (rows - 1) * {plan.stride[0]} + {plan.copied_rows(1)}; r++)"):
            code.add(f"const int row = first * {plan.stride[0]} + r - {plan.pad[0]};")
            code.add(f"int16_t *to = copy + r * {plan.row};")
            with code.block(f"if (row < 0 || row >= {height})"):
                code.add(f"__builtin_memset(to, 0, {plan.row} * sizeof *to);", "continue;")
            if low:
                code.add(f"__builtin_memset(to, 0, {min(low, plan.width) * step} * sizeof *to);")
            if high < plan.width:
                code.add(f"__builtin_memset(to + {high * step}, 0, {(plan.width - high) * step} * sizeof *to);")
            plane = height * wide
            code.add("int32_t *pairs = (int32_t *)to;")
            with code.block(f"for (int c = 0; c < {plan.channels}; c += 2)"):
                code.add(
                    f"const {ctype} *from = {x} + ((long)n * {plan.channels} + c) * {plane} + row * {wide} - {low};"
                )
                target = linear([("k", plan.pairs), ("c / 2", 1)])
                one, two = "(uint16_t)from[k]", f"(uint16_t)from[k + {plane}]"
                loop = f"for (int k = {low}; k < {high}; k++) pairs[{target}] ="
                if odd:
                    code.add(f"if (c == {plan.channels - 1}) {loop} {one};")
                if plan.channels > 1:
                    code.add(f"{'else ' if odd else ''}{loop} (int32_t)({one} | (uint32_t){two} << 16);")


def _cut(count: int, most: int) -> list[tuple[int, int, int]]:
    """``count`` positions in pieces of at most ``most``, as even as can be: (first, size, pieces) of each size."""
    pieces = -(-count // most)
    size, longer = divmod(count, max(pieces, 1))
    found = [(0, size + 1, longer), (longer * (size + 1), size, pieces - longer)]
    return [piece for piece in found if piece[2]]
