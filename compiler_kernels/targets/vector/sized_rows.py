"""Elementwise chains, pooling, softmax, normalisations and reductions over sizes known at run time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from compiler_kernels.arithmetic.order import SUM_LEAF
from compiler_kernels.ir.dims import Size, ceildiv
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.rows import in_lanes
from compiler_kernels.targets.c.writer import Code, c_count, c_float, is_one, linear, loop
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.sized import Body, steps_of
from compiler_kernels.targets.vector.sized_chain import VECTOR, SizedChain, flattened, load, store
from compiler_kernels.targets.vector.vec import Vec

CHUNK = 4096


def pointwise(function: Graph, isa: Isa, name: str) -> Body | None:
    """An elementwise chain: vectors over as many last axes as every operand runs along or ignores."""
    if any(op.kind not in VECTOR for op in function.ops):
        return None
    rank = len(function.ops[-1].out.shape)
    found = next((f for n in range(rank) if (f := flattened(function, n, skip_root=False)) is not None), None)
    if found is None:
        return None
    vec, out = Vec(isa), found.ops[-1].out.dims
    chain = SizedChain(found, vec, skip_root=False)
    if not chain.possible:
        return None
    outer, run, last = out[:-1], out[-1], f"i{len(out) - 1}"
    code = Code()
    code.add(f"const int row = item / chunks, from = item % chunks * {CHUNK};")
    code.add(f"const int stop = {run} - from < {CHUNK} ? {run} : from + {CHUNK};")
    code.add(*_coordinates(outer, "row"), f"int {last} = from;")
    position = [f"i{a}" for a in range(len(out))]
    at = linear([("row", run), (last, 1)])
    for bits, head in (("", f"for (; {last} + {vec.lanes} <= stop; {last} += {vec.lanes})"),
                       ("bits", f"if ({last} < stop)")):  # fmt: skip
        with code.block(head):
            if bits:
                code.add(f"const unsigned bits = ca1_first(stop - {last}, {vec.lanes});")
            lines, result = chain.statements("", position, bits)
            code.add(*lines, store(vec, f"y + {at}", result, bits))
    setup = [f"const int chunks = (({run}) + {CHUNK - 1}) / {CHUNK};"]
    return Body(code.lines, _times([*outer, "chunks"]), prod(outer) * ceildiv(run, CHUNK), setup)


def _coordinates(dims: Sequence[Size], flat: str) -> list[str]:
    steps = steps_of(dims)
    lines = []
    for a, size in enumerate(dims):
        part = flat if is_one(steps[a]) else f"{flat} / {steps[a]}"
        lines.append(f"const int i{a} = {part}{f' % {size}' if a else ''}; (void)i{a};")
    return lines


def _times(factors: Sequence[object]) -> str:
    return " * ".join(f"{f}" for f in factors if f"{f}" != "1") or "1"


def pool(function: Graph, isa: Isa, name: str) -> Body | None:
    """MaxPool and AveragePool: an item is a row of the result."""
    op = function.ops[0]
    if op.kind not in ("max_pool", "average_pool"):
        return None
    vec, x = Vec(isa), op.operands[0]
    chain = SizedChain(function, vec, skip_root=True)
    kernel, average = op.ints("kernel"), op.kind == "average_pool"
    if not chain.possible or prod(kernel) > SUM_LEAF:
        return None
    x_dims, out = function.types()[x].dims, op.out.dims
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    rank, x_step = len(kernel), steps_of(x_dims)
    include = average and bool(op.attr("count_include_pad"))
    last = f"i{rank + 1}"
    code = Code()
    code.add(*_coordinates(out[:-1], "item"))
    code.add(f"const float *xc = {x} + {linear([('i0', x_step[0]), ('i1', x_step[1])])};")
    with code.block(f"for (int {last} = 0; {last} < {out[-1]}; {last} += {vec.lanes})"):
        code.add(f"const unsigned keep = ca1_first({out[-1]} - {last}, {vec.lanes});")
        start = "0.0f" if average else "-__builtin_inff()"
        code.add(f"{vec.type} acc = {vec.set1(start)};", *([f"{vec.type} count = {vec.set1('0.0f')};"] * average))
        for a in range(rank):
            code.add(f"const int s{a} = {linear([(f'i{a + 2}', steps[a])], -pads[a])};")
        for a in range(rank):
            code.add(loop(f"k{a}", kernel[a]) + " {", f"const int x{a} = s{a} + k{a} * {dilations[a]};")
            if a < rank - 1 and not include:
                code.add(f"if (x{a} < 0 || x{a} >= {x_dims[a + 2]}) continue;")
        end = f"x{rank - 1}"
        rows_in = " && ".join(f"x{a} >= 0 && x{a} < {x_dims[a + 2]}" for a in range(rank - 1)) if include else ""
        found = f"ca1_bits({end}, {steps[-1]}, {x_dims[-1]}, {vec.lanes})"
        code.add(f"const unsigned bits = {f'({rows_in}) ? {found} : 0u' if rows_in else found};")
        place = linear([(f"x{a}", x_step[a + 2]) for a in range(rank)])
        value = load(vec, f"xc + {place}", "bits", steps[-1])
        one, zero = vec.set1("1.0f"), vec.set1("0.0f")
        if average:
            counted = "bits"
            if include:
                inside = " && ".join(
                    f"x{a} >= {-pads[a]} && x{a} < {x_dims[a + 2] + pads[rank + a]}" for a in range(rank - 1)
                )
                reach = f"{x_dims[-1] + pads[rank - 1] + pads[-1]}"
                within = f"ca1_bits({end} + {pads[rank - 1]}, {steps[-1]}, {reach}, {vec.lanes})"
                code.add(f"const unsigned within = {f'({inside}) ? {within} : 0u' if inside else within};")
                counted = "within"
            present = f"{vec('pick_bits')}({one}, {zero}, {counted})"
            code.add(f"count = {vec.add('count', present)};", f"acc = {vec.add('acc', value)};")
        else:
            absent = vec.set1("-__builtin_inff()")
            code.add(f"acc = {vec('max')}(acc, {vec('pick_bits')}({value}, {absent}, bits));")
        code.add("}" * rank)
        code.add(f"const {vec.type} t0 = {vec('div')}(acc, count);" if average else f"const {vec.type} t0 = acc;")
        position = [f"i{a}" for a in range(rank + 2)]
        lines, result = chain.statements("t0", position, "keep")
        code.add(*lines, store(vec, f"y + {linear([('item', out[-1]), (last, 1)])}", result, "keep"))
    return Body(code.lines, _times(out[:-1]), prod(out[:-1]))


def softmax(function: Graph, isa: Isa, name: str) -> Body | None:
    op = function.ops[0]
    if op.kind not in ("softmax", "log_softmax") or len(function.ops) > 1:
        return None
    vec, dims, axis, x = Vec(isa), op.out.dims, op.int_("axis"), op.operands[0]
    size, log = dims[axis], op.kind == "log_softmax"
    if axis == len(dims) - 1:
        line = f"{vec('row_softmax')}({x} + item * {size}, y + item * {size}, {size}, {int(log)});"
        return Body([line], _times(dims[:-1]), prod(dims[:-1]))
    inner = prod(dims[axis + 1 :])
    code = Code()
    code.add(
        f"const int first = item % chunks * {vec.lanes};",
        f"const unsigned bits = ca1_first({inner} - first, {vec.lanes});",
        f"const long base = item / chunks * {size * inner} + first;",
        f"const float *x = {x} + base;",
        "float *out = y + base;",
        f"{vec.type} m = {load(vec, 'x', 'bits')};",
    )
    at, each = f"k * (long){inner}", loop("k", size)
    here, there = load(vec, f"x + {at}", "bits"), load(vec, f"out + {at}", "bits")
    code.add(
        f"for (int k = 1; k < {size}; k++) m = {vec('max')}(m, {here});",
        f"{each} {vec('store_bits')}(out + {at}, {vec('exp_nonpositive')}({vec('sub')}({here}, m)), bits);",
        f"{vec.type} s = {vec('column_sum')}(out, {size}, {inner}, bits);",
    )
    result = f"{vec('div')}({there}, s)"
    if log:
        code.add(f"s = {vec('log')}(s);")
        result = f"{vec('sub')}({vec('sub')}({here}, m), s)"
    code.add(f"{each} {vec('store_bits')}(out + {at}, {result}, bits);")
    setup = [f"const int chunks = (({inner}) + {vec.lanes - 1}) / {vec.lanes};"]
    return Body(code.lines, _times([*dims[:axis], "chunks"]), prod(dims[:axis]) * ceildiv(inner, vec.lanes), setup)


def normalization(function: Graph, isa: Isa, name: str) -> Body | None:
    """layer_normalization and rms_normalization whose scale and bias run along the whole row."""
    op = function.ops[0]
    if op.kind not in ("layer_normalization", "rms_normalization") or len(function.ops) > 1:
        return None
    vec, dims, axis, types = Vec(isa), op.out.dims, op.int_("axis"), function.types()
    row = [f"{d}" for d in dims[axis:]]
    if any([f"{d}" for d in types[o].dims] != row for o in op.operands[1:] if o):
        return None
    size = prod(dims[axis:])
    count, rms = c_count(size), op.kind == "rms_normalization"
    total = f"{vec('row_sum')}(x, {size}, {{0}}, {{1}}) / {count}"
    scale, bias = op.operands[1], op.operands[2] if len(op.operands) > 2 else ""
    code = Code()
    code.add(
        f"const float *x = {op.operands[0]} + item * (long){size};",
        f"float *out = y + item * (long){size};",
        f"const float mean = {'0.0f' if rms else total.format('CA1_PLAIN', '0.0f')};",
        f"const float var = {total.format('CA1_SQUARES', 'mean')};",
        f"const float r = 1.0f / ca1_sqrt_v1(var + {c_float(op.float_('epsilon'))});",
    )
    with code.block(f"for (int k = 0; k < {size}; k += {vec.lanes})"):
        code.add(f"const unsigned bits = ca1_first({size} - k, {vec.lanes});")
        deviation = f"{vec('sub')}({load(vec, 'x + k', 'bits')}, {vec.set1('mean')})"
        shift = load(vec, f"{bias} + k", "bits") if bias else vec.set1("0.0f")
        value = vec.fma(f"{vec('mul')}({deviation}, {vec.set1('r')})", load(vec, f"{scale} + k", "bits"), shift)
        code.add(store(vec, "out + k", value, "bits"))
    return Body(code.lines, _times(dims[:axis]), prod(dims[:axis]))


def reduction(function: Graph, isa: Isa, name: str) -> Body | None:
    """Sums, means and extremes over trailing axes in lanes, and over neighbouring axes before others by columns."""
    op = function.ops[0]
    if op.kind not in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min") or len(function.ops) > 1:
        return None
    vec, x, axes = Vec(isa), op.operands[0], op.ints("axes")
    dims = function.types()[x].dims
    if not axes or axes != tuple(range(axes[0], axes[-1] + 1)):
        return None
    before, size, inner = prod(dims[: axes[0]]), prod(dims[a] for a in axes), prod(dims[axes[-1] + 1 :])
    sign = {"reduce_max": 1, "reduce_min": -1}.get(op.kind, 0)
    if axes[-1] == len(dims) - 1:
        if not in_lanes(op, len(dims)):
            return None
        place = f"{x} + item * (long){size}, {size}"
        value = f"{vec('row_extreme')}({place}, {sign})" if sign else f"{vec('row_sum')}({place}, CA1_PLAIN, 0.0f)"
        divided = f" / {c_count(size)}" if op.kind == "reduce_mean" else ""
        return Body([f"y[item] = {value}{divided};"], _times(dims[: axes[0]]), before)
    if sign:
        return None
    code = Code()
    code.add(
        f"const int first = item % chunks * {vec.lanes}, above = item / chunks;",
        f"const unsigned bits = ca1_first({inner} - first, {vec.lanes});",
        f"const float *x = {x} + above * (long){size * inner} + first;",
        f"{vec.type} sum = {vec('column_sum')}(x, {size}, {inner}, bits);",
    )
    if op.kind == "reduce_mean":
        code.add(f"sum = {vec('div')}(sum, {vec.set1(c_count(size))});")
    code.add(store(vec, f"y + above * (long){inner} + first", "sum", "bits"))
    setup = [f"const int chunks = (({inner}) + {vec.lanes - 1}) / {vec.lanes};"]
    return Body(code.lines, _times([*dims[: axes[0]], "chunks"]), before * ceildiv(inner, vec.lanes), setup)
