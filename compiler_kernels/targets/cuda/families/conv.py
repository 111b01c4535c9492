"""Direct convolution and transposed convolution on blocked values, for weights packed as ``oc16``.

The kernel is the template of runtime/cuda/cuvil_conv.h; this module states its constants. Which tile and split it
gets is a matter of conv_tiles.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import FEW_CHANNELS
from compiler_kernels.ir.bands import rows_of
from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import root_of
from compiler_kernels.targets.cuda.families.blocked import (
    Ending,
    block_kernel,
    by_phase,
    comments,
    constants,
    indented,
)
from compiler_kernels.targets.cuda.families.conv_tiles import Shape, Tile, choose_tile
from compiler_kernels.targets.cuda.families.text import indexable
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import Three, flat_function, full_access, three
from compiler_kernels.targets.vector.conv import axis_taps

WIDE: Final = 16
"""Pixels between the taps of a run beyond which they are copied apart."""


@dataclass(frozen=True, slots=True)
class Window:
    """Outputs ``first + j * every``, j in ``extent``, of one or several phases that differ in place only.

    ``kernel`` positions lie ``dilation`` apart in x, in falling order if ``flip``; output j reads from ``origin + j *
    step`` on. ``run``: the row of outputs is one run of pixels, cut into pieces of a tile's width; kernel rows are taps
    of that row, too.
    """

    kernel: Three
    step: Three
    dilation: Three
    extent: Three
    every: Three
    flip: bool
    run: bool
    origins: tuple[int, ...]  # floats, per phase
    firsts: tuple[Three, ...]
    weights: tuple[int, ...]  # floats before the phase's weights


Chooser = Callable[[Shape, Gpu], Tile | None]


def conv(function: Graph, gpu: Gpu, name: str, choose: Chooser | None = None) -> CudaKernel | None:
    """The kernel of a convolution with at least 16 channels (of a group); ``None`` for any other statement.

    ``choose`` stands in for the table of tiles."""
    op, types = root_of(function), function.types()
    if op.kind not in ("conv", "conv_transpose") or not types[op.operands[1]].layout.startswith("packed oc16 "):
        return None
    x, w = types[op.operands[0]], types[op.operands[1]]
    channels = w.dims[0] if op.kind == "conv_transpose" else w.dims[1]
    if channels < FEW_CHANNELS or not x.layout.startswith("c16"):
        return None
    if not indexable(function):
        return None
    shown, windows = function, windows_of(op, x, w)
    if windows is None:
        return None
    windows, choose = [taps_apart(w) for w in windows], choose or choose_tile
    band = rows_of(function)
    if band:
        if len(windows) > 1 or windows[0].run:
            return None
        choose = _of_the_whole(windows[0].extent, choose)
        windows = [band_of(windows[0], *band, full_access("p0", x).spatial[1])]
    elif is_flat(op, function):
        function = flat_function(function)
        whole = prod(op.out.dims[2:])
        windows = [_plain_window((1, 1, whole), (1, 1, 1), (1, 1, 1), (1, 1, 1), 0, True)]
    return Direct(function, shown, gpu, name, windows).kernel(choose)


def band_of(window: Window, first: int, last: int, row: int) -> Window:
    """The rows ``first`` to ``last`` of a convolution's outputs; ``row``: floats from one row of x to the next."""
    extent = (window.extent[0], last - first, window.extent[2])
    return replace(window, extent=extent, origins=tuple(o + first * window.step[1] * row for o in window.origins))


def _of_the_whole(extent: Three, choose: Chooser) -> Chooser:
    """The tile of a band is that of all rows."""
    return lambda shape, gpu: choose(replace(shape, extent=extent), gpu)


