"""Convolution family: dense and grouped convolution and transposed convolution on blocked activations.

The layout pass (passes/layouts.py) decides which statements come here: it packs their weights as ``oc16``.
"""

from __future__ import annotations

from itertools import product
from math import prod

from compiler_kernels.arithmetic.order import BLOCK as UNIT
from compiler_kernels.arithmetic.order import sum_order
from compiler_kernels.arithmetic.winograd import WINOGRAD
from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Kernel, root_of
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import Three, flat_function, full_access, three
from compiler_kernels.targets.vector.tile import Taps
from compiler_kernels.targets.vector.window import Window, emit_slide
from compiler_kernels.targets.vector.winograd_line import Line
from compiler_kernels.targets.vector.winograd_plane import Plane


def winograd(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """Convolution in a Winograd form over blocked values; ``None`` for any other statement."""
    op = root_of(function)
    if op.kind != "conv" or not function.types()[op.operands[1]].layout.startswith("packed w"):
        return None
    return (Plane if WINOGRAD[op.str_("arithmetic")].axes == 2 else Line)(function, isa, name).emit()


def conv(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """Convolution whose weights are packed by blocks of 16 outputs; ``None`` for any other statement."""
    op = root_of(function)
    types = function.types()
    if op.kind not in ("conv", "conv_transpose") or not types[op.operands[1]].layout.startswith("packed oc16 "):
        return None
    bias = op.operands[2] if len(op.operands) > 2 else ""
    x, w = types[op.operands[0]], types[op.operands[1]]
    if op.kind == "conv_transpose":
        return emit_slide(function, isa, name, transposed_windows(op, x, w), bias)
    group = op.int_("group")
    window = conv_window(op, x, w)
    if group == 1:
        flat = flattened(window, function)
        if flat is not None:
            return emit_slide(flat_function(function), isa, name, [flat], bias, shown=function)
        return emit_slide(function, isa, name, [window], bias)
    layout = x.physical
    step = w.dims[1] // BLOCK * layout.steps[1]
    return emit_slide(function, isa, name, [window], bias, block_groups=w.dims[0] // group // BLOCK, group_step=step)


def taps_at(channels: int, positions: tuple[int, ...], x: TensorType, row: int) -> Taps:
    """Taps over ``channels`` input channels of ``x`` (``c16`` or ``planar``) at the offsets ``positions``."""
    order = sum_order(channels, len(positions))
    layout = x.physical
    if order.block == UNIT:
        return Taps(order, positions, 0, layout.steps[1])
    unit = layout.steps[1] if layout.kind == "planar" else 1
    return Taps(order, positions, unit, 0, row if order.positions_per_leaf >= len(positions) else 1)


def conv_window(op: Op, x: TensorType, w: TensorType) -> Window:
    kernel = three(w.dims[2:], 1)
    step, dilation = three(op.ints("strides"), 1), three(op.ints("dilations"), 1)
    pads = three(op.ints("pads")[: len(w.dims) - 2], 0)
    access = full_access("x", x)
    positions = tuple(
        sum((k * d - p) * s for k, d, p, s in zip(at, dilation, pads, access.spatial, strict=True))
        for at in product(*(range(k) for k in kernel))
    )
    taps = taps_at(w.dims[1], positions, x, kernel[2])
    return Window(taps, 0, step, three(op.out.dims[2:], 1))


def transposed_windows(op: Op, x: TensorType, w: TensorType) -> list[Window]:
    """One window per residue of the output modulo the strides; its kernel positions run in ascending order."""
    rank = len(w.dims) - 2
    stride, dilation = three(op.ints("strides"), 1), three(op.ints("dilations"), 1)
    pads, kernel = three(op.ints("pads")[:rank], 0), three(w.dims[2:], 1)
    extent = three(op.out.dims[2:], 1)
    access = full_access("x", x)
    blocks = -(-w.dims[1] // BLOCK)
    windows, offset = [], 0
    for first in product(*(range(min(s, e)) for s, e in zip(stride, extent, strict=True))):
        axes = [axis_taps(f, s, d, p, k) for f, s, d, p, k in zip(first, stride, dilation, pads, kernel, strict=True)]
        positions = tuple(sum(t[1] * a for t, a in zip(at, access.spatial, strict=True)) for at in product(*axes))
        taps = taps_at(w.dims[0], positions, x, 1)
        count: Three = three([-(-(e - f) // s) for e, f, s in zip(extent, first, stride, strict=True)], 1)
        windows.append(Window(taps, offset, (1, 1, 1), count, three(first, 0), stride))
        offset += taps.weights * blocks
    return windows


def axis_taps(first: int, stride: int, dilation: int, pad: int, kernel: int) -> list[tuple[int, int]]:
    """(kernel position, x index of output ``first``) of the taps of one axis and phase."""
    reach = [(k, first + pad - k * dilation) for k in range(kernel)]
    return [(k, r // stride) for k, r in reach if r % stride == 0]


def flattened(window: Window, function: Graph) -> Window | None:
    """A 1x1 window over values without halo as one run of pixels; ``None`` where that is not possible."""
    types = function.types()
    values = [t for t in (*(v.type for v in function.inputs), function.ops[-1].out) if t.layout.startswith("c16")]
    out = function.ops[-1].out
    same = all((t.dims[2:] == out.dims[2:] or prod(t.dims[2:]) == 1) and not any(t.physical.halo) for t in values)
    if (
        not same
        or types["p0"].layout.startswith("planar")
        or len(window.taps.positions) > 1
        or window.step != (1, 1, 1)
    ):
        return None
    return Window(window.taps, 0, (1, 1, 1), (1, 1, prod(window.extent)))
