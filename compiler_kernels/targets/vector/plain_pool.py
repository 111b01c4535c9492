"""Maximum pooling of plain row-major values: a row of results per item, in loops that compilers turn into vectors."""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.text import format_op
from compiler_kernels.targets.c.writer import Code, Kernel, decode, linear, strides
from compiler_kernels.targets.isa import Isa


def plain_max_pool(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """The kernel of a binary32 ``max_pool`` on its own, of one to three axes; ``None`` for anything else.

    Each result meets the taps inside x in the order of section 5, so the bits are those of the scalar kernel.
    """
    op = function.ops[0]
    if op.kind != "max_pool" or len(function.ops) > 1 or op.out.layout or not op.out.count:
        return None
    x = op.operands[0]
    dims, out = function.types()[x].dims, op.out.dims
    if function.types()[x].layout:
        return None
    rank = len(out) - 2
    kernel, step, dilation = op.ints("kernel"), op.ints("strides"), op.ints("dilations")
    pads, size = op.ints("pads"), dims[2:]
    code = Code()
    code.add(*(f"/* {line.strip()} */" for line in format_op(op)))
    with (
        code.block(f"static void {name}(const float *{x}, float *y, int begin, int end)"),
        code.block("for (int i = begin; i < end; i++)"),
    ):
        code.add(*decode(out[:-1]), f"float *row = y + i * {out[-1]};")
        code.add(f"for (int j = 0; j < {out[-1]}; j++) row[j] = -__builtin_inff();")
        steps = strides(dims)
        for a in range(rank - 1):
            code.add(f"for (int k{a} = 0; k{a} < {kernel[a]}; k{a}++) {{")
            code.depth += 1
            code.add(f"const int x{a} = {linear([(f'i{a + 2}', step[a]), (f'k{a}', dilation[a])], -pads[a])};")
            code.add(f"if (x{a} < 0 || x{a} >= {size[a]}) continue;")
        at = linear([("i0", steps[0]), ("i1", steps[1]), *((f"x{a}", steps[a + 2]) for a in range(rank - 1))])
        code.add(f"const float *from = {x} + {at};")
        for k in range(kernel[-1]):
            first = k * dilation[-1] - pads[rank - 1]
            low = max(0, -(first // step[-1]))
            high = min(out[-1], (size[-1] - 1 - first) // step[-1] + 1)
            if low < high:
                value = f"from[{linear([('j', step[-1])], first)}]"
                code.add(f"for (int j = {low}; j < {high}; j++) row[j] = ca1_max_v1(row[j], {value});")
        for _ in range(rank - 1):
            code.depth -= 1
            code.add("}")
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), prod(out[:-1]))
