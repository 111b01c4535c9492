"""Depthwise convolution on blocked values: a vector of channels per pixel, every x loaded once per kernel row."""

from __future__ import annotations

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, Kernel, linear, root_of
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import full_access, operand_access, three
from compiler_kernels.targets.vector.block_rows import Rows
from compiler_kernels.targets.vector.closing import is_expensive

MAX_PIXELS = 14


def depthwise(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """One leaf (at most 72 positions) per output, then the bias."""
    op = root_of(function)
    types = function.types()
    if op.kind != "conv" or not types[op.operands[1]].layout.startswith("packed dw16 "):
        return None
    rows = Rows(function, isa, name)
    vec = rows.vec
    x_type, w_type = types["p0"], types["p1"]
    x = full_access("p0_" if "p0" in rows.chain.accesses else "p0", x_type)
    kernel, step, dilation = three(w_type.dims[2:], 1), three(op.ints("strides"), 1), three(op.ints("dilations"), 1)
    pads = three(op.ints("pads")[: len(w_type.dims) - 2], 0)
    positions = kernel[0] * kernel[1] * kernel[2]
    bias = op.operands[2] if len(op.operands) > 2 else ""
    most = max(1, min(MAX_PIXELS, isa.registers - kernel[2] - 2)) if isa.lanes > 1 else 2
    if is_expensive(rows.chain.ops):
        most = min(most, 4)

    def strip(code: Code, pixels: int, lane: int, tail: int) -> None:
        """``pixels`` outputs from column c on."""
        names = [f"a{p}" for p in range(pixels)]
        code.add(f"{vec.type} {', '.join(f'{a} = {zero}' for a in names)};")
        with (
            code.block(f"for (int kd = 0; kd < {kernel[0]}; kd++)"),
            code.block(f"for (int kh = 0; kh < {kernel[1]}; kh++)"),
        ):
            moves = [("kd", dilation[0] * x.spatial[0]), ("kh", dilation[1] * x.spatial[1])]
            code.add(f"const float *xk = xc + {linear(moves, lane)};")
            row = kernel[2] * BLOCK
            code.add(f"const float *wk = w + {linear([('kd', kernel[1] * row), ('kh', row)], lane)};")
            for k in range(kernel[2]):
                code.add(f"const {vec.type} w{k} = {vec.load(linear([('wk', 1)], k * BLOCK))};")
            readers: dict[int, list[tuple[int, int]]] = {}
            for p in range(pixels):
                for k in range(kernel[2]):
                    readers.setdefault(p * step[2] + k * dilation[2], []).append((p, k))
            for column, users in sorted(readers.items()):
                updates = " ".join(f"a{p} = {vec.fma('b', f'w{k}', f'a{p}')};" for p, k in users)
                code.add(f"{{ const {vec.type} b = {vec.load(linear([('xk', 1)], column * BLOCK))}; {updates} }}")
        for p, a in enumerate(names):
            addend = vec.load(f"{bias} + cb * {BLOCK} + {lane}") if bias else zero
            code.add(f"{a} = {vec.add(a, addend)};")
            rows.chain.emit(code, a, (0, 0, p), lane, tail)

    zero = vec.set1("0.0f")

    def row(code: Code, tail: int) -> None:
        where = [linear([(i, s)], -p) for i, s, p in zip(("d", "h", "0"), step, pads, strict=True)]
        code.add(f"const float *xc = {x.at('n', 'cb', [f'({i})' for i in where])};")
        code.add(f"const float *w = p1 + cb * {positions * BLOCK};")
        tiles = -(-rows.width // most)
        narrow, wide = rows.width // tiles, rows.width % tiles
        for count, pixels in ((wide, narrow + 1), (tiles - wide, narrow)):
            if not count:
                continue
            with code.block(f"for (int tile = 0; tile < {count}; tile++)"):
                for lane in range(0, BLOCK, vec.lanes):
                    code.add("{")
                    strip(code, pixels, lane, tail)
                    code.add("}")
                moved = [f"xc += {pixels * step[2] * BLOCK}", f"y += {pixels * rows.y.spatial[2]}"]
                moved += [f"{n} += {pixels * a.spatial[2]}" for n, a in rows.chain.accesses.items() if a.spatial[2]]
                code.add(", ".join(moved) + ";")

    assert not bias or operand_access(bias, types[bias], op.out).block == BLOCK
    return rows.emit(row)
