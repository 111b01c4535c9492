"""Winograd forms of a convolution on blocked values: constants of the template in runtime/cuda/cuvil_winograd.h."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from compiler_kernels.arithmetic.order import LEAF_TAPS
from compiler_kernels.arithmetic.winograd import WINOGRAD
from compiler_kernels.ir.bands import rows_of
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.passes.packing import TAPS
from compiler_kernels.targets.c.writer import root_of
from compiler_kernels.targets.cuda.families.blocked import (
    Ending,
    block_kernel,
    comments,
    constants,
    indented,
)
from compiler_kernels.targets.cuda.families.text import indexable
from compiler_kernels.targets.cuda.families.winograd_tiles import Shape, Tile, choose_tile
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import full_access


def winograd_shape(function: Graph) -> Shape | None:
    """What the tile of a convolution in a Winograd form is chosen by; ``None`` for any other statement."""
    op, types = root_of(function), function.types()
    if op.kind != "conv":
        return None
    w, out = types[op.operands[1]], function.ops[-1].out
    taps = w.layout.startswith(f"packed {TAPS} ")
    if not (taps or w.layout.startswith("packed w")):
        return None
    form = WINOGRAD[op.str_("arithmetic")]
    groups = form.groups(w.dims[2:])
    if groups * 8 > LEAF_TAPS or not indexable(function):
        return None
    tiles = prod(-(-n // 2) for n in out.dims[2:])
    per = max(1, form.leaf // (8 * groups))
    return Shape(form.axes, out.dims[0], -(-w.dims[1] // 8), per, groups, -(-out.dims[1] // BLOCK), tiles, taps)


def winograd(
    function: Graph, gpu: Gpu, name: str, choose: Callable[[Shape, Gpu], Tile | None] | None = None
) -> CudaKernel | None:
    """The kernel of a convolution in a Winograd form; ``None`` for any other statement. ``choose`` stands in for the
    table of tiles."""
    shape = winograd_shape(function)
    if shape is None:
        return None
    tile = (choose or choose_tile)(shape, gpu)
    if tile is None:
        return None
    op, types = root_of(function), function.types()
    x, out = full_access("p0", types["p0"]), function.ops[-1].out
    rows, columns = (out.dims[2] if shape.axes == 2 else 1), out.dims[-1]
    band = rows_of(function)
    if band:  # the tile is that of the whole
        rows = band[1] - band[0]
        shape = replace(shape, tiles=-(-rows // 2) * -(-columns // 2))
    pads = op.ints("pads")
    origin = x.origin - sum(p * s for p, s in zip(pads, x.spatial[3 - shape.axes :], strict=False))
    origin += band[0] * x.spatial[1] if band else 0
    ending = Ending(function, op.operands[2] if len(op.operands) > 2 else "")
    values = {
        "AXES": shape.axes, "NB": tile.columns, "LW": tile.leaves, "G": tile.split, "LO": tile.quads,
        "TQ": tile.outputs, "TP": tile.tiles, "BUFFERS": tile.buffers, "N": shape.batch, "UNITS": shape.units,
        "PER": shape.per, "GROUPS": shape.groups, "BLOCKS": shape.blocks, "TILES": shape.tiles,
        "TILE_COLUMNS": -(-columns // 2), "H": rows, "W": columns, "XN": x.batch, "XB": x.block, "XR": x.spatial[1],
        "ORIGIN": origin, "TAPS": shape.taps,
    }  # fmt: skip
    members = tile.members(shape)
    this = f"cuvil_winograd<{name}_p>"
    grid, threads = tile.grid(shape), tile.threads(shape)
    head = [
        *comments(function),
        *ending.chain_function(name),
        f"struct {name}_p {{",
        f"    {constants(values)}",
        *indented(ending.finish_function(name)),
        *indented(ending.ready_function(grid, threads)),
        "};",
        f"static_assert({this}::SHARED == {tile.shared(shape)} && {this}::GRID == {grid} && "
        f"{this}::THREADS == {threads} && "
        f'{this}::WORKSPACE == {tile.workspace(shape)}, "winograd_tiles.py");',
    ]
    memory = "(float *)workspace, tickets" if members > 1 else "nullptr, nullptr"
    body = [f"{this}::run({', '.join(['block', 'p0', 'p1', memory, 'y', *ending.operands])});"]
    return block_kernel(
        function, name, head, body, grid, threads, tile.resident(shape), gpu, shared=tile.shared(shape),
        workspace=tile.workspace(shape), tickets=grid // members if members > 1 else 0,
    )  # fmt: skip
