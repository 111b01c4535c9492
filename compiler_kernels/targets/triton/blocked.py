"""Kernels that write blocked values: convolutions direct and depthwise, elementwise chains."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import BLOCK as UNIT
from compiler_kernels.arithmetic.order import FEW_CHANNELS, sum_order
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.passes.fuse import ELEMENTWISE
from compiler_kernels.targets.c.writer import root_of
from compiler_kernels.targets.cuda.families.text import ONE, computes_floats, indexable
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.triton.form import Form
from compiler_kernels.targets.triton.products import load, mask
from compiler_kernels.targets.triton.sums import DOT, stages_of, step_of, tile_of, tree
from compiler_kernels.targets.triton.text import Lines, chain, grid_address, linear
from compiler_kernels.targets.vector.access import (
    Access,
    Chain,
    Three,
    full_access,
    operand_access,
    plain_access,
    three,
)

ELEMENTS: Final = 1024
"""Of a program of an elementwise kernel."""


class Result:
    """The blocked (or plain) result of a function: the end of its sum, the fused operations, stores and halo.

    Statements may use ``n``, ``d``, ``h``, ``w`` (vectors of positions) and ``o`` (a vector of channels).
    """

    def __init__(self, function: Graph, bias: str, skip_root: bool = True) -> None:
        types = function.types()
        self.out = function.ops[-1].out
        self.dims = three(self.out.dims[2:], 1)
        self.chain = Chain(function, ONE, skip_root)
        self.bias = operand_access(bias, types[bias], self.out) if bias else None
        self.y = full_access("y", self.out) if self.out.layout else plain_access("y", self.out)
        self.channels = self.out.dims[1]

    @property
    def stored(self) -> int:
        """Channels in memory."""
        return -(-self.channels // BLOCK) * BLOCK if self.out.layout else self.channels

    def address(self, access: Access) -> tuple[str, list[bool]]:
        """A grid of addresses, positions down and channels across, and which of the two move."""
        down = linear([("n", access.batch), *zip("dhw", access.spatial, strict=True)], access.origin)
        moves = bool(access.batch or any(access.spatial))
        across = "0" if access.broadcast else channel_offset(access.block)
        pointer = access.name if moves or not access.origin else f"{access.name} + {access.origin}"
        return grid_address(pointer, down if moves else "0", across), [moves, across != "0"]

    def read(self, lines: Lines, access: Access, name: str, rows: str, columns: str) -> None:
        place, (down, across) = self.address(access)
        lines.add(load(name, place, [m for m, moves in ((rows, down), (columns, across)) if m and moves]))

    def finish(self, lines: Lines, total: str, rows: str, columns: int) -> None:
        """Bias, fused operations and the store; ``rows`` is the condition of existing positions, ``columns`` how many
        channels the tiles span together."""
        inside = f"(o < {self.stored})[None, :]" if columns > self.stored else ""
        down = f"({rows})[:, None]" if rows else ""
        if self.bias:
            self.read(lines, self.bias, "bias", down, inside)
        lines.add(f"t = {total} + {'bias' if self.bias else '0.0'}")
        names = {"t0": "t"}
        for operand, access in self.chain.accesses.items():
            self.read(lines, access, f"e_{operand}", down, inside)
            names[operand] = f"e_{operand}"
        result = chain(lines, self.chain.ops, names, "t")
        self.store(lines, result, down, inside)

    def store(self, lines: Lines, result: str, down: str, inside: str) -> None:
        if self.stored > self.channels:
            result = f"tl.where((o < {self.channels})[None, :], {result}, 0.0)"
        if self.out.layout:
            place, _ = self.address(self.y)
        else:
            down_offset = linear([("n", self.y.batch), *zip("dhw", self.y.spatial, strict=True)])
            place = grid_address("y", down_offset, linear([("o", self.y.block)]))
        lines.add(f"tl.store({place}, {result}{mask([m for m in (down, inside) if m])})")

    def halo(self, lines: Lines, programs: int) -> None:
        """Zeros around the result, which the programs share."""
        halo = three(self.out.physical.halo, 0) if self.out.layout else (0, 0, 0)
        if not any(halo):
            return
        sizes = [s + 2 * w for s, w in zip(self.dims, halo, strict=True)]
        elements = self.out.dims[0] * self.stored * prod(sizes)
        each = 32
        while each * programs < elements:
            each *= 2
        if each > 8 * ELEMENTS:
            with lines.block(f"for piece in range(0, {each // ELEMENTS}):"):
                self._zeros(lines, f"(pid * {each // ELEMENTS} + piece) * {ELEMENTS}", ELEMENTS, sizes, halo, elements)
        else:
            self._zeros(lines, f"pid * {each}", each, sizes, halo, elements)

    def _zeros(
        self, lines: Lines, first: str, count: int, sizes: Sequence[int], halo: Sequence[int], elements: int
    ) -> None:
        lines.add(f"e = {first} + tl.arange(0, {count})")
        lines.split(f"(e // {BLOCK})", [elements // BLOCK // prod(sizes), *sizes], ["eo", "ed", "eh", "ew"])
        outside = [f"(e{a} < {w}) | (e{a} >= {s + w})" for a, s, w in zip("dhw", self.dims, halo, strict=True) if w]
        lines.add(f"tl.store(y + e, tl.zeros(({count},), tl.float32), mask=({' | '.join(outside)}) & (e < {elements}))")


def channel_offset(block: int) -> str:
    """Of channel ``o`` in blocks of 16 that lie ``block`` apart."""
    return f"o // {BLOCK} * {block} + o % {BLOCK}" if block != BLOCK else "o"


def positions(lines: Lines, result: Result, first: str, count: int) -> str:
    """Declare ``n``, ``d``, ``h``, ``w`` of ``count`` positions; the condition of those that exist, if any do not."""
    total = result.out.dims[0] * prod(result.dims)
    lines.add(f"m = {first} + tl.arange(0, {count})")
    lines.split("m", [result.out.dims[0], *result.dims], ["n", "d", "h", "w"])
    return f"m < {total}" if total % count else ""


def convolution(function: Graph, gpu: Gpu) -> Form | None:
    """A direct convolution with weights packed as ``oc16``; ``None`` for any other statement."""
    op, types = root_of(function), function.types()
    if op.kind != "conv" or not types[op.operands[1]].layout.startswith("packed oc16 ") or not indexable(function):
        return None
    x_type, w = types[op.operands[0]], types[op.operands[1]]
    planar, few = x_type.layout.startswith("planar"), w.dims[1] < FEW_CHANNELS
    if not (x_type.layout.startswith("c16") or (planar and few)):
        return None
    result, x = Result(function, op.operands[2] if len(op.operands) > 2 else ""), full_access("x", x_type)
    kernel, pads, stride, dilation = _window(function)
    count, group = prod(kernel), op.int_("group")
    order = sum_order(w.dims[1], count)
    unit = 1 if few else UNIT
    depth = -(-w.dims[1] // unit) * unit * count  # of one output, in packed order
    whole = order.positions_per_leaf >= count
    taps = unit * (order.blocks_per_leaf * count if whole else order.positions_per_leaf)
    step = step_of(min(taps, depth))
    total = result.out.dims[0] * prod(result.dims)
    blocks = -(-result.channels // BLOCK)
    high, wide = tile_of(total, blocks * BLOCK, 1, gpu.multiprocessors, BLOCK if group > 1 else blocks * BLOCK)
    row_tiles, column_tiles = -(-total // high), -(-blocks * BLOCK // wide)
    lines = Lines()
    lines.add("pid = tl.program_id(0)")
    result.halo(lines, row_tiles * column_tiles)
    lines.split("pid", [column_tiles, row_tiles], ["column_tile", "row_tile"])
    exists = positions(lines, result, f"row_tile * {high}", high)
    lines.add(f"o = column_tile * {wide} + tl.arange(0, {wide})")
    corner, origin = _corner(x, pads, stride)
    grouped = [(f"(column_tile // {blocks // group})", w.dims[1] // BLOCK * x.block)] if group > 1 else []
    lines.add(f"left = p0 + {linear([*corner, *grouped], origin)}")
    lines.add(f"right = p1 + o // {BLOCK} * {depth * BLOCK} + o % {BLOCK}")
    here = [f"({exists})[:, None]"] if exists else []
    there = [f"(o < {blocks * BLOCK})[None, :]"] if blocks * BLOCK % wide else []
    if whole:
        leaves = -(-depth // taps)
        some = [f"i < {depth} - first"] if depth % taps else []
    else:
        parts = -(-count // order.positions_per_leaf)
        leaves = order.blocks * parts
        some = []
    inside = [f"i < {taps}"] if taps % step and taps <= depth else []

    def leaf(inner: Lines, which: str) -> None:
        size, kept = min(taps, depth), [*some, *inside]
        if whole:
            inner.add(f"first = {which} * {taps}")
            outer, taken = _whole_leaf_offset(x, planar, unit, kernel, dilation, which, order.blocks_per_leaf)
        else:
            inner.add(f"part = {which} % {parts}")
            inner.add(f"first = {which} // {parts} * {unit * count} + part * {taps}")
            outer, taken = "0", _tap_offset(x, planar, unit, kernel, dilation, "(first + i)")
            if count % order.positions_per_leaf or taps % step:
                kept = [f"i < tl.minimum({taps}, {unit * count} - part * {taps})"]
        with inner.block(f"for j in tl.static_range(0, {-(-size // step)}):"):
            inner.add(f"i = j * {step} + tl.arange(0, {step})")
            if kept:
                inner.add(f"some = {' & '.join(f'({m})' for m in kept)}")
            inner.add(f"taken = {taken}")
            of_left = [*here, *(["some[None, :]"] if kept else [])]
            of_right = [*there, *(["some[:, None]"] if kept else [])]
            inner.add(load("a", f"left[:, None] + ({outer}) + taken[None, :]", of_left))
            inner.add(load("b", f"right[None, :] + first * {BLOCK} + (i * {BLOCK})[:, None]", of_right))
            inner.add(f"acc = {DOT}")

    result.finish(lines, tree(lines, leaves, high, wide, leaf), exists, column_tiles * wide)
    return Form(lines, row_tiles * column_tiles, 4, stages_of(min(taps, depth), high, wide))


def _window(function: Graph) -> tuple[Three, Three, Three, Three]:
    """Kernel, pads at the beginning, strides, dilations."""
    op = root_of(function)
    kernel = function.types()[op.operands[1]].dims[2:]
    return (
        three(kernel, 1),
        three(op.ints("pads")[: len(kernel)], 0),
        three(op.ints("strides"), 1),
        three(op.ints("dilations"), 1),
    )


def _corner(x: Access, pads: Three, stride: Three) -> tuple[list[tuple[str, int]], int]:
    """Where the first tap of an output at ``n``, ``d``, ``h``, ``w`` lies: terms and a constant, in floats."""
    steps = [a * b for a, b in zip(stride, x.spatial, strict=True)]
    origin = x.origin - sum(p * s for p, s in zip(pads, x.spatial, strict=True))
    return [("n", x.batch), *zip("dhw", steps, strict=True)], origin


def _within_window(x: Access, kernel: Three, dilation: Three, position: str) -> list[tuple[str, int]]:
    """Terms, in floats, of tap ``position`` of the window."""
    terms, below = [], prod(kernel)
    for size, gap, step in zip(kernel, dilation, x.spatial, strict=True):
        below //= size
        if size > 1:
            terms.append((f"({position} // {below} % {size})", gap * step))
    return terms


def _tap_offset(
    x: Access, planar: bool, unit: int, kernel: Three, dilation: Three, tap: str, one_block: bool = False
) -> str:
    """Floats from the first tap of an output to tap ``tap`` of its sum: (channel block, position, channel in block)."""
    count = prod(kernel)
    position = f"({tap} // {unit} % {count})" if count > 1 else ""
    block = f"({tap} // {unit * count})"
    terms: list[tuple[str, int]] = [] if one_block else [(block, x.block if planar else 1)]
    if unit > 1:
        terms = [] if one_block else [(f"({block} // 2)", x.block), (f"({block} % 2)", unit)]
        terms.append((f"({tap} % {unit})", 1))
    return linear([*terms, *_within_window(x, kernel, dilation, position)])


def _whole_leaf_offset(
    x: Access, planar: bool, unit: int, kernel: Three, dilation: Three, leaf: str, blocks: int
) -> tuple[str, str]:
    """The offset of a leaf of whole blocks, and that of its tap ``i`` from there, which is the same in every leaf."""
    inner = _tap_offset(x, planar, unit, kernel, dilation, "i", blocks == 1)
    if leaf == "0":
        return "0", inner
    if unit == 1:
        return linear([(leaf, blocks * (x.block if planar else 1))]), inner
    if blocks > 1:
        assert blocks % 2 == 0, blocks
        return linear([(leaf, blocks // 2 * x.block)]), inner
    return linear([(f"({leaf} // 2)", x.block), (f"({leaf} % 2)", unit)]), inner


def depthwise(function: Graph, gpu: Gpu) -> Form | None:
    """A convolution with one channel per group: one leaf, an fma for every position."""
    op, types = root_of(function), function.types()
    if op.kind != "conv" or not types[op.operands[1]].layout.startswith("packed dw16 ") or not indexable(function):
        return None
    result, x = Result(function, op.operands[2] if len(op.operands) > 2 else ""), full_access("p0", types["p0"])
    kernel, pads, stride, dilation = _window(function)
    count, total, high = prod(kernel), result.out.dims[0] * prod(result.dims), 64
    blocks, row_tiles = -(-result.channels // BLOCK), -(-total // high)
    lines = Lines()
    lines.add("pid = tl.program_id(0)")
    result.halo(lines, row_tiles * blocks)
    lines.split("pid", [blocks, row_tiles], ["block", "row_tile"])
    exists = positions(lines, result, f"row_tile * {high}", high)
    lines.add(f"o = block * {BLOCK} + tl.arange(0, {BLOCK})")
    corner, origin = _corner(x, pads, stride)
    lines.add(f"left = {grid_address('p0', linear(corner, origin), channel_offset(x.block))}")
    lines.add(f"right = p1 + block * {count * BLOCK} + (o % {BLOCK})", f"acc = tl.zeros(({high}, {BLOCK}), tl.float32)")
    here = [f"({exists})[:, None]"] if exists else []
    with lines.block(f"for k in tl.static_range(0, {count}):"):
        lines.add(load("a", f"left + {linear(_within_window(x, kernel, dilation, 'k'))}", here))
        lines.add(f"b = tl.load(right + k * {BLOCK})[None, :]")
        lines.add(f"acc = tl.math.fma(a, tl.broadcast_to(b, ({high}, {BLOCK})), acc)")
    result.finish(lines, "acc", exists, blocks * BLOCK)
    return Form(lines, row_tiles * blocks, 4)


def pointwise(function: Graph, gpu: Gpu) -> Form | None:
    """An elementwise chain whose result is blocked."""
    kind = function.ops[0].kind
    if not computes_floats(function) or (kind not in ELEMENTWISE and kind != "affine"):
        return None
    if not function.ops[-1].out.layout.startswith("c16"):
        return None
    result = Result(function, "", skip_root=False)
    high = ELEMENTS // BLOCK
    total = result.out.dims[0] * prod(result.dims)
    blocks, row_tiles = -(-result.channels // BLOCK), -(-total // high)
    lines = Lines()
    lines.add("pid = tl.program_id(0)")
    result.halo(lines, row_tiles * blocks)
    lines.split("pid", [blocks, row_tiles], ["block", "row_tile"])
    exists = positions(lines, result, f"row_tile * {high}", high)
    lines.add(f"o = block * {BLOCK} + tl.arange(0, {BLOCK})")
    down = f"({exists})[:, None]" if exists else ""
    names = {}
    for operand, access in result.chain.accesses.items():
        result.read(lines, access, f"e_{operand}", down, "")
        names[operand] = f"e_{operand}"
    found = chain(lines, result.chain.ops, names, "")
    lines.add(f"whole = tl.zeros(({high}, {BLOCK}), tl.float32)")
    result.store(lines, f"tl.where(whole == 0.0, {found}, whole)", down, "")
    return Form(lines, row_tiles * blocks, 4)
