"""Pooling of blocked values: one vector of channels per output pixel, the window cut to the input first."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from compiler_kernels.arithmetic.order import SUM_LEAF
from compiler_kernels.ir.graph import Graph, TensorType
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, Kernel, c_float, linear, root_of
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import full_access, three
from compiler_kernels.targets.vector.block_rows import Rows


def pool(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """max_pool and average_pool from blocked to blocked."""
    op = root_of(function)
    if op.kind not in ("max_pool", "average_pool") or not function.ops[-1].out.layout.startswith("c16"):
        return None
    rows = Rows(function, isa, name)
    vec = rows.vec
    x_type = function.types()["p0"]
    x = full_access(rows_base(rows, "p0"), x_type)
    rank = len(x_type.dims) - 2
    size = three(x_type.dims[2:], 1)
    kernel, step, dilation = (three(op.ints(k), 1) for k in ("kernel", "strides", "dilations"))
    begin, end = three(op.ints("pads")[:rank], 0), three(op.ints("pads")[rank:], 0)
    average = op.kind == "average_pool"
    include = average and bool(op.attr("count_include_pad"))
    interior = _interior(size[2], kernel[2], step[2], dilation[2], begin[2], rows.width)

    def pixel(code: Code, lane: int, tail: int, inside: bool) -> None:
        """One vector; ``inside``: the window does not leave the row."""
        start = "0.0f" if average else "-__builtin_inff()"
        code.add(f"{vec.type} best = {vec.set1(start)};")
        with code.block("for (int kd = d0; kd < d1; kd++)"), code.block("for (int kh = h0; kh < h1; kh++)"):
            moves = [("kd", dilation[0] * x.spatial[0]), ("kh", dilation[1] * x.spatial[1])]
            code.add(f"const float *xk = xr + {linear(moves, lane)};")
            for kw in range(kernel[2]):
                value = vec.load(linear([("xk", 1)], kw * dilation[2] * BLOCK))
                update = vec.add("best", value) if average else f"{vec('max')}(best, {value})"
                guard = "" if inside else f"if (w0 + {kw * dilation[2]} >= 0 && w0 + {kw * dilation[2]} < {size[2]}) "
                code.add(f"{guard}best = {update};")
        if average:
            code.add(f"best = {vec('div')}(best, {vec.set1('(float)count')});")
        rows.chain.emit(code, "best", (0, 0, 0), lane, tail)

    def span(code: Code, tail: int, first: int, last: int, inside: bool) -> None:
        if first >= last:
            return
        with code.block(f"for (int c = {first}; c < {last}; c++)"):
            code.add(f"const int w0 = {linear([('c', step[2])], -begin[2])};")
            code.add(f"const float *xr = xb + w0 * {BLOCK};")
            if average:
                code.add(_count("w", size[2], kernel[2], dilation[2], begin[2], end[2], include))
                code.add("const int count = count_d * count_h * count_w;")
            for lane in range(0, BLOCK, vec.lanes):
                code.add("{")
                pixel(code, lane, tail, inside)
                code.add("}")
            moves = [f"y += {rows.y.spatial[2]}"]
            moves += [f"{n} += {a.spatial[2]}" for n, a in rows.chain.accesses.items() if a.spatial[2]]
            code.add(", ".join(moves) + ";", "(void)w0;")

    def row(code: Code, tail: int) -> None:
        for a, (axis, index) in enumerate((("d", "d"), ("h", "h"))):
            code.add(f"const int {axis}s = {linear([(index, step[a])], -begin[a])};")
            code.add(f"int {axis}0 = 0, {axis}1 = {kernel[a]};")
            code.add(f"while ({axis}0 < {axis}1 && {axis}s + {axis}0 * {dilation[a]} < 0) {axis}0++;")
            code.add(f"while ({axis}1 > {axis}0 && {axis}s + ({axis}1 - 1) * {dilation[a]} >= {size[a]}) {axis}1--;")
            if average:
                code.add(_count(axis, size[a], kernel[a], dilation[a], begin[a], end[a], include, f"{axis}s"))
        code.add(f"const float *xb = {x.at('n', 'cb', ['ds', 'hs', '0'])};")
        span(code, tail, 0, interior[0], False)
        span(code, tail, interior[0], interior[1], True)
        span(code, tail, interior[1], rows.width, False)

    return rows.emit(row)


def rows_base(rows: Rows, name: str) -> str:
    """Parameter ``name`` as the kernel declares it: with an underscore when the chain reads it as well."""
    return f"{name}_" if name in rows.chain.accesses else name


def _interior(size: int, kernel: int, step: int, dilation: int, begin: int, outputs: int) -> tuple[int, int]:
    """Outputs whose window lies inside the row, as a range."""
    good = [o for o in range(outputs) if o * step >= begin and o * step - begin + (kernel - 1) * dilation < size]
    return (good[0], good[-1] + 1) if good else (outputs, outputs)


def _count(
    axis: str, size: int, kernel: int, dilation: int, begin: int, end: int, include: bool, start: str = "w0"
) -> str:
    """Positions of the window that the average counts along one axis."""
    low, high = (-begin, size + end) if include else (0, size)
    tests = [f"({start} + {k * dilation} >= {low} && {start} + {k * dilation} < {high})" for k in range(kernel)]
    return f"const int count_{axis} = {' + '.join(tests)};"


def global_pool(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """Mean or maximum over all positions of a blocked value: leaves of 64 positions and the tree, per channel."""
    op = root_of(function)
    x_type = function.types()[op.operands[0]]
    out = function.ops[-1].out
    kinds = ("global_average_pool", "global_max_pool", "reduce_mean")
    if op.kind not in kinds or not x_type.layout.startswith("c16"):
        return None
    blocked_function = function if out.layout else _blocked_result(function)
    rows = Rows(blocked_function, isa, name)
    vec, x = rows.vec, full_access(rows_base(rows, "p0"), x_type)
    depth, height, width = three(x_type.dims[2:], 1)
    mean = op.kind != "global_max_pool"
    count = prod((depth, height, width))
    levels = max(1, _levels(-(-count // SUM_LEAF)))

    def row(code: Code, tail: int) -> None:
        code.add(f"const float *xb = {x.at('n', 'cb', ['0', '0', '0'])};")
        for lane in range(0, BLOCK, vec.lanes):
            if not out.layout and tail and lane >= tail:
                continue
            code.add("{")
            start = "0.0f" if mean else "-__builtin_inff()"
            code.add(f"{vec.type} best = {vec.set1(start)}, node[{levels}];", "int k = 0;", "(void)node, (void)k;")
            index = linear([("i", x.spatial[0]), ("j", x.spatial[1])], lane)
            with code.block(f"for (int i = 0; i < {depth}; i++)"), code.block(f"for (int j = 0; j < {height}; j++)"):
                code.add(f"const float *xk = xb + {index};")
                with code.block(f"for (int c = 0; c < {width}; c++, xk += {BLOCK})"):
                    value = vec.load("xk")
                    code.add(f"best = {vec.add('best', value) if mean else vec('max') + f'(best, {value})'};")
                    if mean and count > SUM_LEAF:
                        _push(code, rows, levels, count)
            if mean:
                if count > SUM_LEAF:
                    _close(code, rows, levels, count)
                code.add(f"best = {vec('div')}(best, {vec.set1(c_float(count))});")
            if out.layout or not tail or lane + vec.lanes <= tail:
                rows.chain.emit(code, "best", (0, 0, 0), lane, tail if out.layout else 0)
            else:
                code.add(f"float rest[{vec.lanes}]; {vec.store('rest', 'best')}")
                code.add(f"__builtin_memcpy(y + {lane}, rest, {(tail - lane) * 4});")
            code.add("}")

    return rows.emit(row)


def _levels(leaves: int) -> int:
    level = 0
    while leaves > 1:
        level, leaves = level + 1, -(-leaves // 8)
    return level


def _push(code: Code, rows: Rows, levels: int, count: int) -> None:
    """After every 64 positions, except the last, hand the leaf to the tree."""
    vec = rows.vec
    code.add(f"if (++k % {SUM_LEAF} || k == {count}) continue;", f"int m = k / {SUM_LEAF} - 1;")
    for level in range(levels):
        code.add(f"node[{level}] = m % 8 ? {vec.add(f'node[{level}]', 'best')} : best;", f"best = node[{level}];")
        if level < levels - 1:
            code.add("if (m % 8 == 7) {", "m /= 8;")
    code.add(*["}"] * (levels - 1), f"best = {vec.set1('0.0f')};")


def _close(code: Code, rows: Rows, levels: int, count: int) -> None:
    done = -(-count // SUM_LEAF) - 1
    for level in range(levels):
        if done % 8:
            code.add(f"best = {rows.vec.add(f'node[{level}]', 'best')};")
        done //= 8


def _blocked_result(function: Graph) -> Graph:
    """``function`` with its plain [N, C] result seen as blocks; only whole vectors may be stored."""
    x = function.types()["p0"]
    last = function.ops[-1]
    seen = TensorType((*x.dims[:2], *[1] * (len(x.dims) - 2)), last.out.dtype, "c16" + " 0" * (len(x.dims) - 2))
    return replace(function, ops=(*function.ops[:-1], replace(last, type=seen)))