def windows_of(op: Op, x: TensorType, w: TensorType) -> list[Window] | None:
    """The windows of a convolution; ``None`` where an output of a transposed one has no tap."""
    rank = len(w.dims) - 2
    kernel, extent = three(w.dims[2:], 1), three(op.out.dims[2:], 1)
    stride, dilation = three(op.ints("strides"), 1), three(op.ints("dilations"), 1)
    pads, spatial = three(op.ints("pads")[:rank], 0), full_access("x", x).spatial
    if op.kind == "conv":
        origin = -sum(p * s for p, s in zip(pads, spatial, strict=True))
        return [_plain_window(extent, kernel, stride, dilation, origin, extent[:2] == (1, 1) and kernel[:2] == (1, 1))]
    found: dict[tuple[Three, Three, Three], list[tuple[int, Three, int]]] = {}
    weights, blocks = 0, -(-w.dims[1] // BLOCK)
    for first in product(*(range(min(s, e)) for s, e in zip(stride, extent, strict=True))):
        axes = [axis_taps(f, s, d, p, k) for f, s, d, p, k in zip(first, stride, dilation, pads, kernel, strict=True)]
        if not all(axes):
            return None
        counts = three([len(a) for a in axes], 1)
        gaps = three([a[0][1] - a[1][1] if len(a) > 1 else 1 for a in axes], 1)
        count = three([-(-(e - f) // s) for e, f, s in zip(extent, first, stride, strict=True)], 1)
        origin = sum(a[-1][1] * s for a, s in zip(axes, spatial, strict=True))
        found.setdefault((counts, gaps, count), []).append((origin, three(first, 0), weights))
        weights += -(-w.dims[0] // 8) * 8 * prod(counts) * blocks * BLOCK
    windows = []
    for (counts, gaps, count), phases in found.items():
        origins, firsts, starts = zip(*phases, strict=True)
        windows.append(Window(counts, (1, 1, 1), gaps, count, stride, True, False, origins, firsts, starts))
    return windows


def taps_apart(window: Window) -> Window:
    """A run with a wide kernel as one whose taps are rows: a tile then copies what they read, not what lies between."""
    kernel, dilation = window.kernel[2], window.dilation[2]
    if not window.run or (kernel - 1) * (dilation - 1) <= WIDE:
        return window
    return replace(window, kernel=(1, kernel, 1), dilation=(1, dilation, 1))


def _plain_window(extent: Three, kernel: Three, step: Three, dilation: Three, origin: int, run: bool) -> Window:
    if run:  # its rows are pieces of the one axis, whatever the strides along the others are
        step, dilation = (1, 1, step[2]), (1, 1, dilation[2])
    return Window(kernel, step, dilation, extent, (1, 1, 1), False, run, (origin,), ((0, 0, 0),), (0,))


def is_flat(op: Op, function: Graph) -> bool:
    """Whether a 1x1 convolution without halo may run over the whole image as one row."""
    types = function.types()
    values = [t for t in (*(v.type for v in function.inputs), function.ops[-1].out) if t.layout.startswith("c16")]
    dims = op.out.dims[2:]
    same = all((t.dims[2:] == dims or prod(t.dims[2:]) == 1) and not any(t.physical.halo) for t in values)
    kernel = prod(types[op.operands[1]].dims[2:])
    return (
        op.kind == "conv"
        and same
        and bool(function.ops[-1].out.layout)
        and kernel == 1
        and all(s == 1 for s in op.ints("strides"))
        and not any(op.ints("pads"))
    )


class Direct:
    """Emitter of one kernel: a struct of constants per window, and the kernel that shares its blocks among them."""

    def __init__(self, function: Graph, shown: Graph, gpu: Gpu, name: str, windows: Sequence[Window]) -> None:
        op, types = root_of(function), function.types()
        self.function, self.shown, self.gpu, self.name, self.windows = function, shown, gpu, name, windows
        self.x = full_access("p0", types["p0"])
        w = types[op.operands[1]]
        transposed = op.kind == "conv_transpose"
        group = 1 if transposed else op.int_("group")
        self.units = -(-(w.dims[0] if transposed else w.dims[1]) // 8)
        self.blocks = -(-op.out.dims[1] // BLOCK)
        self.block_groups = self.blocks // group if group > 1 else 0
        self.group_step = self.units // 2 * self.x.block
        self.batch = op.out.dims[0]
        self.ending = Ending(function, op.operands[2] if len(op.operands) > 2 else "")

    def shape(self, window: Window) -> Shape:
        return Shape(
            self.batch, self.units, window.kernel, window.step, window.dilation, window.extent, self.blocks,
            self.block_groups, len(window.firsts), window.run,
        )  # fmt: skip

    def kernel(self, choose: Chooser) -> CudaKernel | None:
        tiles = [choose(self.shape(w), self.gpu) for w in self.windows]
        if any(tile is None for tile in tiles):
            return None
        chosen = [tile for tile in tiles if tile is not None]
        # Windows of one kernel share its block size.
        threads = max(t.threads for t in chosen)
        chosen = [t if t.threads == threads else t.with_threads(threads) for t in chosen]
        pairs = [(t, self.shape(w)) for t, w in zip(chosen, self.windows, strict=True)]
        split = any(t.split > 1 for t in chosen)
        if not all(t.fits(s, self.gpu) for t, s in pairs) or (len(pairs) > 1 and split):
            return None
        grids = [t.grid(s) for t, s in pairs]
        lines = [*comments(self.shown), *self.ending.chain_function(self.name)]
        for n, (window, tile) in enumerate(zip(self.windows, chosen, strict=True)):
            lines += self._struct(f"{self.name}_w{n}", window, tile, sum(grids), threads, sum(grids[:n]))
        body, start = [], 0
        for n, grid in enumerate(grids):
            place = f"block - {start}" if start else "block"
            memory = "(float *)workspace, tickets" if split else "nullptr, nullptr"
            arguments = ", ".join([place, "p0", "p1", memory, "y", *self.ending.operands])
            call = f"cuvil_conv<{self.name}_w{n}>::run({arguments});"
            body.append(f"if (block < {start + grid}) return {call}" if n + 1 < len(grids) else call)
            start += grid
        return block_kernel(
            self.function, self.name, lines, body, start, threads, min(t.resident for t in chosen), self.gpu,
            shared=max(t.shared(s) for t, s in pairs), workspace=pairs[0][0].workspace(pairs[0][1]),
            tickets=start // chosen[0].split if split else 0,
        )  # fmt: skip

    def _struct(self, name: str, window: Window, tile: Tile, grid: int, threads: int, first: int) -> list[str]:
        shape = self.shape(window)
        spatial = self.x.spatial
        rows, columns = tile.tiles(shape)
        across = spatial[2] * window.step[2]
        reach = [
            (e - 1) * s + (k - 1) * d + 1
            for e, s, k, d in zip(window.extent, window.step, window.kernel, window.dilation, strict=True)
        ]
        values: dict[str, int | bool] = {
            "LO": tile.quads, "TQ": tile.outputs, "LW": tile.leaves, "PW": tile.groups, "RT": tile.rows,
            "TW": tile.columns, "G": tile.split, "N": self.batch, "UNITS": self.units, "BLOCKS": self.blocks,
            "PHASES": len(window.firsts), "OD": window.extent[0],
            "OH": 1 if window.run else window.extent[1], "OW": window.extent[2],
            "TILE_ROWS": rows, "TILE_COLUMNS": columns,
            **{f"K{a}": v for a, v in zip("DHW", window.kernel, strict=True)},
            **{f"S{a}": v for a, v in zip("DHW", window.step, strict=True)},
            **{f"D{a}": v for a, v in zip("DHW", window.dilation, strict=True)},
            **{f"EVERY_{a}": v for a, v in zip("DHW", window.every, strict=True)},
            "XB": self.x.block, "XD": spatial[0], "XR": tile.columns * across if window.run else spatial[1],
            "ROWS_IN": reach[1], "COLUMNS_IN": reach[2] + (reach[1] - 1 if window.run else 0),
        }  # fmt: skip
        group = f" + block / {self.block_groups} * {self.group_step}" if self.block_groups else ""
        lines = [
            f"struct {name} {{",
            f"    {constants(values)}",
            f"    static constexpr bool RUN = {str(window.run).lower()}, FLIP = {str(window.flip).lower()};",
            "    CUVIL_FN long origin(int n, int block, int d, int phase) { (void)block; return "
            f"(long)n * {self.x.batch} + d * {spatial[0] * window.step[0]} + start(phase){group}; }}",
            f"    {by_phase('start', [self.x.origin + o for o in window.origins])}",
            f"    {by_phase('weights', window.weights)}",
        ]
        for axis, letter in enumerate("dhw"):
            lines.append(f"    {by_phase(f'first_{letter}', [f[axis] for f in window.firsts])}")
        lines += indented(self.ending.finish_function(self.name))
        lines += indented(self.ending.ready_function(grid, threads, first=first))
        lines += ["};"]
        memory = f"sizeof(float) * cuvil_conv<{name}>::BUFFER * cuvil_conv<{name}>::BUFFERS"
        lines.append(
            f"static_assert({memory} == {tile.shared(shape)} && cuvil_conv<{name}>::GRID == {tile.grid(shape)} && "
            f"cuvil_conv<{name}>::WORKSPACE == {tile.workspace(shape)} && "
            f'cuvil_conv<{name}>::THREADS == {tile.threads}, "conv_tiles.py");'
        )
        return lines
