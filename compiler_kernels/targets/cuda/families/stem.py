"""Direct convolution of fewer than 16 channels: the first layer of most networks (runtime/cuda/cuvil_stem.h)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import FEW_CHANNELS, LEAF_TAPS
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import root_of
from compiler_kernels.targets.cuda.families.blocked import (
    Ending,
    block_kernel,
    comments,
    constants,
    indented,
)
from compiler_kernels.targets.cuda.families.conv import Window, windows_of
from compiler_kernels.targets.cuda.families.conv_tiles import Tile, pieces
from compiler_kernels.targets.cuda.families.text import indexable
from compiler_kernels.targets.cuda.families.tiles_table import tabled
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import full_access

MOST_COLUMNS: Final = 40
"""Values of a row of x that a thread holds."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a tile is chosen by."""

    window: Window
    channels: int
    blocks: int
    batch: int

    @property
    def key(self) -> tuple[int, ...]:
        w = self.window
        return (self.batch, self.channels, *w.kernel, *w.step, *w.dilation, *w.extent, self.blocks, int(w.run))


def stem(
    function: Graph, gpu: Gpu, name: str, choose: Callable[[Shape, Gpu], Tile | None] | None = None
) -> CudaKernel | None:
    """The kernel of a convolution of one group and fewer than 16 channels; ``None`` for any other statement.

    ``choose`` stands in for the table of tiles."""
    op, types = root_of(function), function.types()
    if op.kind != "conv" or not types[op.operands[1]].layout.startswith("packed oc16 "):
        return None
    x_type, w = types[op.operands[0]], types[op.operands[1]]
    if w.dims[1] >= FEW_CHANNELS or op.int_("group") != 1 or not 0 < prod(w.dims[2:]) <= LEAF_TAPS:
        return None
    if not indexable(function):
        return None
    windows = windows_of(op, x_type, w)
    if not windows:
        return None
    window, x = windows[0], full_access("p0", x_type)
    planar = x_type.layout.startswith("planar")
    channels, blocks, batch = w.dims[1], pieces(op.out.dims[1], BLOCK), op.out.dims[0]
    tile = (choose or choose_tile)(Shape(window, channels, blocks, batch), gpu)
    if tile is None:
        return None
    ending = Ending(function, op.operands[2] if len(op.operands) > 2 else "")
    lane = 1 if planar else BLOCK
    rows, columns = _tiles(tile, window)
    reach = [
        (e - 1) * s + (k - 1) * d + 1
        for e, s, k, d in zip(window.extent, window.step, window.kernel, window.dilation, strict=True)
    ]
    grid = batch * pieces(blocks, tile.wide) * window.extent[0] * rows * columns
    values: dict[str, int | bool] = {
        "LO": tile.quads, "PW": tile.groups, "RT": tile.rows, "TW": tile.columns, "C": channels, "N": batch,
        "BLOCKS": blocks, "OD": window.extent[0], "OH": 1 if window.run else window.extent[1], "OW": window.extent[2],
        "TILE_ROWS": rows, "TILE_COLUMNS": columns,
        **{f"K{a}": v for a, v in zip("DHW", window.kernel, strict=True)},
        **{f"S{a}": v for a, v in zip("DHW", window.step, strict=True)},
        **{f"D{a}": v for a, v in zip("DHW", window.dilation, strict=True)},
        "XN": x.batch, "XC": x.block if planar else 1, "XD": x.spatial[0],
        "XR": tile.columns * window.step[2] * lane if window.run else x.spatial[1],
        "ORIGIN": x.origin + window.origins[0], "ROWS_IN": reach[1], "COLUMNS_IN": reach[2],
    }  # fmt: skip
    shared = _shared(tile, window, channels)
    head = [
        *comments(function),
        *ending.chain_function(name),
        f"struct {name}_p {{",
        f"    {constants(values)}",
        f"    static constexpr bool RUN = {str(window.run).lower()}, PLANAR = {str(planar).lower()};",
        *indented(ending.finish_function(name)),
        *indented(ending.ready_function(grid, tile.threads)),
        "};",
        f"static_assert(cuvil_stem<{name}_p>::SHARED == {shared} && cuvil_stem<{name}_p>::GRID == {grid} && "
        f'cuvil_stem<{name}_p>::THREADS == {tile.threads}, "stem.py");',
    ]
    body = [f"cuvil_stem<{name}_p>::run({', '.join(['block', 'p0', 'p1', 'y', *ending.operands])});"]
    return block_kernel(function, name, head, body, grid, tile.threads, 1, gpu, shared=shared)


def _tiles(tile: Tile, window: Window) -> tuple[int, int]:
    if window.run:
        return pieces(pieces(window.extent[2], tile.columns), tile.height), 1
    return pieces(window.extent[1], tile.height), pieces(window.extent[2], tile.columns)


def _columns(tile: Tile, window: Window) -> int:
    return (tile.columns - 1) * window.step[2] + (window.kernel[2] - 1) * window.dilation[2] + 1


def _shared(tile: Tile, window: Window, channels: int) -> int:
    """Bytes of shared memory: the window of x and the weights, as in cuvil_stem.h."""
    quads = pieces(_columns(tile, window), 4)
    rows = (tile.height - 1) * window.step[1] + (window.kernel[1] - 1) * window.dilation[1] + 1
    taps = channels * prod(window.kernel)
    x = channels * window.kernel[0] * rows * (quads * 4 + (0 if quads % 2 else 4))
    return 4 * (x + tile.wide * (taps * 16 + (0 if taps % 2 else 16)))


def choose_tile(shape: Shape, gpu: Gpu) -> Tile | None:
    """The tile the table names for ``shape``, else the cheapest by estimate; ``None`` where none fits."""
    row = tabled("stem", gpu, shape.key)
    if row:
        return Tile(*row)
    return min(candidates(shape, gpu), key=lambda t: cost(t, shape, gpu), default=None)


def candidates(shape: Shape, gpu: Gpu) -> list[Tile]:
    """Tiles that fit."""
    most = gpu.shared_bytes // 2
    found = _candidates(shape.window, shape.blocks)
    return [t for t in found if _shared(t, shape.window, shape.channels) <= most]


def _candidates(window: Window, blocks: int) -> Iterator[Tile]:
    for quads in (4, 8):
        if quads > 4 * blocks:
            continue
        for columns in (2, 4, 7, 8, 14, 16):
            for rows in (1, 2):
                for groups in (1, 2, 4, 8):
                    tile = Tile(quads, 1, 1, groups, rows, columns)
                    if columns * rows <= 16 and _columns(tile, window) <= MOST_COLUMNS:
                        yield tile


def cost(tile: Tile, shape: Shape, gpu: Gpu) -> float:
    """Estimated cycles of one multiprocessor."""
    window, channels, blocks, batch = shape.window, shape.channels, shape.blocks, shape.batch
    rows, columns = _tiles(tile, window)
    grid = batch * pieces(blocks, tile.wide) * window.extent[0] * rows * columns
    lines = channels * window.kernel[0] * window.kernel[1] * tile.rows
    width = window.kernel[2]
    sums = lines * width * tile.columns * 4 * tile.groups / 4
    loads = lines * (pieces(_columns(tile, window), 4) + width) * 2 * tile.groups
    copies = _shared(tile, window, channels) / 4 * 0.25
    together = pieces(grid, gpu.multiprocessors)
    busy = min(1.0, tile.groups * together / 10)
    return together * (max(sums / busy, float(loads)) + copies) + 1500
