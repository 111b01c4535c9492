"""Movement between layouts: relayout in every direction, and concatenation of whole blocks of channels."""

from __future__ import annotations

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.text import format_op
from compiler_kernels.targets.c.writer import Code, Kernel, linear, root_of
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import Access, full_access, plain_access, three
from compiler_kernels.targets.vector.block_rows import Rows


def relayout(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """The same value in another layout."""
    if root_of(function).kind != "relayout":
        return None
    out = function.ops[-1].out
    if out.layout.startswith("c16"):
        return _to_blocks(function, isa, name)
    return _to_planes(function, name)


def _to_blocks(function: Graph, isa: Isa, name: str) -> Kernel:
    """Plain or blocked to blocked."""
    rows = Rows(function, isa, name)
    x_type = function.types()["p0"]
    x = plain_access("p0", x_type) if not x_type.layout else full_access("p0", x_type)
    step = x.spatial[2] if rows.width > 1 else 1

    def row(code: Code, tail: int) -> None:
        if x_type.layout:
            code.add(f"__builtin_memcpy(y, {x.at('n', 'cb', ['d', 'h', '0'])}, {rows.width * BLOCK * 4});")
            return
        whole = Access(x.name, x.batch, x.block * BLOCK, x.spatial, 0)
        code.add(f"const float *xr = {whole.at('n', 'cb', ['d', 'h', '0'])};")
        count = tail or BLOCK
        with code.block(f"for (int c = 0; c < {rows.width}; c++)"):
            for lane in range(BLOCK):
                source = f"xr[{linear([('c', step)], lane * x.block)}]" if lane < count else "0.0f"
                code.add(f"y[{linear([('c', BLOCK)], lane)}] = {source};")

    return rows.emit(row)


def _to_planes(function: Graph, name: str) -> Kernel:
    """To plain or planar: one item is a row of one channel."""
    x_type, out = function.types()["p0"], function.ops[-1].out
    y = full_access("y", out) if out.layout else plain_access("y", out)
    depth, height, width = three(out.dims[2:], 1)
    channels = out.dims[1]
    code = Code()
    for op in function.ops:
        code.add(*(f"/* {line.strip()} */" for line in format_op(op)))
    with (
        code.block(f"CA1_DEVICE static void {name}(const float *p0, float *y, int begin, int end)"),
        code.block("for (int item = begin; item < end; item++)"),
    ):
        code.add(
            f"const int h = item % {height}, d = item / {height} % {depth};",
            f"const int c = item / {height * depth} % {channels}, n = item / {height * depth * channels};",
            "(void)n, (void)d, (void)h;",
            f"float *yr = {y.at('n', 'c', ['d', 'h', '0'])};",
        )
        if x_type.layout.startswith("c16"):
            x = full_access("p0", x_type)
            lane = "" if x_type.dims[1] == 1 else " + c % 16"
            code.add(f"const float *xr = {x.at('n', f'(c / {BLOCK})', ['d', 'h', '0'])}{lane};")
            code.add(f"for (int i = 0; i < {width}; i++) yr[i] = xr[i * {BLOCK}];")
        else:
            x = full_access("p0", x_type) if x_type.layout else plain_access("p0", x_type)
            code.add(f"__builtin_memcpy(yr, {x.at('n', 'c', ['d', 'h', '0'])}, {width * 4});")
        if out.layout and any(out.physical.halo):
            halo = three(out.physical.halo, 0)
            side = 2 * halo[2]
            above = side + 2 * halo[1] * y.spatial[1]
            last = f"d == {depth - 1} && h == {height - 1}"
            code.add(f"ca1_halo(yr, d, h, {last}, {side}, {above}, {y.origin}, {width});")
    return Kernel(name, "\n".join(code.lines) + "\n", 1, out.dims[0] * channels * depth * height)


def concat(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """Blocked parts of whole blocks, copied row by row (where they could not be written into the result at once)."""
    op = root_of(function)
    if op.kind != "concat" or op.int_("axis") != 1 or not op.out.layout.startswith("c16"):
        return None
    rows = Rows(function, isa, name)
    types = function.types()

    def row(code: Code, tail: int) -> None:
        first = 0
        for number, operand in enumerate(op.operands):
            blocks = types[operand].physical.blocks
            source = full_access(operand, types[operand]).at("n", f"(cb - {first})", ["d", "h", "0"])
            head = f"{'else ' if number else ''}if (cb < {first + blocks})"
            code.add(f"{head} __builtin_memcpy(y, {source}, {rows.width * BLOCK * 4});")
            first += blocks

    return rows.emit(row)
