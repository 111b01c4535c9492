"""Convolution and transposed convolution over sizes known at run time, as windows of a grid (``sized_window.py``)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod

from compiler_kernels.arithmetic.winograd import DIRECT
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import strides
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.sized import Body
from compiler_kernels.targets.vector.sized_chain import flattened, product_text
from compiler_kernels.targets.vector.sized_window import Phase, Window, emit_window


def conv(function: Graph, isa: Isa, name: str) -> Body | None:
    op = function.ops[0]
    if op.kind != "conv" or (op.has("arithmetic") and op.str_("arithmetic") != DIRECT) or op.has("runtime_weights"):
        return None
    function = _one_axis(function)
    op, types = function.ops[0], function.types()
    x_dims, w_dims = types[op.operands[0]].dims, types[op.operands[1]].dims
    if not types[op.operands[1]].is_static:
        return None
    group, kernel = op.int_("group"), w_dims[2:]
    rank = len(kernel)
    steps, dilations, pads = op.ints("strides")[:rank], op.ints("dilations")[:rank], op.ints("pads")[:rank]
    offsets = tuple(
        tuple(k * d - p for k, d, p in zip(at, dilations, pads, strict=True)) for at in product(*map(range, kernel))
    )
    taps = prod(kernel)
    return emit_window(
        function,
        isa,
        name,
        Window(
            op, group, w_dims[1], w_dims[0] // group, x_dims, steps, (1,) * rank, w_dims[1] * taps, taps,
            w_dims[0] // group * w_dims[1] * taps, (Phase(offsets, tuple(range(taps)), (0,) * rank),),
        ),
    )  # fmt: skip


def conv_transpose(function: Graph, isa: Isa, name: str) -> Body | None:
    op, types = function.ops[0], function.types()
    if op.kind != "conv_transpose" or op.has("runtime_weights") or not types[op.operands[1]].is_static:
        return None
    x_dims, w_dims = types[op.operands[0]].dims, types[op.operands[1]].dims
    group, kernel = op.int_("group"), w_dims[2:]
    rank, channels = len(kernel), w_dims[0] // group
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    if prod(steps) > 27 or len(kernel) > 3:
        return None
    kernel_steps = strides(kernel)
    phases = []
    for first in product(*map(range, steps)):
        axes = [
            [(k, (first[a] + pads[a] - k * dilations[a]) // steps[a]) for k in range(kernel[a])
             if (first[a] + pads[a] - k * dilations[a]) % steps[a] == 0]
            for a in range(rank)
        ]  # fmt: skip
        found = list(product(*axes))
        offsets = tuple(tuple(off for _, off in tap) for tap in found)
        taps = tuple(sum(k * s for (k, _), s in zip(tap, kernel_steps, strict=True)) for tap in found)
        phases.append(Phase(offsets, taps, first))
    positions = prod(kernel)
    window = Window(
        op, group, channels, w_dims[1], x_dims, (1,) * rank, steps, positions, w_dims[1] * positions,
        channels * w_dims[1] * positions, tuple(phases),
    )  # fmt: skip
    return emit_window(function, isa, name, window)


def _one_axis(function: Graph) -> Graph:
    """A convolution of single points as one over a single axis, where the fused chain allows it."""
    op, types = function.ops[0], function.types()
    x, w = (types[o] for o in op.operands[:2])
    if any(d != 1 for d in w.shape[2:]) or any(s != 1 for s in op.ints("strides")) or any(op.ints("pads")):
        return function
    if len(x.shape) < 4:
        return function
    found = flattened(function, 2)
    if found is None:
        return function
    shapes = {op.operands[0]: (*x.shape[:2], product_text(x.shape[2:])), op.operands[1]: (*w.shape[:2], 1)}
    chain = {o for inner in function.ops[1:] for o in inner.operands}
    if chain & set(shapes):
        return function
    inputs = tuple(replace(v, type=replace(v.type, shape=shapes[v.id])) if v.id in shapes else v for v in found.inputs)
    return replace(found, inputs=inputs)
