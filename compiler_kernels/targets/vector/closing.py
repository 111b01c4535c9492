"""Chains of expensive functions after a sum: a loop over the tile in scratch, where unrolled code would be huge.

An inlined erf is about 50 instructions; 28 copies of it in every tile made files that took minutes to compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compiler_kernels.ir.graph import Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, linear
from compiler_kernels.targets.vector.access import Chain, Three

EXPENSIVE: Final = frozenset("sigmoid tanh erf exp log pow softplus elu gelu floor ceil".split())


def is_expensive(ops: Sequence[Op]) -> bool:
    return any(op.kind in EXPENSIVE for op in ops)


def slot(pixel: int, blocks: int, lane: int) -> int:
    """Where in the scratch the vector of ``pixel`` with first output ``lane`` waits."""
    return (pixel * blocks) * BLOCK + lane


def emit_closing(code: Code, chain: Chain, pixels: Sequence[Three], every: Three, blocks: int, tail: int) -> None:
    """Apply ``chain`` to the sums of a tile of rows and columns (``pixels`` row-major) that lie in ``t``."""
    vec = chain.vec
    rows = 1 + max(p[1] for p in pixels)
    columns = len(pixels) // rows
    moving = {"y": chain.y, **chain.accesses}
    across = {n: a.spatial[2] * every[2] for n, a in moving.items()}
    down = {n: a.spatial[1] * every[1] - columns * across[n] for n, a in moving.items()}
    code.add("const float *sums = t;")
    with code.block(f"for (int e = 0; e < {rows}; e++)"):
        with code.block(f"for (int c = 0; c < {columns}; c++, sums += {blocks * BLOCK})"):
            for lane in range(0, blocks * BLOCK, vec.lanes):
                code.add(f"{{ const {vec.type} sum = {vec.load(linear([('sums', 1)], lane))};")
                chain.emit(code, "sum", (0, 0, 0), lane, tail if lane // BLOCK == blocks - 1 else 0)
                code.add("}")
            code.add(_moved(across))
        if rows > 1:
            code.add(_moved(down))


def _moved(steps: dict[str, int]) -> str:
    return " ".join(f"{name} += {step};" for name, step in steps.items() if step)
