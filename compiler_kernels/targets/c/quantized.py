"""Integer sums of products: exact in 32 bits, so their order does not matter; they wrap where the sum is larger.

Each emitter writes the statements that compute ``t0`` of the output element ``i``.
"""

from __future__ import annotations

from contextlib import ExitStack

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.products import axis_names
from compiler_kernels.targets.c.writer import Code, c_type, decode, is_one, linear, loop, root_of, strides

_ADD = "acc += (uint32_t)((int32_t){0} * (int32_t){1});"


def conv_integer(function: Graph, code: Code) -> None:
    """Convolution of centred integers: a tap outside x is zero, which is what a zero point as padding means."""
    op = root_of(function)
    types = function.types()
    x, w = op.operands[:2]
    x_dims, w_dims = types[x].dims, types[w].dims
    per_group, out_per_group = w_dims[1], w_dims[0] // op.int_("group")
    kernel, axes = w_dims[2:], axis_names(len(x_dims) - 2)
    x_step, w_step = strides(x_dims), strides(w_dims)
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    group = [] if op.int_("group") == 1 else [(f"(i1 / {out_per_group})", per_group * x_step[1])]
    code.add(
        *decode(op.out.dims),
        f"const {c_type(types[x])} *xg = {x} + {linear([('i0', x_step[0]), *group])};",
        f"const {c_type(types[w])} *wo = {w} + {linear([('i1', w_step[0])])};",
        "uint32_t acc = 0;",
    )
    with ExitStack() as loops:
        for a, name in enumerate(axes):
            loops.enter_context(code.block(loop(f"k{name}", kernel[a])))
            start = linear([(f"i{a + 2}", steps[a]), (f"k{name}", dilations[a])], -pads[a])
            code.add(
                f"const int x{name} = {start};",
                f"if (x{name} < 0 || x{name} >= {x_dims[a + 2]}) continue;",
            )
        place = linear([(f"x{n}", x_step[a + 2]) for a, n in enumerate(axes)])
        weight = linear([(f"k{n}", w_step[a + 2]) for a, n in enumerate(axes)])
        code.add(f"const {c_type(types[x])} *xt = xg + {place};", f"const {c_type(types[w])} *wt = wo + {weight};")
        with code.block(loop("c", per_group)):
            code.add(_ADD.format(f"xt[{linear([('c', x_step[1])])}]", f"wt[{linear([('c', w_step[1])])}]"))
    code.add("const int32_t t0 = (int32_t)acc;")


def matmul_integer(function: Graph, code: Code) -> None:
    """Matrix product with NumPy's promotion of vectors and broadcasting of batch axes."""
    _matrix(function, code, "uint32_t", _ADD)
    code.add("const int32_t t0 = (int32_t)acc;")


def matmul(function: Graph, code: Code) -> None:
    """The same of 32- and 64-bit integers, modulo 2^width: unsigned arithmetic of 64 bits, cut to the type."""
    _matrix(function, code, "uint64_t", "acc += (uint64_t){0} * (uint64_t){1};")
    ctype = c_type(root_of(function).out)
    code.add(f"const {ctype} t0 = ({ctype})acc;")


def _matrix(function: Graph, code: Code, wide: str, add: str) -> None:
    op = root_of(function)
    types = function.types()
    a, b = op.operands[:2]
    a_dims, b_dims = types[a].dims, types[b].dims
    wide_a = a_dims if len(a_dims) > 1 else (1, *a_dims)
    wide_b = b_dims if len(b_dims) > 1 else (*b_dims, 1)
    depth, batch = wide_a[-1], max(len(wide_a), len(wide_b)) - 2
    names = [f"i{n}" for n in range(len(op.out.dims))]
    row = names[batch] if len(a_dims) > 1 else "0"
    column = names[-1] if len(b_dims) > 1 else "0"

    def start(dims: tuple[int, ...], last: tuple[str, int]) -> str:
        step, lead = strides(dims), batch - (len(dims) - 2)
        return linear([*((names[lead + n], step[n]) for n in range(len(dims) - 2) if not is_one(dims[n])), last])

    code.add(
        *decode(op.out.dims),
        f"const {c_type(types[a])} *ar = {a} + {start(wide_a, (row, depth))};",
        f"const {c_type(types[b])} *bc = {b} + {start(wide_b, (column, 1))};",
        f"{wide} acc = 0;",
    )
    with code.block(loop("k", depth)):
        code.add(add.format("ar[k]", f"bc[{linear([('k', wide_b[-1])])}]"))
