"""Winograd family: convolution as a few products of transformed values, strip of tiles by strip (arithmetic.md, 3.6).

A work item is (batch, strip of tiles, group of output blocks). It transforms the strip's inputs into V, unless the item
before it did, multiplies each position of V with its weights into M by the register tile of tile.py, and transforms M
into outputs with bias and fused operations. V and M lie in the thread's own scratch; a strip is as long as they stay
in a second-level cache. Weights are transformed and packed at compile time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from compiler_kernels.arithmetic.order import BLOCK as UNIT
from compiler_kernels.arithmetic.winograd import WINOGRAD
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.text import format_op
from compiler_kernels.targets.c.writer import Code, Kernel, linear, root_of
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import Access, Chain, full_access, operand_access, three
from compiler_kernels.targets.vector.tile import Taps, emit_tile, tile_blocks, tile_pixels, tile_scratch
from compiler_kernels.targets.vector.vec import Vec

LEAST_BYTES = 3 << 15
MOST_BYTES = 5 << 18
"""V and M of an item take about as much as the weights, which every strip reads again; within these bounds."""
CACHE_BYTES = 1 << 20
"""Weights above this are fetched a product ahead."""
GROUP_BLOCKS = 8
"""Most output blocks of an item; M grows with them, and V is read again from group to group."""
FEW_ITEMS = 16
LINE = 16
"""Floats between the areas of two positions, so that their equal offsets do not meet in one set of a cache."""


class Winograd(ABC):
    """Emitter of one kernel; x is p0, the weights p1. ``tiles`` of the whole image, in row-major order."""

    def __init__(self, function: Graph, isa: Isa, name: str, tiles: int) -> None:
        op, types = root_of(function), function.types()
        self.function, self.isa, self.name, self.tiles = function, isa, name, tiles
        self.form = WINOGRAD[op.str_("arithmetic")]
        self.vec = Vec(isa)
        self.chain = Chain(function, self.vec)
        self.out = function.ops[-1].out
        w = types[op.operands[1]]
        self.kernel, self.channels = w.dims[2:], w.dims[1]
        self.order = self.form.order(self.channels, self.kernel)
        self.pads = op.ints("pads")
        self.x, self.y = full_access("p0", types["p0"]), self.chain.y
        self.in_blocks, self.blocks = types["p0"].physical.blocks, self.out.physical.blocks
        self.tail = self.out.dims[1] % BLOCK
        self.bias = op.operands[2] if len(op.operands) > 2 else ""
        self.extras: dict[str, Access] = dict(self.chain.accesses)
        if self.bias:
            self.extras[self.bias] = operand_access(self.bias, types[self.bias], self.out)
        self.per_tile = min(tile_blocks(isa), self.blocks)
        self.weights = Taps(self.order, (0,) * self.order.positions, 0).weights
        self.far = 4 * self.form.products * self.weights * self.blocks > CACHE_BYTES
        self.group, self.strip = self._sizes()
        self.groups, self.strips = -(-self.blocks // self.group), -(-tiles // self.strip)
        self.m_block = self.strip * BLOCK
        self.m_position = self.group * self.m_block + LINE
        self.code = Code()
        self.tile_floats = 0
        self._tiles: dict[tuple[int, int, int], str] = {}

    @abstractmethod
    def v_floats(self, tiles: int) -> int:
        """Floats of V for a strip of ``tiles``."""

    @abstractmethod
    def taps(self) -> Taps:
        """Where a product's taps lie in V, from the address of the first tile."""

    @abstractmethod
    def v_address(self, position: int) -> int:
        """Offset in V of the first tile's values at ``position``."""

    @abstractmethod
    def v_step(self) -> int:
        """Floats in V from tile to tile."""

    @abstractmethod
    def emit_inputs(self) -> None:
        """C function ``<name>_in(x, V, first, count)``: x of the batch, tiles ``first ...`` into V."""

    @abstractmethod
    def emit_outputs(self) -> None:
        """C function ``<name>_out(M, <params>, y, n, first, count, cb, blocks)``."""

    def _sizes(self) -> tuple[int, int]:
        """Output blocks of an item and tiles of a strip."""
        pixels = tile_pixels(self.isa, self.per_tile)
        budget = min(max(4 * self.form.products * self.weights * self.blocks, LEAST_BYTES), MOST_BYTES)
        group = min(GROUP_BLOCKS, self.blocks)
        strip = pixels
        while strip < self.tiles and 4 * self._floats(group, strip + pixels) <= budget:
            strip += pixels
        strips = -(-self.tiles // strip)
        strip = min(-(-self.tiles // strips // pixels) * pixels if strips > 1 else self.tiles, self.tiles)
        batch = self.out.dims[0]
        while group > self.per_tile and batch * -(-self.tiles // strip) * -(-self.blocks // group) < FEW_ITEMS:
            group = max(self.per_tile, group // 2)
        return group, strip

    def _floats(self, group: int, strip: int) -> int:
        return self.v_floats(strip) + self.form.products * (group * strip * BLOCK + LINE)

    def emit(self) -> Kernel:
        self.emit_inputs()
        self.emit_outputs()
        body = Code()
        params = ", ".join(f"const float *{v.id}" for v in self.function.inputs)
        v_floats = -(-self.v_floats(self.strip) // LINE) * LINE
        m_floats = self.form.products * self.m_position
        last = self.tiles - (self.strips - 1) * self.strip
        with body.block(f"CA1_DEVICE static void {self.name}({params}, float *y, float *scratch, int begin, int end)"):
            body.add(
                f"float *V = scratch, *M = scratch + {v_floats}, *t = scratch + {v_floats + m_floats};",
                "int strip = -1; /* whose inputs are in V */",
            )
            with body.block("for (int item = begin; item < end; item++)"):
                body.add(
                    f"const int n = item / {self.groups * self.strips}, cb = item % {self.groups} * {self.group};",
                    f"const int first = item / {self.groups} % {self.strips} * {self.strip};",
                    f"const int count = first + {self.strip} > {self.tiles} ? {last} : {self.strip};",
                    f"const int blocks = cb + {self.group} > {self.blocks} ? {self.blocks} - cb : {self.group};",
                )
                with body.block(f"if (item / {self.groups} != strip)"):
                    body.add(
                        f"strip = item / {self.groups};",
                        f"{self.name}_in({linear([('p0', 1), ('n', self.x.batch)], self.x.origin)}, V, first, count);",
                    )
                self._products(body, last)
                names = "".join(f", {p}" for p in self.extras)
                body.add(f"{self.name}_out(M{names}, y, n, first, count, cb, blocks);")
        comments = [f"/* {line.strip()} */" for op in self.function.ops for line in format_op(op)]
        text = "\n".join([*self.code.lines, *comments, *body.lines]) + "\n"
        items = self.out.dims[0] * self.strips * self.groups
        return Kernel(self.name, text, len(self.function.inputs), items, v_floats + m_floats + self.tile_floats)

    def _products(self, body: Code, last: int) -> None:
        """M = V times U, position by position."""
        positions = self.form.products
        starts = [self.v_address(p) for p in range(positions)]
        step = starts[1] - starts[0]
        even = starts == [starts[0] + p * step for p in range(positions)]
        if not even:
            body.add(f"static const int at[{positions}] = {{{', '.join(map(str, starts))}}};")
        with (
            body.block(f"for (int p = 0; p < {positions}; p++)"),
            body.block(f"for (int b = 0; b < blocks; b += {self.per_tile})"),
        ):
            body.add(
                f"const float *v = {linear([('V', 1), ('p', step)], starts[0]) if even else 'V + at[p]'};",
                f"const float *w = p1 + ((cb + b) * {positions} + p) * {self.weights};",
                f"float *m = {linear([('M', 1), ('p', self.m_position), ('b', self.m_block)])};",
            )
            if self.far:
                more = f"const int more = b + {self.per_tile} < blocks, over = !more && p == {positions - 1};"
                block = f"(more ? cb + b + {self.per_tile} : over ? (cb + blocks) % {self.blocks} : cb)"
                position = f"(more ? p : (p + 1) % {positions})"
                body.add(
                    f"{more} int call = 0;",
                    f"const float *next = p1 + ({block} * {positions} + {position}) * {self.weights};",
                )
            rest = self.blocks % self.per_tile
            with body.block(f"if (cb + b + {self.per_tile} <= {self.blocks})" if rest else ""):
                self._strip(body, self.per_tile, last)
            if rest:
                with body.block("else"):
                    self._strip(body, rest, last)

    def _strip(self, body: Code, blocks: int, last: int) -> None:
        """The tiles of a strip. Each fetches its share of the next product's weights, so memory is used evenly."""
        lengths = [self.strip] if last == self.strip else [self.strip, last]
        for number, length in enumerate(lengths):
            head = "" if len(lengths) == 1 else "else" if number else f"if (count == {length})"
            with body.block(head):
                runs = even_runs(length, tile_pixels(self.isa, blocks))
                calls = sum((stop - start) // size for size, start, stop in runs)
                fetch = max(r for r in (1, 2, 4) if r == 1 or r * blocks <= calls) if self.far else 0
                for size, start, stop in runs:
                    call = self._tile(size, blocks, fetch)
                    with body.block(f"for (int i = {start}; i < {stop}; i += {size})"):
                        if fetch:
                            part = [("next", 1), (f"call / {fetch}", self.form.products * self.weights)]
                            part += [(f"call % {fetch}", self.weights // fetch)]
                            body.add(f"const float *f = call < {blocks * fetch} ? {linear(part)} : w;", "call++;")
                        f = "f, " if fetch else ""
                        body.add(f"{call}(v + i * {self.v_step()}, w, {f}m + i * {BLOCK}, t);")

    def _tile(self, pixels: int, blocks: int, fetch: int) -> str:
        key = (pixels, blocks, fetch)
        if key not in self._tiles:
            self._tiles[key] = name = f"{self.name}_t{pixels}_{blocks}" + (f"_{fetch}" if fetch else "")
            offsets = [p * self.v_step() for p in range(pixels)]

            def finish(code: Code, total: str, pixel: int, lane: int) -> None:
                target = lane // BLOCK * self.m_block + pixel * BLOCK + lane % BLOCK
                code.add(self.vec.store(linear([("y", 1)], target), total))

            taps = replace(self.taps(), fetch=fetch)
            emit_tile(self.code, name, self.isa, taps, offsets, blocks, ["f"] if fetch else [], finish)
            self.tile_floats = max(self.tile_floats, tile_scratch(pixels, blocks, self.order.leaves), LINE)
        return self._tiles[key]

    def finish_tile(
        self, code: Code, results: Sequence[tuple[str, tuple[int, int, int]]], lane: int, tail: int
    ) -> None:
        """Bias, fused operations and store of ``results`` (variable, position) through pointers named as parameters."""
        addend = self.vec.load(linear([(self.bias, 1)], lane)) if self.bias else self.vec.set1("0.0f")
        code.add(f"const {self.vec.type} bias = {addend};")
        for value, position in results:
            code.add(f"{value} = {self.vec.add(value, 'bias')};")
            self.chain.emit(code, value, position, lane, tail)

    def emit_halo(self, code: Code, row: str, last: str) -> None:
        """Zero the halo that belongs to output row ``row`` of block ``cb + b``."""
        halo = three(self.out.physical.halo, 0)
        if any(halo):
            side = 2 * halo[2] * self.y.spatial[2]
            target = self.y.at("n", "(cb + b)", ["0", row, "0"])
            width = self.out.dims[-1] * self.y.spatial[2]
            code.add(f"ca1_halo({target}, 0, {row}, {last}, {side}, 0, {self.y.origin}, {width});")


def even_runs(length: int, most: int) -> list[tuple[int, int, int]]:
    """``length`` cut into pieces of at most ``most``, as equal as possible: (size, start, stop) of each run."""
    pieces = -(-length // most)
    size, wide = divmod(length, pieces)
    runs = [(size + 1, 0, wide * (size + 1))] if wide else []
    return [*runs, (size, wide * (size + 1), length)]


def unit_taps(winograd: Winograd, positions: tuple[int, ...], block_step: int) -> Taps:
    """Taps over V whose channel blocks of 16 lie ``block_step`` floats apart."""
    assert winograd.order.block == UNIT
    return Taps(winograd.order, positions, 0, block_step, block_step=winograd.form.products * winograd.weights)
