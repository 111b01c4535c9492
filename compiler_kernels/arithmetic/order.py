"""The order of a sum of products: taps, leaves and the radix-8 tree (docs/arithmetic.md, "Sum of products")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

BLOCK: Final = 8
LEAF_TAPS: Final = 72
LEAF_TARGET: Final = 64
FEW_CHANNELS: Final = 16
"""Below this, blocks of one channel and leaves of about ``FEW_TARGET`` taps: few channels mean few leaves, and a single
chain of 27 or 72 taps was measured at 1.2 to 1.5 times onnxruntime's error (docs/decisions.md)."""
FEW_TARGET: Final = 16
RADIX: Final = 8
ROW_LANES: Final = 16
SUM_LEAF: Final = 64


@dataclass(frozen=True, slots=True)
class SumOrder:
    """Order of one output element's sum over ``channels`` (of the group) x ``positions`` (kernel positions).

    Taps run (channel block, position, channel in block). Either a leaf takes ``blocks_per_leaf`` whole channel blocks
    (``positions_per_leaf == positions``), or each block is cut into leaves of ``positions_per_leaf`` positions
    (``blocks_per_leaf == 1``).
    """

    channels: int
    positions: int
    block: int
    blocks_per_leaf: int
    positions_per_leaf: int

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.block)

    @property
    def leaves(self) -> int:
        if self.channels == 0 or self.positions == 0:
            return 0
        if self.positions_per_leaf >= self.positions:
            return -(-self.blocks // self.blocks_per_leaf)
        return self.blocks * -(-self.positions // self.positions_per_leaf)

    def leaf_taps(self) -> Iterator[list[tuple[int, int]]]:
        """The (channel, position) pairs of every leaf, in order."""
        for first in range(0, self.blocks, self.blocks_per_leaf):
            last = min(first + self.blocks_per_leaf, self.blocks)
            for start in range(0, self.positions, self.positions_per_leaf):
                stop = min(start + self.positions_per_leaf, self.positions)
                yield [
                    (channel, position)
                    for b in range(first, last)
                    for position in range(start, stop)
                    for channel in range(b * self.block, min((b + 1) * self.block, self.channels))
                ]


def sum_order(channels: int, positions: int, target: int = 0) -> SumOrder:
    """The order for ``channels`` input channels per group and ``positions`` kernel positions.

    GEMM and MatMul are ``positions == 1`` with K as the channels. ``target`` is the L of a
    Winograd form's name, whose blocks hold 8 channels from 8 on; 0: L and blocks follow from the channels as in 3.1.
    """
    if target:
        block = BLOCK if channels >= BLOCK else 1
    else:
        block, target = (BLOCK, LEAF_TARGET) if channels >= FEW_CHANNELS else (1, FEW_TARGET)
    per_leaf = LEAF_TAPS // block
    if positions <= per_leaf:
        return SumOrder(channels, positions, block, max(1, target // (block * max(1, positions))), max(1, positions))
    return SumOrder(channels, positions, block, 1, per_leaf)
