"""Winograd forms of a convolution on blocked values: constants of the template in runtime/cuda/cuvil_winograd.h."""

from __future__ import annotations

from collections.abc import Callable

from compiler_kernels.arithmetic.order import LEAF_TAPS
from compiler_kernels.arithmetic.winograd import WINOGRAD
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
from compiler_kernels.targets.cuda.families.text import indexable
from compiler_kernels.targets.cuda.families.winograd_tiles import Shape, Tile, choose_tile
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import full_access


def winograd(
    function: Graph, gpu: Gpu, name: str, choose: Callable[[Shape, Gpu], Tile | None] | None = None
) -> CudaKernel | None:
    """The kernel of a convolution in a Winograd form; ``None`` for any other statement. ``choose`` stands in for the
    table of tiles."""
    op, types = root_of(function), function.types()
    if op.kind != "conv" or not types[op.operands[1]].layout.startswith("packed w"):
        return None
    form = WINOGRAD[op.str_("arithmetic")]
    x, w, out = full_access("p0", types["p0"]), types[op.operands[1]], function.ops[-1].out
    groups, units = form.groups(w.dims[2:]), -(-w.dims[1] // 8)
    if groups * 8 > LEAF_TAPS:
        return None
    if not indexable(function):
        return None
    size = out.dims[2:]
    rows, columns = (size[0] if form.axes == 2 else 1), size[-1]
    tiles = -(-rows // 2) * -(-columns // 2)
    per = max(1, form.leaf // (8 * groups))
    shape = Shape(form.axes, out.dims[0], units, per, groups, -(-out.dims[1] // BLOCK), tiles)
    tile = (choose or choose_tile)(shape, gpu)
    if tile is None:
        return None
    pads = op.ints("pads")
    origin = x.origin - sum(p * s for p, s in zip(pads, x.spatial[3 - form.axes :], strict=False))
    ending = Ending(function, op.operands[2] if len(op.operands) > 2 else "")
    values = {
        "AXES": form.axes, "NB": tile.columns, "LW": tile.leaves, "G": tile.split, "LO": tile.quads,
        "TQ": tile.outputs, "TP": tile.tiles, "BUFFERS": tile.buffers, "N": shape.batch, "UNITS": units,
        "PER": per, "GROUPS": groups, "BLOCKS": shape.blocks, "TILES": tiles, "TILE_COLUMNS": -(-columns // 2),
        "H": rows, "W": columns, "XN": x.batch, "XB": x.block, "XR": x.spatial[1], "ORIGIN": origin,
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
