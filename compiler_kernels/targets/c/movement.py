"""Data movement: transpose, slice, pad, concat, expand, reshape and copy; no arithmetic, only indices."""

from __future__ import annotations

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import (
    Code,
    broadcast_index,
    c_number,
    c_type,
    decode,
    is_one,
    linear,
    root_of,
    strides,
)


def copy(function: Graph, code: Code) -> None:
    op = root_of(function)
    code.add(f"const {c_type(op.out)} t0 = {op.operands[0]}[i];")


def expand(function: Graph, code: Code) -> None:
    op = root_of(function)
    code.add(*decode(op.out.dims))
    code.add(
        f"const {c_type(op.out)} t0 = {op.operands[0]}[{broadcast_index(function.types()[op.operands[0]], op.out)}];"
    )


def transpose(function: Graph, code: Code) -> None:
    op = root_of(function)
    step = strides(function.types()[op.operands[0]].dims)
    index = linear([(f"i{n}", step[axis]) for n, axis in enumerate(op.ints("perm"))])
    code.add(*decode(op.out.dims), f"const {c_type(op.out)} t0 = {op.operands[0]}[{index}];")


def slice_(function: Graph, code: Code) -> None:
    op = root_of(function)
    step = strides(function.types()[op.operands[0]].dims)
    starts, steps = op.extents("starts"), op.ints("steps")
    offset = sum(start * s for start, s in zip(starts, step, strict=True))
    index = linear([(f"i{a}", steps[a] * step[a]) for a in range(len(step))], offset)
    code.add(*decode(op.out.dims), f"const {c_type(op.out)} t0 = {op.operands[0]}[{index}];")


def concat(function: Graph, code: Code) -> None:
    op = root_of(function)
    types, axis = function.types(), op.int_("axis")
    code.add(*decode(op.out.dims), f"{c_type(op.out)} t0 = 0;")
    start = 0
    for number, operand in enumerate(op.operands):
        dims = types[operand].dims
        step = strides(dims)
        index = linear([(f"i{a}", step[a]) for a in range(len(dims))], -start * step[axis])
        keyword = "if" if number == 0 else "else if"
        if dims[axis] != 0:
            code.add(f"{keyword} (i{axis} < {start + dims[axis]}) t0 = {operand}[{index}];")
        else:
            code.add(f"{keyword} (0) t0 = 0;")
        start += dims[axis]


def pad(function: Graph, code: Code) -> None:
    op = root_of(function)
    dims = function.types()[op.operands[0]].dims
    step, pads, mode = strides(dims), op.ints("pads"), op.str_("mode")
    code.add(*decode(op.out.dims))
    for a, size in enumerate(dims):
        code.add(f"int x{a} = {linear([(f'i{a}', 1)], -pads[a])};")
        if mode != "constant" and not pads[a] and not pads[a + len(dims)]:
            continue
        if mode == "edge":
            code.add(f"x{a} = x{a} < 0 ? 0 : x{a} > {size - 1} ? {size - 1} : x{a};")
        elif mode == "wrap":
            code.add(f"x{a} = ((x{a} % {size}) + {size}) % {size};")
        elif mode == "reflect":
            if is_one(size):
                code.add(f"x{a} = 0;")
                continue
            period = f"{2 * (size - 1)}"
            if not isinstance(size, int):  # which may be 1
                code.add(f"const int p{a} = {size} > 1 ? {period} : 1;")
                period = f"p{a}"
            code.add(f"x{a} = ((x{a} % {period}) + {period}) % {period};")
            code.add(f"x{a} = x{a} >= {size} ? {period} - x{a} : x{a};")
    index = linear([(f"x{a}", step[a]) for a in range(len(dims))])
    value = f"{op.operands[0]}[{index}]"
    if mode == "constant":
        inside = " && ".join(f"x{a} >= 0 && x{a} < {size}" for a, size in enumerate(dims)) or "1"
        value = f"({inside}) ? {value} : {c_number(op.number('value'), op.out.dtype)}"
    code.add(f"const {c_type(op.out)} t0 = {value};")
