"""Convolutions computed in bands of rows: which bytes the call of one band reads and writes.

The first statement of a band's function has ``rows=[first, last]``: it computes these rows of its result, of one image
and one block of 16 channels, and needs of its first operand only the rows under their windows. A band holds its rows
with the halo beside them; the halo above the first row and below the last goes with theirs. The call of the last band
defines the value, and its ``after`` names the bands before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.stretches import Stretch


def rows_of(function: Graph) -> tuple[int, int] | None:
    """First row of the band that ``function`` computes, and the row after its last; ``None`` where it computes all."""
    if not function.ops or not function.ops[0].has("rows"):
        return None
    first, last = function.ops[0].ints("rows")
    return first, last


def written(function: Graph, room: Stretch) -> Stretch:
    """The part of ``room``, where the whole result lies, that a band's call writes."""
    first, last = function.ops[0].ints("rows")
    layout = function.ops[-1].out.physical
    row, halo, height = 4 * layout.steps[2], layout.halo[0], layout.shape[2]
    begin = first + halo if first else 0
    end = last + halo if last < height else height + 2 * halo
    return Stretch(room.buffer, room.start + begin * row, (end - begin) * row)


def read(function: Graph, place: Stretch) -> list[Stretch]:
    """The parts of ``place``, where the whole first operand lies, that a band's call reads: rows of every plane."""
    op, layout = function.ops[0], function.inputs[0].type.physical
    first, last = op.ints("rows")
    kernel = function.types()[op.operands[1]].dims[2]
    stride, dilation, pad = op.ints("strides")[0], op.ints("dilations")[0], op.ints("pads")[0]
    plane, row, halo = 4 * layout.steps[1], 4 * layout.steps[2], layout.halo[0]
    begin = max(0, first * stride - pad + halo)
    end = min(layout.spatial[0], (last - 1) * stride - pad + (kernel - 1) * dilation + 1 + halo)
    return [
        Stretch(place.buffer, place.start + p * plane + begin * row, (end - begin) * row) for p in range(layout.blocks)
    ]


def complete(bands: Sequence[tuple[int, int]], height: int) -> bool:
    """Whether bands of rows are all rows from 0 to ``height``, each once."""
    at = 0
    for first, last in sorted(bands):
        if first != at:
            return False
        at = last
    return at == height
