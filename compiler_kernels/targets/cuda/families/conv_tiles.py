"""Tile and split of a direct convolution on a GPU: what fits, what it is estimated to cost, and the choice.

Nothing here can change a bit. The sizes repeat those of runtime/cuda/cuvil_conv.h, which asserts that they agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from compiler_kernels.arithmetic.order import RADIX, SumOrder, sum_order
from compiler_kernels.targets.cuda.families.tiles_table import tabled
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.vector.access import Three

ACCUMULATORS: Final = 16
"""Most quads of outputs that a thread holds for a leaf."""
REGISTERS: Final = 65536


def pieces(whole: int, size: int) -> int:
    """``whole`` over ``size``, rounded up."""
    return -(-whole // size)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a tile is chosen by: sizes of one window's sum, and the chip is another argument."""

    batch: int
    units: int
    kernel: Three
    step: Three
    dilation: Three
    extent: Three
    blocks: int
    block_groups: int
    phases: int
    run: bool

    @property
    def key(self) -> tuple[int, ...]:
        return (
            self.batch, self.units, *self.kernel, *self.step, *self.dilation, *self.extent, self.blocks,
            self.block_groups, self.phases, int(self.run),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tile:
    """Lanes: ``quads`` of outputs times 32 / quads rows; a lane holds ``rows`` x ``columns`` pixels, ``outputs`` quads.

    Warps: ``leaves`` at a time times ``groups`` of rows. ``split`` blocks share a sum, by nodes of the tree.
    """

    quads: int
    outputs: int
    leaves: int
    groups: int
    rows: int
    columns: int
    split: int = 1

    @property
    def threads(self) -> int:
        return 32 * self.leaves * self.groups

    @property
    def height(self) -> int:
        """Rows of outputs of a block."""
        return self.groups * (32 // self.quads) * self.rows

    @property
    def pixels(self) -> int:
        return self.height * self.columns

    @property
    def wide(self) -> int:
        """Blocks of 16 outputs."""
        return self.quads * self.outputs // 4

    @property
    def resident(self) -> int:
        """Blocks per multiprocessor the compiler is asked to leave registers for."""
        return max(
            1, min(4, REGISTERS // (self.threads * (128 if self.rows * self.columns * self.outputs > 4 else 80)))
        )

    def with_threads(self, threads: int) -> Tile:
        return replace(self, groups=threads // 32 // self.leaves)

    def tiles(self, shape: Shape) -> tuple[int, int]:
        """Tiles along the rows and along the columns of outputs."""
        if shape.run:
            return pieces(pieces(shape.extent[2], self.columns), self.height), 1
        return -(-shape.extent[1] // self.height), -(-shape.extent[2] // self.columns)

    def grid(self, shape: Shape) -> int:
        rows, columns = self.tiles(shape)
        groups = -(-shape.blocks // self.wide)
        return shape.batch * groups * rows * columns * shape.extent[0] * shape.phases * self.split

    def order(self, shape: Shape) -> SumOrder:
        positions = shape.kernel[0] * shape.kernel[1] * shape.kernel[2]
        return sum_order(shape.units * 8, positions)

    def leaves_in_all(self, shape: Shape) -> int:
        """Leaves of the sum; ``units`` counts whole blocks of 8, as the packed weights do."""
        return max(1, self.order(shape).leaves)

    def workspace(self, shape: Shape) -> int:
        if self.split == 1:
            return 0
        nodes = -(-self.leaves_in_all(shape) // RADIX)
        return self.grid(shape) // self.split * nodes * self.pixels * self.wide * 4 * 16

    def rounds(self, shape: Shape) -> int:
        """Rounds of one block."""
        return pieces(pieces(self.leaves_in_all(shape), self.leaves), self.split)

    def floats(self, shape: Shape) -> tuple[int, int]:
        """Of weights and inputs of one round in shared memory."""
        order = self.order(shape)
        positions = order.positions
        cut = order.positions_per_leaf < positions
        cuts = -(-positions // order.positions_per_leaf)
        per = order.blocks_per_leaf
        steps = order.positions_per_leaf if cut else min(per, shape.units) * positions
        pair = not cut and per * self.leaves % 2 == 0 and shape.units > 1
        channels = 16 if pair else 8
        slots = (self.leaves + cuts - 2) // cuts + 1 if cut else -(-min(per * self.leaves, shape.units) * 8 // channels)
        depth, height, width = shape.kernel
        apart = height > 1 if shape.run else shape.dilation[1] > shape.step[1] * self.height
        rows = (
            height * self.height if apart else (self.height - 1) * shape.step[1] + (height - 1) * shape.dilation[1] + 1
        )
        columns = (self.columns - 1) * shape.step[2] + (width - 1) * shape.dilation[2] + 1
        return self.leaves * self.wide * (steps * 128 + 16), slots * depth * rows * (columns * channels + 4)

    def shared(self, shape: Shape) -> int:
        """Bytes of shared memory."""
        exchange = self.leaves * self.pixels * self.wide * 16 if self.leaves > 1 else 0
        return 4 * (2 if self.rounds(shape) > 1 else 1) * max(sum(self.floats(shape)), exchange)

    def fits(self, shape: Shape, gpu: Gpu) -> bool:
        if shape.block_groups and shape.block_groups % self.wide:
            return False
        if self.split > 1 and (
            self.rounds(shape) * self.leaves % RADIX or self.split > -(-self.leaves_in_all(shape) // RADIX)
        ):
            return False
        if self.leaves > 1 and self.leaves // 2 >= self.leaves_in_all(shape):
            return False
        quads = self.rows * self.columns * self.outputs
        kept = quads * (2 if self.leaves == 1 and self.leaves_in_all(shape) > 1 else 1)
        return quads <= ACCUMULATORS and kept <= 2 * ACCUMULATORS and self.shared(shape) <= gpu.shared_bytes

    def cost(self, shape: Shape, gpu: Gpu) -> float:
        """Estimated microseconds: a sum of terms whose factors were fitted to a sweep (benchmarks/gpu_tiles.py)."""
        order = self.order(shape)
        cut = order.positions_per_leaf < order.positions
        steps = min(order.positions_per_leaf, order.positions) * (1 if cut else min(order.blocks_per_leaf, shape.units))
        quads, rounds = self.rows * self.columns * self.outputs, self.rounds(shape)
        together = pieces(self.grid(shape), gpu.multiprocessors)
        at_once = max(1, min(together, gpu.shared_bytes // max(1, self.shared(shape)), 2048 // self.threads, 8))
        waves = together / at_once
        products = 8 * quads * self.leaves * self.groups * steps * rounds  # cycles of a multiprocessor for one block
        alone = steps * rounds * (32 * quads + 60)  # of one warp that has no other beside it
        return (
            0.95
            + 0.394 * waves * rounds
            + 0.83e-3 * together * products
            + 0.483e-3 * waves * alone
            + 0.62e-4 * together * self.floats(shape)[1] * rounds
            + (0.515 + 0.381 * self.split if self.split > 1 else 0.0)
        )


def candidates(shape: Shape) -> Iterator[Tile]:
    """Tiles worth a try, without those that no shape of this size can use."""
    width = shape.extent[2]
    for quads, outputs in ((4, 1), (8, 1), (8, 2)):
        if quads * outputs // 4 > shape.blocks and (quads, outputs) != (4, 1):
            continue
        for columns in (2, 4, 5, 7, 8, 14):
            if columns > max(2, width + 1):
                continue
            height = -(-width // columns) if shape.run else shape.extent[1]
            for rows in (1, 2, 4):
                for leaves in (1, 2, 4, 8):
                    for groups in (1, 2, 4, 8):
                        if leaves * groups > 16:
                            continue
                        tile = Tile(quads, outputs, leaves, groups, rows, columns)
                        if groups * rows > 1 and tile.height >= 2 * height:
                            continue  # half of it would do
                        for split in (1, 2, 4, 8):
                            yield replace(tile, split=split)


def choose_tile(shape: Shape, gpu: Gpu) -> Tile | None:
    """The tile the table names for ``shape``, else the cheapest by estimate; ``None`` where none fits."""
    row = tabled("direct", gpu, shape.key)
    if row:
        return Tile(*row)
    found = [t for t in candidates(shape) if t.fits(shape, gpu)]
    return min(found, key=lambda t: t.cost(shape, gpu), default=None)
