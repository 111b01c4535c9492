"""Sums of products in the order of docs/arithmetic.md, section 3, as nested loops over leaves and nodes of the tree.

A leaf is ``tl.dot(..., acc, input_precision="ieee")`` over its products, which Triton lowers to one fma chain per
result in the order of k (its FMA path; no matrix instruction and no reduction). Nodes are explicit additions. Two
things are not those of the text, and give the same bits by 3.4 and 3.5: a node starts from +0 instead of its first
value, and products beyond the end of a leaf are fma(+0, +0, acc).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from compiler_kernels.arithmetic.order import RADIX
from compiler_kernels.targets.triton.text import Lines

SMALL_STEP: Final = 16
LARGE_STEP: Final = 32
PIPELINE_BYTES: Final = 40 * 1024
"""Of shared memory for loads under way; the rest is for what Triton exchanges between threads otherwise."""
DOT: Final = 'tl.dot(a, b, acc, input_precision="ieee", max_num_imprecise_acc=1)'
"""The last argument means nothing to an fma, but without it Triton turns ``dot(a, b, 0) + bias`` into ``dot(a, b,
bias)``: the bias would begin the chain instead of ending the sum (pass triton-combine)."""


def step_of(taps: int) -> int:
    """Products of one ``tl.dot``: at least 16, which Triton wants."""
    return LARGE_STEP if taps % LARGE_STEP == 0 else SMALL_STEP


def stages_of(taps: int, rows: int, columns: int) -> int:
    """Stages of the loads of a leaf: as many as shared memory holds, one less in memory than in flight."""
    step = step_of(taps)
    leaf = -(-taps // step) * step * (rows + columns) * 4
    return 3 if 2 * leaf <= PIPELINE_BYTES else 2


def tree(lines: Lines, leaves: int, rows: int, columns: int, leaf: Callable[[Lines, str], None]) -> str:
    """The name of the total. ``leaf(lines, number)`` adds to ``acc`` the products of the leaf called ``number``."""
    zeros = f"tl.zeros(({rows}, {columns}), tl.float32)"
    levels = 0
    while RADIX**levels < leaves:
        levels += 1
    if levels == 0:
        lines.add(f"acc = {zeros}")
        leaf(lines, "0")
        return "acc"

    def level(height: int, first: str, name: str) -> None:
        """Node ``name`` of the leaves from ``first`` on that a node of this height has."""
        each = RADIX ** (height - 1)
        span = RADIX**height
        lines.add(f"{name} = {zeros}")
        end = str(leaves) if first == "0" and span >= leaves else f"{first} + {span}"
        if leaves % span and first != "0":
            end = f"tl.minimum({end}, {leaves})"
        at = f"leaf{height - 1}"
        with lines.block(f"for {at} in range({first}, {end}, {each}):"):
            if height == 1:
                lines.add(f"acc = {zeros}")
                leaf(lines, at)
                lines.add(f"{name} = {name} + acc")
            else:
                below = f"node{height - 1}"
                level(height - 1, at, below)
                lines.add(f"{name} = {name} + {below}")

    level(levels, "0", "total")
    return "total"


def tile_of(rows: int, columns: int, others: int, multiprocessors: int, most_columns: int) -> tuple[int, int]:
    """Rows and columns of a program's tile: the largest of which there are two for every multiprocessor."""
    widths = [c for c in (64, 32, 16) if c <= max(16, most_columns)]
    heights = [r for r in (64, 32, 16) if r < 2 * rows or r == 16]
    shapes = sorted(((r, c) for r in heights for c in widths if r * c <= 2048), key=lambda s: (-s[0] * s[1], -s[1]))
    for r, c in shapes:
        if -(-rows // r) * -(-columns // c) * others >= 2 * multiprocessors:
            return r, c
    return shapes[-1]
