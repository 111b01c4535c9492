"""Tile and split of a Winograd convolution on a GPU. Nothing here can change a bit.

The sizes repeat those of runtime/cuda/cuvil_winograd.h, which asserts that they agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Final

from compiler_kernels.arithmetic.order import RADIX
from compiler_kernels.targets.cuda.families.conv_tiles import REGISTERS, pieces
from compiler_kernels.targets.cuda.families.tiles_table import tabled
from compiler_kernels.targets.cuda.gpu import Gpu

MOST_PAIRS: Final = 4
"""Whose nine taps each a thread holds in registers during a round."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a tile is chosen by: ``axes`` of the form, ``units`` of 8 input channels, ``per`` of them in a leaf,
    ``groups`` of three taps, ``blocks`` of 16 outputs, ``tiles`` of an image; ``taps``: the kernel transforms the
    weights."""

    axes: int
    batch: int
    units: int
    per: int
    groups: int
    blocks: int
    tiles: int
    taps: bool = False

    @property
    def key(self) -> tuple[int, ...]:
        return astuple(self)[:-1]

    @property
    def family(self) -> str:
        """First word of the row in the table."""
        return "taps" if self.taps else "winograd"

    @property
    def positions(self) -> int:
        return 16 if self.axes == 2 else 4

    @property
    def leaves(self) -> int:
        return pieces(self.units, self.per)

    @property
    def per_leaf(self) -> int:
        """Most units of a leaf."""
        return min(self.per, self.units)


@dataclass(frozen=True, slots=True)
class Tile:
    """Lanes: ``quads`` of outputs times 32 / quads tiles; a lane holds ``tiles`` of them and ``outputs`` quads.

    Warps: the positions of ``columns`` of a plane's four (all four of a line) times ``leaves``. ``split`` blocks share
    a sum by nodes of the tree, and blocks of other columns share its tiles. Weights of ``buffers`` rounds are held.
    """

    columns: int
    leaves: int
    split: int
    quads: int
    outputs: int
    tiles: int
    buffers: int = 1

    def local(self, shape: Shape) -> int:
        """Positions of a block."""
        return 4 * self.columns if shape.axes == 2 else 4

    def threads(self, shape: Shape) -> int:
        return 32 * self.local(shape) * self.leaves

    def resident(self, shape: Shape) -> int:
        """Blocks per multiprocessor the compiler is asked to leave registers for."""
        return max(1, min(4, REGISTERS // (self.threads(shape) * 128)))

    @property
    def group(self) -> int:
        """Tiles of a block."""
        return 32 // self.quads * self.tiles

    @property
    def wide(self) -> int:
        """Blocks of 16 outputs."""
        return self.quads * self.outputs // 4

    def members(self, shape: Shape) -> int:
        return (4 // self.columns if shape.axes == 2 else 1) * self.split

    def sums(self, shape: Shape) -> int:
        if shape.axes == 2:
            groups = pieces(shape.batch * shape.tiles, self.group)
        else:
            groups = shape.batch * pieces(shape.tiles, self.group)
        return groups * pieces(shape.blocks, self.wide)

    def grid(self, shape: Shape) -> int:
        return self.sums(shape) * self.members(shape)

    def workspace(self, shape: Shape) -> int:
        if self.members(shape) == 1:
            return 0
        kept = pieces(shape.leaves, RADIX) if self.split > 1 else 1
        return self.sums(shape) * kept * shape.positions * self.group * self.wide * 4 * 16

    def floats(self, shape: Shape) -> tuple[int, int]:
        """Of transformed inputs (or sums) and of weights in shared memory."""
        warps = self.threads(shape) // 32
        row = shape.per_leaf * 8 + 4
        if shape.axes == 2:
            values = warps * self.group * row
        else:
            values = self.leaves * 3 * (2 * (self.group - 1) + 3 * (shape.groups - 1) + 2) * row
        meet = self.leaves > 1 or self.members(shape) == 1
        sums = warps * self.group * self.wide * 16 if meet else 0
        return max(values, sums), warps * self.wide * (shape.per_leaf * shape.groups * 128 + 16)

    def shared(self, shape: Shape) -> int:
        """Bytes of shared memory."""
        values, weights = self.floats(shape)
        return 4 * (values + self.buffers * weights)

    def pairs(self, shape: Shape) -> int:
        """Of the taps of one round, (output, channel) pairs each thread transforms."""
        return pieces(self.leaves * shape.per_leaf * self.wide * 128, self.threads(shape)) if shape.taps else 0

    def rounds(self, shape: Shape) -> int:
        return pieces(pieces(shape.leaves, self.leaves), self.split)

    def fits(self, shape: Shape, gpu: Gpu) -> bool:
        if self.threads(shape) > 512 or self.shared(shape) > gpu.shared_bytes:
            return False
        if self.split > 1 and (self.rounds(shape) * self.leaves % RADIX or self.split > pieces(shape.leaves, RADIX)):
            return False
        if self.buffers > self.rounds(shape):
            return False
        if self.pairs(shape) > MOST_PAIRS:
            return False
        if self.leaves > 1 and self.leaves // 2 >= shape.leaves:
            return False
        if self.wide > 1 and self.wide // 2 >= shape.blocks:
            return False
        return self.tiles * self.outputs <= 8

    def cost(self, shape: Shape, gpu: Gpu) -> float:
        """Estimated microseconds: a sum of terms whose factors were fitted to a sweep (benchmarks/gpu_tiles.py)."""
        threads, rounds = self.threads(shape), self.rounds(shape)
        warps, quads, wide = threads // 32, self.tiles * self.outputs, self.group * self.wide
        together = pieces(self.grid(shape), gpu.multiprocessors)
        at_once = max(1, min(together, gpu.shared_bytes // self.shared(shape), REGISTERS // (threads * 112)))
        waves, steps = together / at_once, shape.per_leaf * shape.groups
        products = 8 * quads * warps * steps * rounds  # cycles of a multiprocessor for one block
        loads = 4 * (self.tiles + 4 * self.outputs) * warps * steps * rounds
        alone = steps * rounds * (32 * quads + 60)  # of one warp that has no other beside it
        inputs = self.leaves * self.group * shape.per_leaf * rounds
        members = self.members(shape)
        return (
            0.883 * waves
            + 0.204 * waves * rounds
            + 0.49e-3 * together * products
            + 0.031e-3 * together * loads
            + 0.75e-3 * waves * alone
            + 0.484e-4 * together * self.floats(shape)[1] * rounds
            + together * inputs * (0.115e-2 + 0.198e-2 * self.columns)
            + (0.035e-2 * together * rounds * warps * wide if self.leaves > 1 else 0.0)
            + 0.52e-2 * together * wide
            + (0.253 * members + 0.0316 * wide if members > 1 else 0.0)
            + (0.099 * waves * rounds if self.buffers < rounds else 0.0)
            + together * rounds * self.pairs(shape) * threads * (0.77e-3 if self.columns == 2 else 0.37e-3)
        )


def candidates(shape: Shape) -> Iterator[Tile]:
    for quads, outputs in ((4, 1), (8, 1), (8, 2)):
        for tiles in (1, 2, 3, 4, 5, 6, 7, 8):
            for columns in (1, 2, 4) if shape.axes == 2 else (4,):
                for leaves in (1, 2, 4):
                    for split in (1, 2, 4):
                        for buffers in (1, 2):
                            yield Tile(columns, leaves, split, quads, outputs, tiles, buffers)


def choose_tile(shape: Shape, gpu: Gpu) -> Tile | None:
    """The tile the table names for ``shape``, else the cheapest by estimate; ``None`` where none fits."""
    row = tabled(shape.family, gpu, shape.key)
    return Tile(*row) if row else cheapest(shape, gpu)


def cheapest(shape: Shape, gpu: Gpu) -> Tile | None:
    """By estimate alone; ``None`` where none fits."""
    found = [t for t in candidates(shape) if t.fits(shape, gpu)]
    return min(found, key=lambda t: t.cost(shape, gpu), default=None)
