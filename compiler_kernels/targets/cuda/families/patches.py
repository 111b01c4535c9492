"""Convolutions of few channels and many kernel positions, such as the embedding of image patches.

A leaf is up to 72 positions of one channel, made by a warp for a tile of positions x outputs like a leaf of a matrix
product (tiles.py); its rows are gathered from x, whose halo holds the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from compiler_kernels.arithmetic.order import FEW_CHANNELS, LEAF_TAPS
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.views import contiguous
from compiler_kernels.targets.c.writer import Code, linear
from compiler_kernels.targets.cuda.families.sums import Leaves
from compiler_kernels.targets.cuda.families.text import ONE, computes_floats, is_constant, split
from compiler_kernels.targets.cuda.families.tiles import (
    MOST_LEAVES,
    Tile,
    best_shape,
    emit_tiles,
    loop,
    results,
)
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import Access, full_access, three
from compiler_kernels.targets.vector.product import Problem


@dataclass(frozen=True, slots=True)
class PatchLeaves(Leaves):
    """``per_channel`` leaves of every channel, the last of each having ``last`` positions."""

    per_channel: int = 1

    def products(self, leaf: str) -> str:
        if self.last == self.leaf:
            return str(self.last)
        return f"({leaf} % {self.per_channel} == {self.per_channel - 1} ? {self.last} : {self.leaf})"


@dataclass(frozen=True)
class PatchTile(Tile):
    """Rows are output positions of batch element ``n``, columns output channels."""

    op: Op
    x: Access
    lane: int
    kernel: tuple[int, int, int]
    size: tuple[int, int, int]

    @property
    def channel(self) -> int:
        """Floats from channel to channel of x."""
        return self.x.block if self.lane == 1 else 1

    def begin(self, code: Code, leaf: str) -> None:
        leaves = self.leaves
        assert isinstance(leaves, PatchLeaves)
        code.add(f"const int taps = {leaves.products(leaf)}, channel = {leaf} / {leaves.per_channel};")
        code.add(f"const int first = {leaf} % {leaves.per_channel} * {leaves.leaf};")
        code.add(f"const float *w = p1 + (channel * {prod(self.kernel)} + first) * {BLOCK};")

    def point(self, code: Code) -> None:
        pads = three(self.op.ints("pads")[: len(self.op.out.dims) - 2], 0)
        back = sum(p * s for p, s in zip(pads, self.x.spatial, strict=True))
        terms = [("p0", 1), ("n", self.x.batch), ("channel", self.channel)]
        code.add(f"const float *x = {linear(terms, self.x.origin - back)};")

    @property
    def whole(self) -> bool:
        """Whether four positions from a multiple of four on are 16 bytes in one row of the kernel."""
        steps, halo = three(self.op.ints("strides"), 1), self.x.origin
        rows = self.x.spatial[0] % 4 == 0 and self.x.spatial[1] % 4 == 0
        pads = three(self.op.ints("pads")[: len(self.op.out.dims) - 2], 0)
        lying = self.lane == 1 and (halo - pads[2]) % 4 == 0 and steps[2] % 4 == 0 and self.kernel[2] % 4 == 0
        dense = three(self.op.ints("dilations"), 1)[2] == 1
        return lying and dense and rows and (self.x.block % 4, self.x.batch % 4, self.leaves.last % 4) == (0, 0, 0)

    def copy_rows(self, code: Code, begin: int, end: int) -> None:
        each = 4 if self.whole else 1
        groups, rows = (end - begin) // each, prod(self.size)
        steps, dilations = three(self.op.ints("strides"), 1), three(self.op.ints("dilations"), 1)
        last = f"row + r < {rows} ? row + r : {rows - 1}" if rows % self.shape.rows else "row + r"
        with loop(code, self.shape.rows * groups):
            code.add(
                f"const int r = i / {groups}, k = {begin} + i % {groups} * {each}, from = {last}, tap = first + k;"
            )
            code.add(*(["if (k >= taps) continue;"] if self.ragged else []))
            split(code, "from", self.size, ["od", "oh", "ow"])
            split(code, "tap", self.kernel, ["kd", "kh", "kw"])
            terms = [(f"o{a}", steps[n] * self.x.spatial[n]) for n, a in enumerate("dhw")]
            terms += [(f"k{a}", dilations[n] * self.x.spatial[n]) for n, a in enumerate("dhw")]
            source = linear([("x", 1), *terms])
            code.add(f"cuvil_copy_async<{4 * each}>(xs + r * {self.pitch} + k, {source});")

    def copy_columns(self, code: Code, begin: int, end: int) -> None:
        columns, blocks = self.shape.columns, -(-self.op.out.dims[1] // BLOCK)
        quads, block = columns // 4, f"column / {BLOCK} + c / {BLOCK}"
        if blocks % -(-columns // BLOCK):
            block = f"({block} < {blocks} ? {block} : {blocks - 1})"
        step = self.op_channels * prod(self.kernel) * BLOCK
        kept = "if (k < taps) " if self.ragged else ""
        with loop(code, (end - begin) * quads):
            code.add(f"const int k = {begin} + i / {quads}, c = i % {quads} * 4, block_of = {block};")
            source = f"w + block_of * {step} + k * {BLOCK} + c % {BLOCK}"
            code.add(f"{kept}cuvil_copy_async<16>(ws + k * {columns} + c, {source});")

    @property
    def op_channels(self) -> int:
        leaves = self.leaves
        assert isinstance(leaves, PatchLeaves)
        return leaves.leaves // leaves.per_channel

    @property
    def constant(self) -> bool:
        return is_constant("p1")


@dataclass(frozen=True)
class PatchEnd:
    """Bias, and the store into blocks of 16 channels without halo."""

    op: Op
    bias: bool
    count: int
    place: str
    exists: str

    def read(self, code: Code, constant: bool) -> None:
        if self.bias and constant == is_constant("p2"):
            code.add(f"float bias[{self.count}];", "#pragma unroll")
            with code.block(f"for (int t = 0; t < {self.count}; t++)"):
                code.add(self.place, "(void)r;", f"{f'if ({self.exists}) ' if self.exists else ''}bias[t] = p2[c];")

    def write(self, code: Code, total: Sequence[str]) -> None:
        dims = self.op.out.dims
        plane, blocks, tail = prod(dims[2:]), -(-dims[1] // BLOCK), dims[1] % BLOCK
        code.add("#pragma unroll")
        with code.block(f"for (int t = 0; t < {self.count}; t++)"):
            code.add(self.place)
            with code.block(f"if ({self.exists})" if self.exists else ""):
                code.add(*total, f"const float value = {ONE.add('sum', 'bias[t]' if self.bias else '0.0f')};")
                result = f"c < {dims[1]} ? value : 0.0f" if tail else "value"
                at = [("n", blocks * plane * BLOCK), (f"(c / {BLOCK})", plane * BLOCK), ("r", BLOCK)]
                code.add(f"y[{linear(at)} + c % {BLOCK}] = {result};")


def patches(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The kernel of a ``conv`` of one group, fewer than 16 channels and more than 72 positions, with nothing fused."""
    op, types = function.ops[0], function.types()
    if op.kind != "conv" or len(function.ops) > 1 or not computes_floats(function):
        return None
    x_type, w = types[op.operands[0]], types[op.operands[1]]
    positions, channels = prod(w.dims[2:]), w.dims[1]
    direct = not op.has("arithmetic") or op.str_("arithmetic") == "direct"
    if not w.layout.startswith("packed oc16 ") or op.int_("group") != 1 or channels >= FEW_CHANNELS or not direct:
        return None
    if positions <= LEAF_TAPS or not op.out.layout.startswith("c16") or any(op.out.physical.halo):
        return None
    per = -(-positions // LEAF_TAPS)
    count = channels * per
    at_once = count if count <= MOST_LEAVES else MOST_LEAVES // 8 * 8
    leaves = PatchLeaves(count, LEAF_TAPS, positions - (per - 1) * LEAF_TAPS, at_once, per)
    rows, columns = prod(op.out.dims[2:]), op.out.physical.blocks * BLOCK
    shape = best_shape(op.out.dims[0], rows, columns, leaves, gpu)
    end = PatchEnd(op, len(op.operands) > 2 and bool(op.operands[2]), *results(shape, leaves, rows, columns))
    view = contiguous("p1", (1, 1))
    problem = Problem((), rows, count * LEAF_TAPS, columns, view, view, 0, view)
    lane = 1 if x_type.layout.startswith("planar") else BLOCK
    work = PatchTile(
        problem, shape, leaves, end, op, full_access("p0", x_type), lane, three(w.dims[2:], 1),
        three(op.out.dims[2:], 1),
    )  # fmt: skip
    return emit_tiles(function, name, work, [("n", op.out.dims[0])], rows, columns)
