"""The kernel of convolution and transposed convolution of any rank over sizes known at run time.

Both (``sized_conv.py``) are sums over windows of a grid: position t of the grid reads x at ``t * reads + offset`` for
every tap, and is result ``t * writes + first``. A convolution has one grid; a transposed one has a grid per residue of
the stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from compiler_kernels.arithmetic.order import sum_order
from compiler_kernels.ir.dims import Size, ceildiv
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.targets.c.writer import Code, is_one, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.sized import Body, steps_of
from compiler_kernels.targets.vector.sized_chain import SizedChain, store
from compiler_kernels.targets.vector.sized_tile import Weights, emit_tile, shape_of
from compiler_kernels.targets.vector.vec import Vec

WEIGHTS_IN_CACHE = 128 * 1024
"""Floats of weights that all work items of a stretch of x may read in turn; with more, all of x is read per block."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One grid: per tap its offset on every axis and its kernel position; and the result of t = 0."""

    offsets: tuple[tuple[int, ...], ...]
    taps: tuple[int, ...]
    first: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    op: Op
    group: int
    channels: int  # of x per group
    outputs: int  # per group
    x_dims: Sequence[Size]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    weight_output: int
    weight_channel: int
    weight_group: int
    phases: tuple[Phase, ...]


def emit_window(function: Graph, isa: Isa, name: str, window: Window) -> Body | None:
    vec, op = Vec(isa), window.op
    chain = SizedChain(function, vec, skip_root=True)
    if not chain.possible or (window.weight_output * window.outputs == 0):
        return None
    out = op.out.dims
    spatial, x_spatial = out[2:], window.x_dims[2:]
    step = window.reads[-1]
    blocks, vectors = shape_of(isa, window.outputs, step)
    most_taps = max(1, max(len(p.taps) for p in window.phases))
    tiles: list[str] = []
    for number, phase in enumerate(window.phases):
        weights = Weights(window.weight_output, window.weight_channel, phase.taps or (0,))
        order = sum_order(window.channels, len(phase.taps))
        for rows in dict.fromkeys(blocks):
            for whole in (True, False):
                code = Code()
                emit_tile(
                    code, f"{name}_t{number}_{rows}{'w' if whole else 'p'}", vec, order, weights, rows, vectors, step,
                    whole,
                )  # fmt: skip
                tiles += code.lines
    setup, geometry = _setup(window, vec, x_spatial, spatial, vectors, most_taps)
    batch = out[0]
    fixed = [str(batch), str(window.group), str(len(window.phases)), str(len(blocks)), "chunks"]
    total = " * ".join(f for f in (f"{batch}", *fixed[1:]) if f != "1")
    code = Code()
    chunk_inner = window.group * window.weight_group > WEIGHTS_IN_CACHE
    outer, inner = ("b", "chunk") if chunk_inner else ("chunk", "b")
    counts = {"b": str(len(blocks)), "chunk": "chunks"}
    code.add(
        f"const int {inner} = item % {counts[inner]}, {outer} = item / {counts[inner]} % {counts[outer]};",
        f"const int above = item / ({len(blocks)} * chunks), phase = above % {len(window.phases)};",
        f"const int i0 = above / {len(window.phases) * window.group}, "
        f"g = above / {len(window.phases)} % {window.group};",
    )
    _places(code, window, geometry, vec, vectors, most_taps, x_spatial)
    larger, smaller = blocks[0], blocks[-1]
    count_larger = blocks.count(larger)
    sizes = f"b < {count_larger} ? b * {larger} : {count_larger * larger} + (b - {count_larger}) * {smaller}"
    code.add(
        f"const int o0 = {f'b * {larger}' if larger == smaller else sizes};",
        f"const float *w = {op.operands[1]} + {linear([('g', window.weight_group), ('o0', window.weight_output)])};",
        f"_Alignas(64) float sums[{larger * vectors * vec.lanes}];",
    )
    plane = prod(x_spatial)
    arguments = f"(xs, bits, at[phase], {plane}, w, sums)"
    for number in range(len(window.phases)):
        with code.block(f"if (phase == {number})" if len(window.phases) > 1 else ""):
            for index, rows in enumerate(dict.fromkeys(blocks)):
                test = "" if larger == smaller else f"if (b {'<' if index == 0 else '>='} {count_larger}) "
                tile = f"{name}_t{number}_{rows}"
                code.add(f"{test}{{ if (whole) {tile}w{arguments}; else {tile}p{arguments}; }}")
    _finish(code, window, chain, vec, vectors, blocks, count_larger)
    grid = [ceildiv(o, w) for o, w in zip(spatial, window.writes, strict=True)]
    chunks = ceildiv(prod(grid[:-1]) * ceildiv(grid[-1], vec.lanes), vectors)
    items = batch * window.group * len(window.phases) * len(blocks) * chunks
    return Body(code.lines, total, items, setup, tiles)


