"""Winograd W23: tiles of 2x2 outputs of a 3x3 kernel (docs/arithmetic.md, 3.8)."""

from __future__ import annotations

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.tile import Taps
from compiler_kernels.targets.vector.winograd import LINE, Winograd, unit_taps


class Plane(Winograd):
    """V: [position][channel block][tile][16]."""

    def __init__(self, function: Graph, isa: Isa, name: str) -> None:
        height, width = function.ops[-1].out.dims[2:]
        self.height, self.width = height, width
        self.rows, self.columns = -(-height // 2), -(-width // 2)
        super().__init__(function, isa, name, self.rows * self.columns)

    def v_floats(self, tiles: int) -> int:
        return self.form.products * (self.in_blocks * tiles * BLOCK + LINE)

    def v_address(self, position: int) -> int:
        return position * (self.in_blocks * self.strip * BLOCK + LINE)

    def v_step(self) -> int:
        return BLOCK

    def taps(self) -> Taps:
        return unit_taps(self, (0,), self.strip * BLOCK)

    def emit_inputs(self) -> None:
        """Tiles of a row overlap by two columns, whose transforms along the height are made once."""
        code, vec = self.code, self.vec
        row, column = self.x.spatial[1:]
        head = f"static void {self.name}_in(const float *x, float *V, int first, int count)"
        with (
            code.block(head),
            code.block(f"for (int c = 0; c < {self.in_blocks}; c++)"),
            code.block(f"for (int l = 0; l < {BLOCK}; l += {vec.lanes})"),
        ):
            code.add(f"float *o = {linear([('V', 1), ('c', self.strip * BLOCK), ('l', 1)])};")
            with code.block("for (int i = first, run; i < first + count; i += run)"):
                code.add(
                    f"const int r = i / {self.columns}, q = i % {self.columns};",
                    f"run = {self.columns} - q < first + count - i ? {self.columns} - q : first + count - i;",
                    f"const float *p = {linear([('x', 1), ('c', self.x.block), ('l', 1)])} + "
                    f"{linear([('r', 2 * row), ('q', 2 * column)], -self.pads[0] * row - self.pads[1] * column)};",
                )
                code.add(*self._column(0, "a"), *self._column(1, "b"))
                with code.block(f"for (int k = 0; k < run; k++, p += {2 * column}, o += {BLOCK})"):
                    code.add(*self._column(2, "c"), *self._column(3, "d"))
                    for i in range(4):
                        values = (("sub", "a", "c"), ("add", "b", "c"), ("sub", "c", "b"), ("sub", "b", "d"))
                        for j, (step, s, t) in enumerate(values):
                            target = linear([("o", 1)], self.v_address(4 * i + j))
                            code.add(vec.store(target, f"{vec(step)}({s}{i}, {t}{i})"))
                    code.add(" ".join(f"a{i} = c{i}; b{i} = d{i};" for i in range(4)))

    def _column(self, number: int, name: str) -> list[str]:
        """The four values of a column after the transform along the height, as ``<name>0`` to ``<name>3``."""
        vec = self.vec
        row, column = self.x.spatial[1:]
        loads = [vec.load(linear([("p", 1)], i * row + number * column)) for i in range(4)]
        x = [f"x{name}{i}" for i in range(4)]
        steps = (("sub", 0, 2), ("add", 1, 2), ("sub", 2, 1), ("sub", 1, 3))
        declared = "" if name in "ab" else "const "
        return [
            f"const {vec.type} {', '.join(f'{n} = {v}' for n, v in zip(x, loads, strict=True))};",
            f"{declared}{vec.type} "
            + ", ".join(f"{name}{i} = {vec(s)}({x[a]}, {x[b]})" for i, (s, a, b) in enumerate(steps))
            + ";",
        ]

    def emit_outputs(self) -> None:
        code = self.code
        names = "".join(f", const float *{p}" for p in self.extras)
        for tail in {0, self.tail} if self.blocks > 1 or not self.tail else {self.tail}:
            for high in {2, 2 - self.height % 2}:
                for wide in {2, 2 - self.width % 2}:
                    with code.block(
                        f"static inline void {self._tile_name(high, wide, tail)}(const float *m{names}, float *y)"
                    ):
                        for lane in range(0, BLOCK, self.vec.lanes):
                            with code.block(";" if self.vec.lanes < BLOCK else ""):
                                self._outputs(high, wide, lane, tail)
        params = f"const float *M{names}, float *y, int n, int first, int count, int cb, int blocks"
        head = f"static void {self.name}_out({params})"
        with code.block(head), code.block("for (int b = 0; b < blocks; b++)"):
            code.add(f"const float *m = {linear([('M', 1), ('b', self.m_block)])};")
            with code.block(f"for (int i = first; i < first + count; i++, m += {BLOCK})"):
                code.add(f"const int r = i / {self.columns}, q = i % {self.columns};")
                if any(self.out.physical.halo):
                    with code.block("if (q == 0)"):
                        self.emit_halo(code, "(2 * r)", f"2 * r == {self.height - 1}")
                        with code.block(f"if (2 * r + 1 < {self.height})"):
                            self.emit_halo(code, "(2 * r + 1)", f"2 * r + 1 == {self.height - 1}")
                place = ["0", "(2 * r)", "(2 * q)"]
                arguments = ["m", *(a.at("n", "(cb + b)", place) for a in self.extras.values())]
                arguments.append(self.y.at("n", "(cb + b)", place))
                self._calls(", ".join(arguments))

    def _tile_name(self, high: int, wide: int, tail: int) -> str:
        return f"{self.name}_o{high}{wide}{'m' if tail else ''}"

    def _calls(self, arguments: str) -> None:
        """Call the variant for the tile: cut at an odd end, masked in an unfilled last block."""
        conditions: list[tuple[str, int, int]] = [("", 2, 2)]
        if self.width % 2:
            conditions.insert(0, (f"q == {self.columns - 1}", 2, 1))
        if self.height % 2:
            conditions.insert(0, (f"r == {self.rows - 1}", 1, 2))
        if self.width % 2 and self.height % 2:
            conditions.insert(0, (f"r == {self.rows - 1} && q == {self.columns - 1}", 1, 1))
        for masked in (False, True) if self.tail and self.blocks > 1 else (bool(self.tail),):
            guard = "" if not self.tail or self.blocks == 1 else f"cb + b {'==' if masked else '<'} {self.blocks - 1}"
            with self.code.block(f"if ({guard})" if guard else ""):
                for number, (condition, high, wide) in enumerate(conditions):
                    call = f"{self._tile_name(high, wide, self.tail if masked else 0)}({arguments});"
                    start = "else " if number else ""
                    self.code.add(f"{start}if ({condition}) {call}" if condition else f"{start}{call}")

    def _outputs(self, high: int, wide: int, lane: int, tail: int) -> None:
        """One tile and vector: M to outputs, along the height, then along the width."""
        code, vec = self.code, self.vec
        m = {(a, b): f"m{a}{b}" for a in range(4) for b in range(4)}
        used = [(a, b) for a in range(2 + high) for b in range(2 + wide)]
        for a, b in used:
            address = linear([("m", 1)], (4 * a + b) * self.m_position + lane)
            code.add(f"const {vec.type} {m[a, b]} = {vec.load(address)};")
        add, sub = vec("add"), vec("sub")
        for b in range(2 + wide):
            code.add(f"const {vec.type} s0{b} = {add}({add}({m[0, b]}, {m[1, b]}), {m[2, b]});")
            if high == 2:
                code.add(f"const {vec.type} s1{b} = {sub}({sub}({m[1, b]}, {m[2, b]}), {m[3, b]});")
        results = []
        for a in range(high):
            code.add(f"{vec.type} z{a}0 = {add}({add}(s{a}0, s{a}1), s{a}2);")
            results.append((f"z{a}0", (0, a, 0)))
            if wide == 2:
                code.add(f"{vec.type} z{a}1 = {sub}({sub}(s{a}1, s{a}2), s{a}3);")
                results.append((f"z{a}1", (0, a, 1)))
        self.finish_tile(code, results, lane, tail)
