"""Kernels that slide a register tile over an output: convolution, and the phases of a transposed convolution.

Work items are (window, batch, group of output blocks, output row or part of it). Every item also zeroes the halo that
belongs to its rows, so that arena memory may be reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.text import format_op
from compiler_kernels.targets.c.writer import Code, Kernel, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import Access, Chain, Three, full_access, operand_access, three
from compiler_kernels.targets.vector.closing import emit_closing, is_expensive, slot
from compiler_kernels.targets.vector.tile import Taps, emit_tile, tile_blocks, tile_pixels, tile_scratch
from compiler_kernels.targets.vector.vec import Vec

CACHE_BYTES = 1 << 20
"""Weights below half of this are kept near while the outputs of a row are walked through block by block."""
FEW_ITEMS = 64


@dataclass(frozen=True, slots=True)
class Window:
    """Outputs ``first + j * every`` for j in ``extent``; output j reads x at ``j * step + taps.positions``."""

    taps: Taps
    weights: int
    step: Three
    extent: Three
    first: Three = (0, 0, 0)
    every: Three = (1, 1, 1)


@dataclass
class Slide:
    """Emitter state of one kernel: x is p0, the weights p1 and, unless ``bias`` is empty, the bias that parameter.

    ``block_groups``: blocks of outputs per group of a grouped convolution, whose x starts ``group_step`` floats later
    from group to group; 0 when there are no groups.
    """

    function: Graph
    isa: Isa
    name: str
    windows: Sequence[Window]
    bias: str
    block_groups: int = 0
    group_step: int = 0
    code: Code = field(default_factory=Code)

    def __post_init__(self) -> None:
        types = self.function.types()
        self.vec = Vec(self.isa)
        self.chain = Chain(self.function, self.vec)
        self.out = self.function.ops[-1].out
        self.x = full_access("p0", types["p0"])
        self.y = self.chain.y
        self.blocks = -(-self.out.dims[1] // BLOCK)
        self.spatial = three(self.out.dims[2:], 1)
        self.halo = three(self.out.physical.halo, 0) if self.out.layout else (0, 0, 0)
        self.tail = self.out.dims[1] % BLOCK
        self.scratch = 0
        self.tiles: dict[tuple[object, ...], str] = {}
        self.extras: dict[str, Access] = dict(self.chain.accesses)
        if self.bias:
            self.extras[self.bias] = operand_access(self.bias, types[self.bias], self.out)

    def kernel(self, shown: Graph) -> Kernel:
        body = Code()
        params = ", ".join(f"const float *{v.id}" for v in self.function.inputs)
        head = f"CA1_DEVICE static void {self.name}({params}, float *y, float *scratch, int begin, int end)"
        items = 0
        # Windows of one size share their items, so that x is near when the next phase reads it.
        together = len({w.extent for w in self.windows}) == 1
        with body.block(head), body.block("for (int item = begin; item < end; item++)"):
            for number, window in enumerate(self.windows):
                count, lines = self._window(window, 0 if together else items)
                last = number == len(self.windows) - 1
                if together and not (number == 0 and last):
                    with body.block(f"/* phase {number} */"):
                        body.add(*lines)
                    items = count
                    continue
                with body.block("" if last else f"if (item < {items + count})"):
                    body.add(*lines, *([] if last else ["continue;"]))
                items += count
        comments = [f"/* {line.strip()} */" for op in shown.ops for line in format_op(op)]
        text = "\n".join([*self.code.lines, *comments, *body.lines]) + "\n"
        return Kernel(self.name, text, len(self.function.inputs), items, max(16, self.scratch))

    def _window(self, window: Window, start: int) -> tuple[int, list[str]]:
        """Number of items of ``window`` and the statements of item ``item - start``."""
        depth, height, width = window.extent
        per_tile = min(tile_blocks(self.isa), self.block_groups or self.blocks)
        while self.block_groups and self.block_groups % per_tile:
            per_tile -= 1
        groups = -(-self.blocks // per_tile)
        most = tile_pixels(self.isa, per_tile)
        rows = strip_rows(height, width, most, per_tile * BLOCK // self.isa.lanes)
        strips = -(-height // rows)
        columns = max(-(-width // (most // r)) for r in {rows, height % rows or rows})
        split = columns if groups * strips * depth * self.out.dims[0] < FEW_ITEMS else 1
        counts = {"n": self.out.dims[0], "g": groups, "z": depth, "r": strips, "c": split}
        bytes_of_weights = window.taps.weights * self.blocks * 4
        near = bytes_of_weights <= CACHE_BYTES // 2
        if bytes_of_weights > CACHE_BYTES:
            # The next group's weights come from memory while this one's are multiplied.
            window = replace(window, taps=replace(window.taps, ahead=per_tile * window.taps.weights))
        order = ["n", "z", "r", "c", "g"] if near else ["g", "n", "z", "r", "c"]
        code = Code()
        step = prod(counts.values())
        total = step
        for name in order:
            step //= counts[name]
            index = linear([("item", 1)], -start) if start else "item"
            index = f"({index})" if start else index
            expression = f"{index} / {step}" if step > 1 else index
            code.add(f"const int {name} = {f'{expression} % {counts[name]}' if counts[name] > 1 else '0'};")
        code.add(f"const int h = r * {rows}, cb = g * {per_tile};", "(void)z, (void)h, (void)c;")
        plain = self.blocks % per_tile == 0 and not self.tail
        variants = [(per_tile, 0, "")] if plain else []
        if not plain:
            if groups > 1:
                variants.append((per_tile, 0, f"if (g < {groups - 1})"))
            left = self.blocks - (groups - 1) * per_tile
            variants.append((left, self.tail, "else" if groups > 1 else ""))
        for blocks, tail, condition in variants:
            with code.block(condition):
                self._group(code, window, blocks, tail, rows, split, most)
        return total, code.lines

    def _group(self, code: Code, window: Window, blocks: int, tail: int, rows: int, split: int, most: int) -> None:
        """The tiles of an item: strips of ``rows`` rows, and of what is left at the end of a plane."""
        height, width = window.extent[1:]
        used = self._pointers(code, window)
        rest = height % rows
        for count, condition in ((rows, f"if (r < {height // rows})" if rest else ""), (rest, "else")):
            if not count:
                continue
            columns = -(-width // (most // count))
            narrow, wide = width // columns, width % columns  # `wide` tiles are one pixel wider
            with code.block(condition):
                for number, size, first in ((wide, narrow + 1, 0), (columns - wide, narrow, wide)):
                    if not number:
                        continue
                    start = 0 if first == 0 else wide * (narrow + 1)
                    pixels = [(0, e, c) for e in range(count) for c in range(size)]
                    call = self._call(window, pixels, blocks, tail, used, "j")
                    if split > 1:
                        with code.block(f"if (c >= {first} && c < {first + number})"):
                            code.add(f"const int j = {start} + (c - {first}) * {size};", call)
                    else:
                        with code.block(f"for (int j = {start}; j < {start + number * size}; j += {size})"):
                            code.add(call)
        self._halo(code, window, blocks, rows, split)

    def _pointers(self, code: Code, window: Window) -> list[str]:
        """Declare the pointers of the item's first pixel; the names of those that exist beyond x, w and y."""
        x = self.x.at("n", "0", [linear([(i, s)]) for i, s in zip(("z", "h", "0"), window.step, strict=True)])
        if self.block_groups:
            x += f" + cb / {self.block_groups} * {self.group_step}"
        code.add(f"const float *xi = {x};")
        code.add(f"const float *wi = {linear([('p1', 1), ('cb', window.taps.weights)], window.weights)};")
        where = [linear([(i, e)], f) for i, e, f in zip(("z", "h", "0"), window.every, window.first, strict=True)]
        where = [f"({p})" for p in where]
        for name, access in self.extras.items():
            code.add(f"const float *{name}i = {access.at('n', 'cb', where)};")
        code.add(f"float *yi = {self.y.at('n', 'cb', where)};")
        return list(self.extras)

    def _call(
        self, window: Window, pixels: list[Three], blocks: int, tail: int, used: list[str], column: str = ""
    ) -> str:
        """A call of the tile whose first pixel is ``column`` of the item's row."""
        tile = self._tile(window, pixels, blocks, tail)

        def moved(name: str, step: int) -> str:
            return linear([(name, 1), (column, step)]) if column else name

        every = window.every[2]
        arguments = [moved("xi", window.step[2] * self.x.spatial[2]), "wi"]
        arguments += [moved(f"{name}i", every * self.extras[name].spatial[2]) for name in used]
        arguments += [moved("yi", every * self.y.spatial[2]), "scratch"]
        return f"{tile}({', '.join(arguments)});"

    def _tile(self, window: Window, pixels: list[Three], blocks: int, tail: int) -> str:
        key = (window.taps, window.step, window.every, tuple(pixels), blocks, tail)
        if key in self.tiles:
            return self.tiles[key]
        name = f"{self.name}_t{len(self.tiles)}"
        self.tiles[key] = name
        x = [sum(p * s * a for p, s, a in zip(px, window.step, self.x.spatial, strict=True)) for px in pixels]
        vec, bias = self.vec, self.bias
        later = is_expensive(self.chain.ops)
        last = (len(pixels) - 1, blocks * BLOCK - vec.lanes)

        def finish(code: Code, total: str, pixel: int, lane: int) -> None:
            addend = vec.load(linear([(bias, 1)], lane)) if bias else vec.set1("0.0f")
            code.add(f"{total} = {vec.add(total, addend)};")
            position = [p * e for p, e in zip(pixels[pixel], window.every, strict=True)]
            if not self.out.layout:
                self._scatter(code, total, position, lane)
                return
            if later:
                code.add(vec.store(linear([("t", 1)], slot(pixel, blocks, lane)), total))
                if (pixel, lane) == last:
                    emit_closing(code, self.chain, pixels, window.every, blocks, tail)
                return
            inside = tail if lane // BLOCK == blocks - 1 else 0
            self.chain.emit(code, total, position, lane, inside)

        emit_tile(self.code, name, self.isa, window.taps, x, blocks, list(self.extras), finish)
        self.scratch = max(self.scratch, len(pixels) * blocks * BLOCK if later else 0)
        self.scratch = max(self.scratch, tile_scratch(len(pixels), blocks, window.taps.order.leaves))
        return name

    def _scatter(self, code: Code, total: str, position: Sequence[int], lane: int) -> None:
        """Store the channels of a plain result one by one."""
        count = min(self.out.dims[1] - lane, self.vec.lanes)
        if count > 0:
            start = sum(p * s for p, s in zip(position, self.y.spatial, strict=True))
            stores = [f"y[{start + (lane + c) * self.y.block}] = lanes[{c}];" for c in range(count)]
            code.add(f"{{ float lanes[{self.vec.lanes}]; {self.vec.store('lanes', total)} {' '.join(stores)} }}")

    def _halo(self, code: Code, window: Window, blocks: int, rows: int, split: int) -> None:
        """Zero what precedes the item's rows (once per output row: by the window that holds its first column)."""
        if not any(self.halo) or window.first[2] != 0:
            return
        depth, height, width = self.spatial
        side = 2 * self.halo[2] * self.y.spatial[2]
        above = side + 2 * self.halo[1] * self.y.spatial[1]
        d = linear([("z", window.every[0])], window.first[0])
        row = linear([("(h + e)" if rows > 1 else "h", window.every[1])], window.first[1])
        block = "(cb + b)" if blocks > 1 else "cb"
        target = self.y.at("n", block, [f"({d})", f"({row})", "0"])
        last = f"{d} == {depth - 1} && {row} == {height - 1}"
        with (
            code.block("if (c == 0)" if split > 1 else ""),
            code.block(f"for (int b = 0; b < {blocks}; b++)" if blocks > 1 else ""),
            code.block(f"for (int e = 0; e < {rows} && h + e < {window.extent[1]}; e++)" if rows > 1 else ""),
        ):
            sizes = f"{side}, {above}, {self.y.origin}, {width * self.y.spatial[2]}"
            code.add(f"ca1_halo({target}, {d}, {row}, {last}, {sizes});")


def strip_rows(height: int, width: int, most: int, vectors: int) -> int:
    """Rows per tile (of at most ``most`` pixels, ``vectors`` accumulators each) that make a plane cheapest.

    A tile costs one unit per accumulator, but not less than ten: fewer cannot hide the latency of a multiply-add.
    """

    def strip(rows: int) -> float:
        columns = -(-width // (most // rows))
        sizes = [width // columns + (i < width % columns) for i in range(columns)]
        return sum(max(rows * size * vectors, 10) + 2.0 for size in sizes)

    def plane(rows: int) -> float:
        return height // rows * strip(rows) + (strip(height % rows) if height % rows else 0.0)

    return min(range(1, min(most, height) + 1), key=lambda rows: (plane(rows), rows))


def emit_slide(
    function: Graph,
    isa: Isa,
    name: str,
    windows: Sequence[Window],
    bias: str,
    block_groups: int = 0,
    group_step: int = 0,
    shown: Graph | None = None,
) -> Kernel:
    """The kernel of ``function``, whose root is a sum over ``windows`` (see :class:`Slide`).

    ``shown`` is the function as the reader of the C text knows it, where ``function`` was rewritten.
    """
    return Slide(function, isa, name, windows, bias, block_groups, group_step).kernel(shown or function)