def _setup(
    window: Window, vec: Vec, x_spatial: Sequence[Size], spatial: Sequence[Size], vectors: int, most_taps: int
) -> tuple[list[str], list[str]]:
    """Statements before the loop over items: tables, offsets of taps, and the number of chunks of vectors."""
    rank, count = len(window.reads), len(window.phases)
    steps = steps_of(x_spatial)
    flat = [[off for tap in p.offsets for off in tap] for p in window.phases]
    width = max(1, most_taps * rank)
    rows = ", ".join("{" + ", ".join(map(str, f + [0] * (width - len(f)))) + "}" for f in flat)
    firsts = ", ".join("{" + ", ".join(map(str, p.first)) + "}" for p in window.phases)
    lows, highs = [], []
    for p in window.phases:
        ends = [[tap[a] for tap in p.offsets] or [0] for a in range(rank)]
        lows.append("{" + ", ".join(str(min(e)) for e in ends) + "}")
        highs.append("{" + ", ".join(str(max(e)) for e in ends) + "}")
    place = linear([(f"off[p][k * {rank} + {a}]", steps[a]) for a in range(rank)])
    lines = [
        f"static const int off[{count}][{width}] = {{{rows}}};",
        f"static const int taps[{count}] = {{{', '.join(str(len(p.taps)) for p in window.phases)}}};",
        f"static const int low[{count}][{rank}] = {{{', '.join(lows)}}};",
        f"static const int high[{count}][{rank}] = {{{', '.join(highs)}}};",
        f"static const int first[{count}][{rank}] = {{{firsts}}};",
        f"int at[{count}][{most_taps}];",
        f"for (int p = 0; p < {count}; p++) for (int k = 0; k < taps[p]; k++) at[p][k] = {place};",
    ]
    grid = []
    for a in range(rank):
        s = window.writes[a]
        grid.append(f"{spatial[a]}" if s == 1 else f"(({spatial[a]}) + {s - 1}) / {s}")
    across = f"(({grid[-1]}) + {vec.lanes - 1}) / {vec.lanes}"
    lines.append(f"const int across = {across};")
    down = " * ".join(f"({g})" for g in grid[:-1]) or "1"
    lines.append(f"const int chunks = ({down} * across + {vectors - 1}) / {vectors};")
    return lines, grid


