"""The register tile of a matrix product: some rows times some panels of 16 columns, in the order of CA-1.

A leaf of 64 products is summed in registers. Finished leaves wait in a scratch area, one per level of the tree, that
comes by pointer into a function that is never inlined, with a memory barrier before each merge: compilers otherwise
keep the waiting sums in registers and spill the accumulators. The broadcast of the left operand is a separate load, as
one per multiply-add halves the speed of some processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compiler_kernels.arithmetic.order import RADIX, sum_order
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, c_float, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.epilogue import PlainChain, partial_store
from compiler_kernels.targets.vector.vec import Vec

BARRIER: Final = '__asm__ volatile("" ::: "memory");'
UNROLL: Final = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """Steps in floats: left operand from row to row and from product to product; right from product to product and
    from panel to panel (rows of a panel are contiguous). ``depth`` is K."""

    depth: int
    left_row: int
    left_k: int
    right_k: int
    right_panel: int

    @property
    def leaves(self) -> int:
        return sum_order(self.depth, 1).leaves

    @property
    def leaf(self) -> int:
        """Products of a whole leaf."""
        order = sum_order(self.depth, 1)
        return order.block * order.blocks_per_leaf

    @property
    def levels(self) -> int:
        """Levels of the tree with an open node while the last leaf is in registers."""
        level, rest = 0, self.leaves - 1
        while rest > 0:
            level, rest = level + 1, rest // RADIX
        return level


@dataclass(frozen=True, slots=True)
class Tile:
    """``rows`` x ``columns`` results; the last vector of a row may be partly filled."""

    rows: int
    columns: int
    isa: Isa

    @property
    def vectors(self) -> int:
        return -(-self.columns // self.isa.lanes)

    @property
    def floats(self) -> int:
        return self.rows * self.vectors * self.isa.lanes

    def scratch(self, reading: Reading, cheap: bool) -> int:
        """Floats of scratch: one area per open tree level, and the sums themselves for a chain that is a loop."""
        return self.floats * (reading.levels + (0 if cheap else 1))


def tile_shape(isa: Isa, rows: int) -> tuple[int, int]:
    """Most rows, and panels, of a tile for a product of ``rows`` rows: few rows take more panels."""
    if isa.lanes == 1:
        return 1, 1
    if isa.lanes == BLOCK:
        return (rows, 8) if rows <= 2 else (rows, 4) if rows <= 5 else (14, 2)
    if isa.registers >= 32:
        return (rows, 4) if rows == 1 else (rows, 2) if rows == 2 else (6, 1)
    return (rows, 4) if rows == 1 else (rows, 2) if rows == 2 else (6, 1)


def emit_tile(
    code: Code,
    name: str,
    tile: Tile,
    reading: Reading,
    chain: PlainChain,
    root: str,
    first: Sequence[str],
    y_row: int,
) -> None:
    """C function ``name(x, w, y, t, e0, ...)``.

    ``first`` are statements templates on an accumulator ``{a}`` that make the root's result of the sum (alpha);
    ``root`` its name; ``y_row`` the step of y from row to row.
    """
    vec = Vec(tile.isa)
    sums = {(r, v): f"a{r}_{v}" for r in range(tile.rows) for v in range(tile.vectors)}
    names = list(sums.values())
    pointers = "".join(f", const float *{p}" for p in chain.pointers)
    with code.block(
        f"static __attribute__((noinline)) void {name}(const float *x, const float *w, float *y, float *t{pointers})"
    ):
        code.add(f"{vec.type} {', '.join(names)};", "(void)x, (void)w, (void)t;")
        if reading.leaves == 0:
            code.add(_zero(vec, names))
        else:
            _sum(code, vec, tile, reading, names)
        if first:
            code.add(*(line.format(a=a) for a in names for line in first))
        if chain.cheap:
            for (r, v), a in sums.items():
                _finish(code, vec, tile, chain, root, a, (str(r), v), linear([("y", 1)], r * y_row))
        else:
            _finish_by_loop(code, vec, tile, reading, chain, root, sums, y_row)


def _zero(vec: Vec, names: Sequence[str]) -> str:
    return " ".join(f"{a} = {vec.set1('0.0f')};" for a in names)


def _sum(code: Code, vec: Vec, tile: Tile, reading: Reading, names: Sequence[str]) -> None:
    leaves, depth = reading.leaves, reading.depth
    leaf = reading.leaf
    rest = depth - (leaves - 1) * leaf
    with code.block("for (int s = 0;; s++)" if leaves > 1 else ""):
        code.add(_zero(vec, names))
        taps = str(rest) if leaves == 1 or rest == leaf else "taps"
        if taps == "taps":
            code.add(f"const int taps = s == {leaves - 1} ? {rest} : {leaf};")
        if min(rest if leaves == 1 else leaf, depth) >= UNROLL:
            with code.block(f"for (int k = 0; k + {UNROLL} <= {taps}; k += {UNROLL})"):
                _steps(code, vec, tile, reading, UNROLL)
        if rest % UNROLL:
            with code.block(f"for (int k = {taps} / {UNROLL} * {UNROLL}; k < {taps}; k++)"):
                _steps(code, vec, tile, reading, 1)
        if leaves > 1:
            _merge(code, vec, reading, names)
    if leaves > 1:
        code.add(BARRIER)
        done = leaves - 1
        for level in range(reading.levels):
            if done % RADIX:
                code.add(_added(vec, level, names))
            done //= RADIX


def _steps(code: Code, vec: Vec, tile: Tile, reading: Reading, count: int) -> None:
    for k in range(count):
        loads = []
        for v in range(tile.vectors):
            lane = v * vec.lanes
            offset = k * reading.right_k + lane // BLOCK * reading.right_panel + lane % BLOCK
            loads.append(f"w{v} = {vec.load(linear([('w', 1)], offset))}")
        code.add(f"{{ const {vec.type} {', '.join(loads)};")
        for r in range(tile.rows):
            value = vec.set1(f"x[{r * reading.left_row + k * reading.left_k}]")
            updates = " ".join(f"a{r}_{v} = {vec.fma('b', f'w{v}', f'a{r}_{v}')};" for v in range(tile.vectors))
            code.add(f"  const {vec.type} b{r} = {value}; {updates.replace('(b,', f'(b{r},')}")
        code.add("}")
    code.add(f"x += {count * reading.left_k}; w += {count * reading.right_k};")


def _slot(vec: Vec, level: int, names: Sequence[str], index: int) -> str:
    return linear([("t", 1)], (level * len(names) + index) * vec.lanes)


def _added(vec: Vec, level: int, names: Sequence[str]) -> str:
    """The accumulators become the sums of the open node of ``level`` and themselves."""
    return " ".join(f"{a} = {vec.add(vec.load(_slot(vec, level, names, i)), a)};" for i, a in enumerate(names))


def _merge(code: Code, vec: Vec, reading: Reading, names: Sequence[str]) -> None:
    """Put the finished leaf into its node; a node that is full goes up as a value of its own."""
    code.add(BARRIER, f"if (s == {reading.leaves - 1}) break;")
    step = 1
    for level in range(reading.levels):
        place = f"s / {step} % {RADIX}" if step > 1 else f"s % {RADIX}"
        slots = [(a, _slot(vec, level, names, i)) for i, a in enumerate(names)]
        code.add(f"if ({place} == 0) {{ {' '.join(vec.store(t, a) for a, t in slots)} continue; }}")
        code.add(_added(vec, level, names))
        last = level == reading.levels - 1
        stores = " ".join(vec.store(t, a) for a, t in slots)
        code.add(f"{stores}" if last else f"if ({place} != {RADIX - 1}) {{ {stores} continue; }}")
        step *= RADIX


def _finish(
    code: Code, vec: Vec, tile: Tile, chain: PlainChain, root: str, value: str, place: tuple[str, int], y: str
) -> None:
    row, v = place
    count = min(vec.lanes, tile.columns - v * vec.lanes)
    lines, result = chain.statements(root, value, row, str(v * vec.lanes), count)
    target = linear([(y, 1)], v * vec.lanes)
    store = vec.store(target, result) if count == vec.lanes else partial_store(vec, target, result, count)
    code.add("{ " + " ".join([*lines, store]) + " }" if lines else store)


def _finish_by_loop(
    code: Code,
    vec: Vec,
    tile: Tile,
    reading: Reading,
    chain: PlainChain,
    root: str,
    sums: dict[tuple[int, int], str],
    y_row: int,
) -> None:
    base = reading.levels * tile.floats
    width = tile.vectors * vec.lanes
    code.add(*(vec.store(linear([("t", 1)], base + r * width + v * vec.lanes), a) for (r, v), a in sums.items()))
    full = tile.columns // vec.lanes
    with code.block(f"for (int r = 0; r < {tile.rows}; r++)"):
        source = linear([("t", 1), ("r", width)], base)
        if full:
            with code.block(f"for (int c = 0; c < {full * vec.lanes}; c += {vec.lanes})"):
                code.add(f"const {vec.type} a = {vec.load(f'{source} + c')};")
                lines, result = chain.statements(root, "a", "r", "c", vec.lanes)
                code.add(*lines, vec.store(f"{linear([('y', 1), ('r', y_row)])} + c", result))
        if tile.columns % vec.lanes:
            code.add(f"const {vec.type} a = {vec.load(linear([(source, 1)], full * vec.lanes))};")
            _finish(code, vec, tile, chain, root, "a", ("r", full), linear([("y", 1), ("r", y_row)]))


def scaled(vec: Vec, alpha: float) -> list[str]:
    """Statement templates that turn a tree into ``alpha * tree`` (nothing for 1)."""
    return [] if alpha == 1.0 else [f"{{a}} = {vec('mul')}({vec.set1(c_float(alpha))}, {{a}});"]
