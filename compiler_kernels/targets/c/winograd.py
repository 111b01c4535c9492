"""Winograd forms of a convolution as scalar code, one output element at a time (docs/arithmetic.md, 3.6 to 3.9)."""

from __future__ import annotations

from compiler_kernels.arithmetic.winograd import WINOGRAD
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import Code, decode, linear, root_of, strides


def winograd(function: Graph, code: Code) -> None:
    """Statements ending in ``const float sum``, the output without its bias. Weights are transformed on the way.

    Slow: it serves the few layers whose values are not blocked, and processors without vector kernels.
    """
    from compiler_kernels.targets.c.products import chain  # products dispatches to this module

    op = root_of(function)
    types = function.types()
    x, w = op.operands[:2]
    x_dims, w_dims = types[x].dims, types[w].dims
    form = WINOGRAD[op.str_("arithmetic")]
    x_step, w_step, pads = strides(x_dims), strides(w_dims), op.ints("pads")
    code.add(
        *decode(op.out.dims),
        f"const float *xg = {x} + {linear([('i0', x_step[0])])};",
        f"const float *wo = {w} + {linear([('i1', w_step[0])])};",
    )
    channel_x, channel_w = linear([("xg", 1), ("c", x_step[1])]), linear([("wo", 1), ("c", w_step[1])])
    order = form.order(w_dims[1], w_dims[2:])
    if form.axes == 2:
        code.add(f"const int row = i2 / 2 * 2 - {pads[0]}, column = i3 / 2 * 2 - {pads[1]};", "float m[4][4], t[4];")
        with code.block("for (int p = 0; p < 4; p++)"), code.block("for (int q = 0; q < 4; q++)"):
            value = f"ca1_w23_plane_v({channel_x}, p, q, row, column, {x_dims[2]}, {x_dims[3]})"
            chain(code, order, (), (), None, value, f"ca1_w23_plane_u({channel_w}, p, q)")
            code.add("m[p][q] = sum;")
        code.add(
            "for (int q = 0; q < 4; q++) t[q] = ca1_w23_y(i2 % 2, m[0][q], m[1][q], m[2][q], m[3][q]);",
            "const float sum = ca1_w23_y(i3 % 2, t[0], t[1], t[2], t[3]);",
        )
        return
    code.add(f"const int start = i2 / 2 * 2 - {pads[0]};", "float m[4];")
    with code.block("for (int j = 0; j < 4; j++)"):
        value = f"ca1_w23_line_v({channel_x}, j, start + 3 * kw, {x_dims[2]})"
        weight = f"ca1_w23_line_u({channel_w}, j, 3 * kw, {w_dims[2]})"
        chain(code, order, ("w",), (order.positions,), None, value, weight)
        code.add("m[j] = sum;")
    code.add("const float sum = ca1_w23_y(i2 % 2, m[0], m[1], m[2], m[3]);")
