"""The register tile of every sum of products: some pixels times one or two blocks of 16 outputs, in the CA-1 order.

A leaf is summed in registers; finished leaves wait in a small scratch, one area per level of the summation tree, so
that the accumulators never leave their registers for lack of room. Three things keep compilers from undoing this
(measured: up to 13 % slower otherwise): the scratch comes by pointer, the function is not inlined, and a memory
barrier stands before each merge. The broadcast of x is a separate load: one per multiply-add would halve the speed of
some processors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from compiler_kernels.arithmetic.order import RADIX, SumOrder
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.vec import Vec

UNROLL = 4
BARRIER = '__asm__ volatile("" ::: "memory");'
Finish = Callable[[Code, str, int, int], None]


@dataclass(frozen=True, slots=True)
class Taps:
    """Where a tile reads x, in floats from the address of its first pixel.

    A *unit* is a channel block of ``order``: unit u lies at ``u * unit_step`` or, where ``pair_step`` is not 0, at
    ``u // 2 * pair_step + u % 2 * 8`` (two units of 8 in a block of 16). ``positions`` are the offsets of the kernel
    positions. Channels of a unit of 8 are adjacent. Units of one channel may give ``row``: that many positions in
    succession are equally spaced, by ``positions[1] - positions[0]``. Weights ``ahead`` floats on are fetched into the
    second-level cache meanwhile (0: none). Two blocks' weights lie ``block_step`` floats apart (0:
    one behind the other). Every ``fetch``-th tap fetches one more line from the tile's parameter ``f`` on (0: none).
    """

    order: SumOrder
    positions: tuple[int, ...]
    unit_step: int
    pair_step: int = 0
    row: int = 1
    ahead: int = 0
    block_step: int = 0
    fetch: int = 0

    @property
    def weights(self) -> int:
        """Floats of packed weights that one block of 16 outputs reads; short units are filled up with +0."""
        return self.order.blocks * len(self.positions) * self.order.block * BLOCK


def tile_pixels(isa: Isa, blocks: int) -> int:
    """Most pixels of a tile over ``blocks`` blocks of outputs that leaves room for weights and one broadcast."""
    if isa.lanes == 1:
        return 1
    vectors = blocks * BLOCK // isa.lanes
    return (isa.registers - vectors - 1) // vectors


def tile_blocks(isa: Isa) -> int:
    """Blocks of outputs per tile: two where a block is one register."""
    return 2 if isa.lanes == BLOCK else 1


def tile_scratch(pixels: int, blocks: int, leaves: int) -> int:
    """Floats of scratch of a tile."""
    return pixels * blocks * BLOCK * _levels(leaves)


def _levels(leaves: int) -> int:
    """Tree levels with an open node while the last leaf is in registers."""
    level, rest = 0, leaves - 1
    while rest > 0:
        level, rest = level + 1, rest // RADIX
    return level


def emit_tile(
    code: Code,
    name: str,
    isa: Isa,
    taps: Taps,
    pixels: Sequence[int],
    blocks: int,
    params: Sequence[str],
    finish: Finish,
) -> None:
    """A C function ``name(x, w, <params>, y, t)``: sums for every pixel (``pixels``: offsets in x) and output.

    ``w`` points to the packed weights of the first block of 16 outputs, ``[unit][position][channel][16]``; the next
    block's follow after ``taps.weights`` floats, or ``taps.block_step``. ``t`` is scratch of ``tile_scratch`` floats.
    ``finish(code, sum, pixel, lane)`` writes the statements that use the finished vector ``sum``, whose first lane is
    output ``lane``.
    """
    vec = Vec(isa)
    lanes = range(0, blocks * BLOCK, isa.lanes)
    names = {(p, lane): f"a{p}_{n}" for p in range(len(pixels)) for n, lane in enumerate(lanes)}
    accumulators = list(names.values())
    arguments = ", ".join([*(f"const float *{p}" for p in ("x", "w", *params)), "float *y", "float *t"])
    with code.block(f"static __attribute__((noinline)) void {name}({arguments})"):
        code.add(f"{vec.type} {', '.join(accumulators)};")
        if taps.order.leaves < 2:
            code.add("(void)t;")
        if taps.order.leaves == 0:
            code.add("(void)x, (void)w;", _zero(vec, accumulators))
        else:
            _leaves(code, vec, taps, pixels, blocks, accumulators)
        for (p, lane), accumulator in names.items():
            finish(code, accumulator, p, lane)


def _zero(vec: Vec, accumulators: Sequence[str]) -> str:
    return " ".join(f"{a} = {vec.set1('0.0f')};" for a in accumulators)


def _leaves(code: Code, vec: Vec, taps: Taps, pixels: Sequence[int], blocks: int, accumulators: Sequence[str]) -> None:
    order = taps.order
    leaves, count = order.leaves, len(taps.positions)
    cut = order.positions_per_leaf < count
    if count > 1 and (count > taps.row or cut):
        starts = taps.positions if cut else taps.positions[:: taps.row]
        code.add(f"static const int at[{len(starts)}] = {{{', '.join(map(str, starts))}}};")
    with code.block("for (int s = 0;; s++)" if leaves > 1 else ""):
        code.add(_zero(vec, accumulators))
        if cut:
            _cut_block(code, vec, taps, pixels, blocks)
        else:
            _whole_blocks(code, vec, taps, pixels, blocks)
        if leaves > 1:
            _merge(code, vec, leaves, accumulators)
    if leaves > 1:
        _finish_tree(code, vec, leaves, accumulators)


def _unit(taps: Taps, u: str) -> str:
    if taps.order.blocks == 1:
        return "x"
    if taps.pair_step:
        return f"x + ({u} >> 1) * {taps.pair_step} + ({u} & 1) * 8"
    return linear([("x", 1), (u, taps.unit_step)])


def _whole_blocks(code: Code, vec: Vec, taps: Taps, pixels: Sequence[int], blocks: int) -> None:
    """Leaf ``s`` takes some whole units with all their positions."""
    order, count = taps.order, len(taps.positions)
    per = min(order.blocks_per_leaf, order.blocks)
    with ExitStack() as stack:
        unit = "s" if order.leaves > 1 else "0"
        if per > 1:
            first = f"s * {per}" if order.leaves > 1 else "0"
            stop = f"{first} + {per}"
            if order.blocks % per:
                stop = f"({stop} < {order.blocks} ? {stop} : {order.blocks})"
            stack.enter_context(code.block(f"for (int u = {first}; u < {stop}; u++)"))
            unit = "u"
        code.add(f"const float *xu = {_unit(taps, unit)};")
        if count > taps.row:
            stack.enter_context(code.block(f"for (int k = 0; k < {count // taps.row}; k++)"))
            code.add("const float *xp = xu + at[k];")
        else:
            code.add(f"const float *xp = {linear([('xu', 1)], taps.positions[0])};")
        run, stride = (order.block, 1) if order.block > 1 else (taps.row, _spacing(taps))
        _steps(code, vec, taps, pixels, blocks, run, stride)


def _cut_block(code: Code, vec: Vec, taps: Taps, pixels: Sequence[int], blocks: int) -> None:
    """Leaf ``s`` takes some positions of one unit."""
    order, count = taps.order, len(taps.positions)
    q = order.positions_per_leaf
    cuts = -(-count // q)
    code.add(f"const int k0 = s % {cuts} * {q}, k1 = k0 + {q} < {count} ? k0 + {q} : {count};")
    code.add(f"const float *xu = {_unit(taps, f'(s / {cuts})')};")
    with code.block("for (int k = k0; k < k1; k++)"):
        code.add("const float *xp = xu + at[k];")
        _steps(code, vec, taps, pixels, blocks, order.block, 1)


def _spacing(taps: Taps) -> int:
    return taps.positions[1] - taps.positions[0] if taps.row > 1 else 1


def _steps(code: Code, vec: Vec, taps: Taps, pixels: Sequence[int], blocks: int, run: int, stride: int) -> None:
    """``run`` taps in succession: load the weights once, broadcast x once per pixel."""
    if run > UNROLL and run % UNROLL == 0 and taps.order.block > 1:
        with code.block(f"for (int i = 0; i < {run // UNROLL}; i++, xp += {UNROLL})"):
            _steps(code, vec, taps, pixels, blocks, UNROLL, stride)
        return
    lanes = range(0, blocks * BLOCK, vec.lanes)
    for i in range(run):
        if i and taps.order.block == 1:
            # Neighbouring pixels read the same x at different taps; kept in registers, those would be spilt.
            code.add('__asm__("" : "+r"(xp));')
        weights = []
        for n, lane in enumerate(lanes):
            offset = lane // BLOCK * (taps.block_step or taps.weights) + i * BLOCK + lane % BLOCK
            weights.append(f"w{n} = {vec.load(linear([('w', 1)], offset))}")
        code.add(f"{{ const {vec.type} {', '.join(weights)};")
        if taps.ahead:
            lines = [b * (taps.block_step or taps.weights) + taps.ahead + i * BLOCK for b in range(blocks)]
            code.add(" ".join(f"__builtin_prefetch({linear([('w', 1)], line)}, 0, 2);" for line in lines))
        if taps.fetch and i % taps.fetch == 0:
            code.add(f"__builtin_prefetch({linear([('f', 1)], i // taps.fetch * BLOCK)}, 0, 2);")
        for p, offset in enumerate(pixels):
            value = vec.set1(f"xp[{offset + i * stride}]")
            updates = " ".join(f"a{p}_{n} = {vec.fma('b', f'w{n}', f'a{p}_{n}')};" for n in range(len(lanes)))
            code.add(f"  {{ const {vec.type} b = {value}; {updates} }}")
        code.add("}")
    code.add(f"w += {run * BLOCK};" + (f" f += {run // taps.fetch * BLOCK};" if taps.fetch else ""))


def _merge(code: Code, vec: Vec, leaves: int, accumulators: Sequence[str]) -> None:
    size = len(accumulators) * vec.lanes
    code.add(BARRIER, f"if (s == {leaves - 1}) break;")
    slots = [(a, f"t + {i * vec.lanes}") for i, a in enumerate(accumulators)]
    code.add(f"if (s % {RADIX} == 0) {{ {' '.join(vec.store(t, a) for a, t in slots)} }}")
    code.add(f"else {{ {' '.join(vec.store(t, vec.add(vec.load(t), a)) for a, t in slots)} }}")
    step = RADIX
    with ExitStack() as stack:
        for level in range(1, _levels(leaves)):
            stack.enter_context(code.block(f"if (s % {step} == {step - 1})"))
            first = f"s / {step} % {RADIX} == 0"
            code.add(f"ca1_node(t + {level * size}, {linear([('t', 1)], (level - 1) * size)}, {size}, {first});")
            step *= RADIX


def _finish_tree(code: Code, vec: Vec, leaves: int, accumulators: Sequence[str]) -> None:
    """Add the last leaf, still in registers, to the open node of every level that has one."""
    size = len(accumulators) * vec.lanes
    code.add(BARRIER)
    done = leaves - 1
    for level in range(_levels(leaves)):
        if done % RADIX:
            slots = [(a, linear([("t", 1)], level * size + i * vec.lanes)) for i, a in enumerate(accumulators)]
            code.add(" ".join(f"{a} = {vec.add(vec.load(t), a)};" for a, t in slots))
        done //= RADIX
