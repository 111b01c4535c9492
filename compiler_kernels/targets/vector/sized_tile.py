"""The register tile of a windowed sum of products over sizes known at run time: R outputs x V vectors of columns.

A vector is L consecutive results of a row. Per tap a tile loads V vectors of x and broadcasts R weights, in the order
of arithmetic/order.py; finished leaves wait in memory, one node per level of the summation tree. Where a vector may
leave x, its absent lanes are +0 taps, which give the bits of skipped ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from compiler_kernels.arithmetic.order import RADIX, SumOrder
from compiler_kernels.targets.c.writer import Code, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.sized_chain import load
from compiler_kernels.targets.vector.vec import Vec

MOST_VECTORS = 8


@dataclass(frozen=True, slots=True)
class Weights:
    """Where weights lie, in floats: steps between outputs and channels, and the place of every kernel position."""

    output: int
    channel: int
    positions: tuple[int, ...]


def shape_of(isa: Isa, outputs: int, step: int) -> tuple[list[int], int]:
    """Outputs of every block, and vectors per tile. Gathered vectors are dear, so a tile has one for many outputs."""
    free = isa.registers - 1
    most = (free - 2) * 4 // 5 if step > 2 else 12 if step == 2 and isa.registers > 16 else 8
    most = min(most, 4 if step == 1 and isa.registers <= 16 else most)
    blocks = -(-outputs // most)
    sizes = [outputs // blocks + (b < outputs % blocks) for b in range(blocks)]
    return sizes, max(1, min(MOST_VECTORS, free // (sizes[0] + 1))) if step <= 2 else 1


def levels(leaves: int) -> int:
    """Levels of the tree with an open node while the last leaf is in registers."""
    level, rest = 0, leaves - 1
    while rest > 0:
        level, rest = level + 1, rest // RADIX
    return level


def merge(code: Code, vec: Vec, names: Sequence[str], count: int, leaf: str) -> None:
    """Put the finished leaf number ``leaf`` into the tree ``node`` of ``count`` levels and continue with the next."""
    size = 1
    for level in range(count):
        slots = [(a, f"node + {(level * len(names) + n) * vec.lanes}") for n, a in enumerate(names)]
        stores = " ".join(vec.store(t, a) for a, t in slots)
        place = f"{leaf} / {size} % {RADIX}" if size > 1 else f"{leaf} % {RADIX}"
        code.add(f"if ({place} == 0) {{ {stores} continue; }}")
        code.add(*(f"{a} = {vec.add(vec.load(t), a)};" for a, t in slots))
        code.add(
            stores + " continue;" if level == count - 1 else f"if ({place} != {RADIX - 1}) {{ {stores} continue; }}"
        )
        size *= RADIX


def close(code: Code, vec: Vec, names: Sequence[str], count: int, done: str) -> None:
    """Add the open nodes to the last leaf; ``done`` leaves came before it."""
    size = 1
    for level in range(count):
        part = f"{done} / {size} % {RADIX}" if size > 1 else f"{done} % {RADIX}"
        with code.block(f"if ({part} != 0)"):
            for n, a in enumerate(names):
                code.add(f"{a} = {vec.add(vec.load(f'node + {(level * len(names) + n) * vec.lanes}'), a)};")
        size *= RADIX


def emit_tile(
    code: Code, name: str, vec: Vec, order: SumOrder, weights: Weights, rows: int, vectors: int, step: int, whole: bool
) -> None:
    """A C function ``name(xs, bits, at, plane, w, sums)`` that stores the sums ``[output][vector][lane]``.

    ``xs``: address of every vector's first element; ``bits[vector][position]``: lanes inside x (not read when
    ``whole``); ``at[position]``: floats to a kernel position; ``plane``: floats between channels.
    """
    names = [f"a{r}_{v}" for r in range(rows) for v in range(vectors)]
    count, deep = len(weights.positions), levels(order.leaves)
    head = "const float *const *xs, const unsigned *bits, const int *at, long plane, const float *w, float *sums"
    with code.block(f"static __attribute__((noinline)) void {name}({head})"):
        code.add(f"{vec.type} {', '.join(names)};", "(void)bits;")
        zero = " ".join(f"{a} = {vec.set1('0.0f')};" for a in names)
        if order.leaves == 0:
            code.add("(void)xs, (void)at, (void)plane, (void)w;", zero)
        else:
            if deep:
                code.add(f"float node[{deep * len(names) * vec.lanes}];")
            if count > 1:
                code.add(f"static const int wk[{count}] = {{{', '.join(map(str, weights.positions))}}};")
            code.add(*(f"const float *const x{v} = xs[{v}];" for v in range(vectors)))
            with code.block(f"for (int s = 0; s < {order.leaves}; s++)" if order.leaves > 1 else ""):
                code.add(zero)
                _leaf(code, vec, order, weights, rows, vectors, step, whole)
                if deep:
                    code.add(f"if (s == {order.leaves - 1}) break;")
                    merge(code, vec, names, deep, "s")
            close(code, vec, names, deep, str(order.leaves - 1))
        code.add(*(vec.store(f"sums + {n * vec.lanes}", a) for n, a in enumerate(names)))


def _leaf(
    code: Code, vec: Vec, order: SumOrder, weights: Weights, rows: int, vectors: int, step: int, whole: bool
) -> None:
    count, per, block = len(weights.positions), order.blocks_per_leaf, order.block
    single = order.leaves == 1
    with ExitStack() as stack:
        first_k, last_k = "0", str(count)
        if order.positions_per_leaf < count:
            q = order.positions_per_leaf
            cuts = -(-count // q)
            code.add(f"const int low = s / {cuts} * {block}, k0 = s % {cuts} * {q};")
            code.add(f"const int k1 = k0 + {q} < {count} ? k0 + {q} : {count};")
            first_k, last_k = "k0", "k1"
        elif count == 1:
            block = per * block  # one position: the channels of a leaf follow each other
            code.add(f"const int low = {'0' if single else f's * {block}'};")
        else:
            start = "0" if single else f"s * {per}"
            stop = str(order.blocks) if single else f"{start} + {per}"
            if not single and order.blocks % per:
                stop = f"({stop} < {order.blocks} ? {stop} : {order.blocks})"
            stack.enter_context(code.block(f"for (int b = {start}; b < {stop}; b++)"))
            code.add(f"const int low = b * {block};")
        if block > 1:
            full = order.channels % block == 0
            size = str(block) if full else f"(low + {block} < {order.channels} ? {block} : {order.channels} - low)"
            code.add(f"const int size = {size};")
        code.add(f"const long from = low * plane; const float *const wb = w + low * {weights.channel};")
        if count > 1:
            stack.enter_context(code.block(f"for (int k = {first_k}; k < {last_k}; k++)"))
        k = "k" if count > 1 else "0"
        code.add(*(f"const float *q{v} = x{v} + from + at[{k}];" for v in range(vectors)))
        code.add(f"const float *wt = wb + {'wk[k]' if count > 1 else weights.positions[0]};")
        if not whole:
            code.add(*(f"const unsigned m{v} = bits[{linear([(k, 1)], v * count)}];" for v in range(vectors)))
        with code.block("for (int c = 0; c < size; c++)" if block > 1 else ""):
            for v in range(vectors):
                code.add(f"const {vec.type} v{v} = {load(vec, f'q{v}', '' if whole else f'm{v}', step)};")
            for r in range(rows):
                code.add(f"{{ const {vec.type} wr = {vec.set1(f'wt[{r * weights.output}]')};")
                code.add(" ".join(f"a{r}_{v} = {vec.fma(f'v{v}', 'wr', f'a{r}_{v}')};" for v in range(vectors)) + " }")
            if block > 1:
                code.add(f"wt += {weights.channel}; " + " ".join(f"q{v} += plane;" for v in range(vectors)))
