"""Winograd W1-23: pairs of outputs of a long one-dimensional kernel, three taps at a time (docs/arithmetic.md, 3.9)."""

from __future__ import annotations

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.tile import Taps
from compiler_kernels.targets.vector.winograd import LINE, Winograd, unit_taps


class Line(Winograd):
    """V: three arrays [channel block][x position][16]: A = x(s) - x(s+2), P = x(s) + x(s+1), Q = x(s+1) - x(s).

    The values of a pair that starts at s are A(s), P(s+1), Q(s+1), A(s+1): those of overlapping pairs and groups are
    the same numbers, computed once.
    """

    def __init__(self, function: Graph, isa: Isa, name: str) -> None:
        self.length = function.ops[-1].out.dims[2]
        super().__init__(function, isa, name, -(-self.length // 2))

    @property
    def groups_of_three(self) -> int:
        return self.form.groups(self.kernel)

    def _span(self, tiles: int) -> int:
        """Starting positions of a strip: the last pair's last group, and one more for A(s+1)."""
        return 2 * (tiles - 1) + 3 * (self.groups_of_three - 1) + 2

    def _array(self, tiles: int) -> int:
        return self.in_blocks * self._span(tiles) * BLOCK + LINE

    def v_floats(self, tiles: int) -> int:
        return 3 * self._array(tiles)

    def v_address(self, position: int) -> int:
        array = (0, 1, 2, 0)[position]
        return array * self._array(self.strip) + (BLOCK if position else 0)

    def v_step(self) -> int:
        return 2 * BLOCK

    def taps(self) -> Taps:
        positions = tuple(3 * g * BLOCK for g in range(self.groups_of_three))
        return unit_taps(self, positions, self._span(self.strip) * BLOCK)

    def emit_inputs(self) -> None:
        code, vec = self.code, self.vec
        more = self._span(1) - 2
        array = self._array(self.strip)
        head = f"static void {self.name}_in(const float *x, float *V, int first, int count)"
        with (
            code.block(head),
            code.block(f"for (int c = 0; c < {self.in_blocks}; c++)"),
            code.block(f"for (int l = 0; l < {BLOCK}; l += {vec.lanes})"),
        ):
            code.add(
                f"float *o = {linear([('V', 1), ('c', self._span(self.strip) * BLOCK), ('l', 1)])};",
                f"const float *p = {linear([('x', 1), ('c', self.x.block), ('l', 1), ('first', 2 * BLOCK)])} - "
                f"{self.pads[0] * BLOCK};",
                f"{vec.type} x0 = {vec.load('p')}, x1 = {vec.load(f'p + {BLOCK}')};",
            )
            with code.block(f"for (int s = 0; s < 2 * count + {more}; s++, p += {BLOCK}, o += {BLOCK})"):
                code.add(
                    f"const {vec.type} x2 = {vec.load(f'p + {2 * BLOCK}')};",
                    vec.store("o", f"{vec('sub')}(x0, x2)"),
                    vec.store(f"o + {array}", vec.add("x0", "x1")),
                    vec.store(f"o + {2 * array}", f"{vec('sub')}(x1, x0)"),
                    "x0 = x1; x1 = x2;",
                )

    def emit_outputs(self) -> None:
        code = self.code
        names = "".join(f", const float *{p}" for p in self.extras)
        for tail in {0, self.tail} if self.blocks > 1 or not self.tail else {self.tail}:
            for wide in {2, 2 - self.length % 2}:
                with code.block(f"static inline void {self._tile_name(wide, tail)}(const float *m{names}, float *y)"):
                    for lane in range(0, BLOCK, self.vec.lanes):
                        with code.block(";" if self.vec.lanes < BLOCK else ""):
                            self._outputs(wide, lane, tail)
        params = f"const float *M{names}, float *y, int n, int first, int count, int cb, int blocks"
        head = f"static void {self.name}_out({params})"
        with code.block(head), code.block("for (int b = 0; b < blocks; b++)"):
            code.add(f"const float *m = {linear([('M', 1), ('b', self.m_block)])};")
            if any(self.out.physical.halo):
                with code.block("if (first == 0)"):
                    self.emit_halo(code, "0", "1")
            with code.block(f"for (int i = first; i < first + count; i++, m += {BLOCK})"):
                place = ["0", "0", "(2 * i)"]
                arguments = ["m", *(a.at("n", "(cb + b)", place) for a in self.extras.values())]
                arguments.append(self.y.at("n", "(cb + b)", place))
                self._calls(", ".join(arguments))

    def _tile_name(self, wide: int, tail: int) -> str:
        return f"{self.name}_o{wide}{'m' if tail else ''}"

    def _calls(self, arguments: str) -> None:
        for masked in (False, True) if self.tail and self.blocks > 1 else (bool(self.tail),):
            guard = "" if not self.tail or self.blocks == 1 else f"cb + b {'==' if masked else '<'} {self.blocks - 1}"
            tail = self.tail if masked else 0
            with self.code.block(f"if ({guard})" if guard else ""):
                if self.length % 2:
                    self.code.add(f"if (i == {self.tiles - 1}) {self._tile_name(1, tail)}({arguments});", "else")
                self.code.add(f"{self._tile_name(2, tail)}({arguments});")

    def _outputs(self, wide: int, lane: int, tail: int) -> None:
        code, vec = self.code, self.vec
        for a in range(2 + wide):
            address = linear([("m", 1)], a * self.m_position + lane)
            code.add(f"const {vec.type} m{a} = {vec.load(address)};")
        add, sub = vec("add"), vec("sub")
        code.add(f"{vec.type} z0 = {add}({add}(m0, m1), m2);")
        results = [("z0", (0, 0, 0))]
        if wide == 2:
            code.add(f"{vec.type} z1 = {sub}({sub}(m1, m2), m3);")
            results.append(("z1", (0, 0, 1)))
        self.finish_tile(code, results, lane, tail)
