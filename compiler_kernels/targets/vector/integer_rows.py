"""Integer convolutions in groups (depthwise ones among them): a row of results per item, a plain loop per tap.

Each loop adds one weight times a row of x to a row of sums, which compilers turn into vectors; the chain follows.
"""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.text import format_op
from compiler_kernels.passes.integers import place
from compiler_kernels.targets.c.writer import Code, Kernel, c_type, decode, linear, strides
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.integer_chain import Chain

NARROW = ("int8", "uint8", "int16")


def integer_rows(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """The kernel of a convolution of 8- or 16-bit integers with plain weights, one to three axes, and a chain whose
    operands meet it as passes/integers.py says; ``None`` for anything else."""
    op, types = function.ops[0], function.types()
    if op.kind != "conv_integer" or any(types[o].dtype not in NARROW or types[o].layout for o in op.operands):
        return None
    inner = {o.result for o in function.ops}
    outside = (o for inside in function.ops[1:] for o in inside.operands if o not in inner)
    if not op.out.count or any(place(types[o], op.out, op.kind) is None for o in outside):
        return None
    (x, w), out = op.operands, op.out.dims
    rank, per_group, outputs = len(out) - 2, types[w].dims[1], out[1] // op.int_("group")
    size, kernel = types[x].dims[2:], types[w].dims[2:]
    step, dilation, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    x_step, w_step = strides(types[x].dims), strides(types[w].dims)
    code = Code()
    for inner_op in function.ops:
        code.add(*(f"/* {line.strip().replace('*/', '* /')} */" for line in format_op(inner_op)))
    params = "".join(f"const {c_type(v.type)} *{v.id}, " for v in function.inputs)
    with (
        code.block(
            f"static void {name}({params}{c_type(function.ops[-1].out)} *y, float *scratch, int begin, int end)"
        ),
        code.block("for (int i = begin; i < end; i++)"),
    ):
        code.add(*decode(out[:-1]), "int32_t *line = (int32_t *)scratch;")
        code.add("(void)i0;", *(f"(void)i{a + 2};" for a in range(rank - 1)))
        code.add(f"__builtin_memset(line, 0, {out[-1]} * sizeof *line);")
        loops = [("c", per_group), *((f"k{a}", kernel[a]) for a in range(rank - 1))]
        for variable, count in loops:
            code.add(f"for (int {variable} = 0; {variable} < {count}; {variable}++) {{")
            code.depth += 1
            if variable != "c":
                a = int(variable[1:])
                code.add(f"const int x{a} = {linear([(f'i{a + 2}', step[a]), (variable, dilation[a])], -pads[a])};")
                code.add(f"if (x{a} < 0 || x{a} >= {size[a]}) continue;")
        channel = [("i0", x_step[0]), (f"(i1 / {outputs})", per_group * x_step[1]), ("c", x_step[1])]
        at = linear([*channel, *((f"x{a}", x_step[a + 2]) for a in range(rank - 1))])
        tap = linear([("i1", w_step[0]), ("c", w_step[1]), *((f"k{a}", w_step[a + 2]) for a in range(rank - 1))])
        code.add(f"const {c_type(types[x])} *from = {x} + {at};", f"const {c_type(types[w])} *taps = {w} + {tap};")
        for k in range(kernel[-1]):
            first = k * dilation[-1] - pads[rank - 1]
            low, high = max(0, -(first // step[-1])), min(out[-1], (size[-1] - 1 - first) // step[-1] + 1)
            if low < high:
                product = f"(uint32_t)((int32_t)from[{linear([('j', step[-1])], first)}] * (int32_t)w{k})"
                code.add(f"const {c_type(types[w])} w{k} = taps[{k}];")
                code.add(f"for (int j = {low}; j < {high}; j++) line[j] = (int32_t)((uint32_t)line[j] + {product});")
        for _ in loops:
            code.depth -= 1
            code.add("}")
        Chain(function, op.kind, out[1]).row(code, out[-1])
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), prod(out[:-1]), out[-1])