def _places(
    code: Code, window: Window, grid: list[str], vec: Vec, vectors: int, most_taps: int, x_spatial: Sequence[Size]
) -> None:
    """Where every vector of the tile lies: ``xs``, ``bits``, ``keep`` (lanes that exist) and ``t`` (grid position)."""
    rank, lanes = len(window.reads), vec.lanes
    spatial = window.op.out.dims[2:]
    steps = steps_of(x_spatial)
    x_steps = steps_of(window.x_dims)
    for a in range(rank):
        s = window.writes[a]
        size = f"{spatial[a]}" if s == 1 else f"(({spatial[a]}) - first[phase][{a}] + {s - 1}) / {s}"
        code.add(f"const int g{a} = {size};")
    code.add(f"const int wide = (g{rank - 1} + {lanes - 1}) / {lanes};")
    down = " * ".join(f"g{a}" for a in range(rank - 1)) or "1"
    code.add(
        f"const int last = {down} * wide - 1;",
        f"if (chunk * {vectors} > last) continue;",
        f"const float *xg = {window.op.operands[0]} + "
        + linear([("i0", x_steps[0]), ("g", window.channels * prod(x_spatial))])
        + ";",
        f"const float *xs[{vectors}];",
        f"unsigned bits[{vectors * most_taps}], keep[{vectors}];",
        f"int t[{vectors}][{rank}], whole = 1;",
    )
    with code.block(f"for (int v = 0; v < {vectors}; v++)"):
        code.add(
            f"const int wanted = chunk * {vectors} + v, id = wanted < last ? wanted : last;",
            f"t[v][{rank - 1}] = id % wide * {lanes};",
        )
        rest = "id / wide"
        for a in range(rank - 2, -1, -1):
            code.add(f"t[v][{a}] = {rest}{f' % g{a}' if a else ''};")
            rest = f"{rest} / g{a}"
        code.add(f"keep[v] = wanted > last ? 0u : ca1_first(g{rank - 1} - t[v][{rank - 1}], {lanes});")
        for a in range(rank):
            code.add(f"const int x{a} = t[v][{a}] * {window.reads[a]};")
        code.add(f"xs[v] = xg + {linear([(f'x{a}', steps[a]) for a in range(rank)])};")
        reach = (lanes - 1) * window.reads[-1]
        for a in range(rank):
            far = f" + {reach}" if a == rank - 1 else ""
            code.add(f"whole &= x{a} + low[phase][{a}] >= 0 && x{a} + high[phase][{a}]{far} < {x_spatial[a]};")
    with (
        code.block("if (!whole)"),
        code.block(f"for (int v = 0; v < {vectors}; v++)"),
        code.block("for (int k = 0; k < taps[phase]; k++)"),
    ):
        for a in range(rank):
            code.add(f"const int x{a} = t[v][{a}] * {window.reads[a]} + off[phase][k * {rank} + {a}];")
        inside = " && ".join(f"x{a} >= 0 && x{a} < {x_spatial[a]}" for a in range(rank - 1))
        found = f"ca1_bits(x{rank - 1}, {window.reads[-1]}, {x_spatial[-1]}, {lanes})"
        code.add(f"bits[v * taps[phase] + k] = {f'({inside}) ? {found} : 0u' if inside else found};")


def _finish(
    code: Code, window: Window, chain: SizedChain, vec: Vec, vectors: int, blocks: list[int], count_larger: int
) -> None:
    """Bias, the fused chain, and the result."""
    op, rank = window.op, len(window.reads)
    rows = str(blocks[0]) if blocks[0] == blocks[-1] else f"(b < {count_larger} ? {blocks[0]} : {blocks[-1]})"
    steps = steps_of(op.out.dims)
    with code.block(f"for (int r = 0; r < {rows}; r++)"):
        code.add(f"const int i1 = {linear([('g', window.outputs), ('o0', 1), ('r', 1)])};")
        bias = f"{op.operands[2]}[i1] + 0.0f" if len(op.operands) > 2 and op.operands[2] else "0.0f"
        code.add(f"const {vec.type} bias = {vec.set1(bias)};")
        with code.block(f"for (int v = 0; v < {vectors}; v++)"):
            code.add("const unsigned k = keep[v];", "if (!k) continue;")
            for a in range(rank):
                code.add(f"const int i{a + 2} = {linear([(f't[v][{a}]', window.writes[a])])}"
                         + (f" + first[phase][{a}];" if window.writes[a] != 1 else ";"))  # fmt: skip
            place = f"sums + (r * {vectors} + v) * {vec.lanes}"
            code.add(f"const {vec.type} t0 = {vec.add(vec.load(place), 'bias')};")
            position = [f"i{a}" for a in range(rank + 2)]
            lines, result = chain.statements("t0", position, "k", window.writes[-1])
            at = linear([(p, s) for p, s, d in zip(position, steps, op.out.dims, strict=True) if not is_one(d)])
            code.add(*lines, store(vec, f"y + {at}", result, "k", window.writes[-1]))
