"""Softmax and norms: emitters of a whole row per work item; and where reductions run in lanes."""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.targets.c.writer import Code, c_count, c_number, c_type, is_one, linear, loop, root_of, strides


def softmax_items(function: Graph) -> int:
    op = root_of(function)
    axis = op.int_("axis")
    return prod(op.out.dims[:axis]) * prod(op.out.dims[axis + 1 :])


def softmax(function: Graph, code: Code) -> None:
    """m = max; e = exp(x - m); y = e / sum(e), or (x - m) - log(sum). Item ``i`` is one row."""
    op = root_of(function)
    dims, axis = op.out.dims, op.int_("axis")
    size, inner = dims[axis], prod(dims[axis + 1 :])
    base = f"i * {size}" if is_one(inner) else f"(i / {inner}) * {size * inner} + i % {inner}"
    step = "k" if is_one(inner) else f"k * {inner}"
    code.add(f"const float *row = {op.operands[0]} + {base};", f"float *out = y + {base};", "float m = row[0];")
    code.add(f"for (int k = 1; k < {size}; k++) m = ca1_max_v1(m, row[{step}]);")
    summed = f"ca1_sum_lanes({{0}}, {size}, CA1_PLAIN, 0.0f)"
    if axis != len(dims) - 1:
        summed = f"ca1_sum_positions({{0}}, {size}, {inner}, CA1_PLAIN, 0.0f)"
    if op.kind == "softmax":
        code.add(
            f"for (int k = 0; k < {size}; k++) out[{step}] = ca1_exp(row[{step}] - m);",
            f"const float s = {summed.format('out')};",
            f"for (int k = 0; k < {size}; k++) out[{step}] = out[{step}] / s;",
        )
        return
    # The exponentials need a place of their own until they are summed: the output row; the shifted input follows after.
    code.add(
        f"for (int k = 0; k < {size}; k++) out[{step}] = ca1_exp(row[{step}] - m);",
        f"const float s = ca1_log({summed.format('out')});",
        f"for (int k = 0; k < {size}; k++) out[{step}] = (row[{step}] - m) - s;",
    )


BY_ROW = ("layer_normalization", "rms_normalization")
"""Normalisations of the axes from ``axis`` on, in lanes; the others are per sample and channels, by positions."""


def norm_items(function: Graph) -> int:
    op = root_of(function)
    dims = op.out.dims
    if op.kind in BY_ROW:
        return prod(dims[: op.int_("axis")])
    return dims[0] * (op.int_("num_groups") if op.kind == "group_normalization" else dims[1])


def norm(function: Graph, code: Code) -> None:
    """Two passes: mean, then the squares of the deviations; y = fma(d * r, scale, bias). An RMS has no mean: d = x."""
    op = root_of(function)
    types = function.types()
    dims = op.out.dims
    per_group = dims[1] // op.int_("num_groups") if op.kind == "group_normalization" else 1
    size = prod(dims[op.int_("axis") :]) if op.kind in BY_ROW else per_group * prod(dims[2:])
    dtype, ctype, zero, one = op.out.dtype, c_type(op.out), *(c_number(v, op.out.dtype) for v in (0.0, 1.0))
    suffix, fma, root = ("", "ca1_fmaf", "ca1_sqrt_v1") if dtype == "float32" else ("_f64", "ca1_fma64", "ca1_sqrt_f64")
    order = "lanes{}(row, {}" if op.kind in BY_ROW else "positions{}(row, {}, 1"
    summed = f"ca1_sum_{order.format(suffix, size)}, {{what}}, {{shift}})"
    count = c_count(size, dtype)
    mean = f"{summed.format(what='CA1_PLAIN', shift=zero)} / {count}"
    code.add(
        f"const {ctype} *row = {op.operands[0]} + i * {size};",
        f"{ctype} *out = y + i * {size};",
        f"const {ctype} mean = {zero if op.kind == 'rms_normalization' else mean};",
        f"const {ctype} var = {summed.format(what='CA1_SQUARES', shift='mean')} / {count};",
        f"const {ctype} r = {one} / {root}(var + {c_number(op.float_('epsilon'), dtype)});",
    )
    scale = op.operands[1]
    bias = op.operands[2] if len(op.operands) > 2 else ""
    with code.block(loop("k", size)):
        if op.kind in BY_ROW:
            index = _aligned_index(types[scale].dims, dims[op.int_("axis") :], code)
            bias_index = _aligned_index(types[bias].dims, dims[op.int_("axis") :], code) if bias else ""
        else:
            spatial = prod(dims[2:])
            code.add(f"const int ch = (i % {dims[1] // per_group}) * {per_group} + k / {spatial};")
            index = bias_index = "ch"
        shift = f"{bias}[{bias_index}]" if bias else zero
        code.add(f"out[k] = {fma}((row[k] - mean) * r, {scale}[{index}], {shift});")


def _aligned_index(operand: tuple[int, ...], row: tuple[int, ...], code: Code) -> str:
    """Index into ``operand``, broadcast to the row's axes, for flat row position ``k``."""
    if [f"{d}" for d in operand] == [f"{d}" for d in row]:
        return "k"
    lead = len(row) - len(operand)
    steps, row_steps = strides(operand), strides(row)
    terms = []
    for a, size in enumerate(operand):
        if not is_one(size):
            part = "k" if is_one(row_steps[lead + a]) else f"k / {row_steps[lead + a]}"
            terms.append((f"({part} % {row[lead + a]})", steps[a]))
    return linear(terms)


def in_lanes(op: Op, rank: int) -> bool:
    """Trailing axes are summed in 16 lanes, except the mean of a feature map (rank >= 4, all spatial axes)."""
    axes = op.ints("axes")
    if op.kind == "reduce_mean" and rank >= 4 and axes == tuple(range(2, rank)):
        return False
    return axes == tuple(range(rank - len(axes), rank))
