"""Sums of products: convolution, transposed convolution, GEMM and MatMul in the order of arithmetic/order.py.

Each emitter writes the statements that compute ``t0`` (bias included) of the output element ``i``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import FEW_CHANNELS, FEW_TARGET, LEAF_TAPS, LEAF_TARGET, SumOrder, sum_order
from compiler_kernels.arithmetic.winograd import DIRECT
from compiler_kernels.ir.dims import Size
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.targets.c.winograd import winograd
from compiler_kernels.targets.c.writer import Code, c_number, c_type, decode, is_one, linear, loop, root_of, strides

_AXES: Final = ("d", "h", "w")
Tap = Callable[[Code], None]


def axis_names(count: int) -> Sequence[str]:
    return _AXES[3 - count :]


def conv(function: Graph, code: Code) -> None:
    """Convolution of any rank and grouping; taps outside x are skipped, which gives the bits of +0 taps."""
    op = root_of(function)
    types = function.types()
    if op.has("arithmetic") and op.str_("arithmetic") != DIRECT:
        winograd(function, code)
        add_bias(op, code)
        return
    x, w = op.operands[:2]
    x_dims, w_dims = types[x].dims, types[w].dims
    per_group, out_per_group = w_dims[1], w_dims[0] // op.int_("group")
    kernel, axes = w_dims[2:], axis_names(len(x_dims) - 2)
    x_step, w_step = strides(x_dims), strides(w_dims)
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    ctype, zero = c_type(op.out), c_number(0.0, op.out.dtype)
    code.add(*decode(op.out.dims))
    source = linear([("i0", x_step[0]), (f"(i1 / {out_per_group})", per_group * x_step[1])])
    if op.int_("group") == 1:
        source = linear([("i0", x_step[0])])
    code.add(f"const {ctype} *xg = {x} + {source};", f"const {ctype} *wo = {w} + {linear([('i1', w_step[0])])};")

    executed = op.has("runtime_weights")

    def tap(inner: Code) -> None:
        for a, name in enumerate(axes):
            start = linear([(f"i{a + 2}", steps[a]), (f"k{name}", dilations[a])], -pads[a])
            inner.add(f"const int x{name} = {start};")
            if not executed:
                inner.add(f"if (x{name} < 0 || x{name} >= {x_dims[a + 2]}) continue;")
        place = linear([(f"x{n}", x_step[a + 2]) for a, n in enumerate(axes)])
        if executed:
            inside = " && ".join(f"x{n} >= 0 && x{n} < {x_dims[a + 2]}" for a, n in enumerate(axes))
            inner.add(f"const int inside = {inside};", f"const {ctype} *xt = inside ? xg + {place} : xg;")
        else:
            inner.add(f"const {ctype} *xt = xg + {place};")
        inner.add(f"const {ctype} *wt = wo + {linear([(f'k{n}', w_step[a + 2]) for a, n in enumerate(axes)])};")

    order = sum_order(per_group, prod(kernel))
    value = f"xt[{linear([('c', x_step[1])])}]"
    value = f"(inside ? {value} : {zero})" if executed else value
    chain(code, order, axes, kernel, tap, value, f"wt[{linear([('c', w_step[1])])}]", op.out.dtype)
    add_bias(op, code)


def conv_transpose(function: Graph, code: Code) -> None:
    """The taps of one output are the k with (o + pad - k*dilation) divisible by the stride; the order follows.

    Tables give, per axis and residue of (o + pad) modulo the stride, the kernel positions of that phase.
    """
    op = root_of(function)
    types = function.types()
    x, w = op.operands[:2]
    x_dims, w_dims = types[x].dims, types[w].dims
    group, out_per_group = op.int_("group"), w_dims[1]
    channels, axes = x_dims[1] // group, axis_names(len(x_dims) - 2)
    x_step, w_step = strides(x_dims), strides(w_dims)
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    ctype, zero = c_type(op.out), c_number(0.0, op.out.dtype)
    tree, fma = ("", "ca1_fmaf") if op.out.dtype == "float32" else ("_f64", "ca1_fma64")
    code.add(*decode(op.out.dims), f"const int g = i1 / {out_per_group};")
    code.add(f"const {ctype} *xg = {x} + {linear([('i0', x_step[0]), ('g', channels * x_step[1])])};")
    column = linear([("g", channels * w_step[0]), (f"(i1 % {out_per_group})", w_step[1])])
    code.add(f"const {ctype} *wo = {w} + {column};")
    for a, name in enumerate(axes):
        phases = [[k for k in range(w_dims[a + 2]) if (r - k * dilations[a]) % steps[a] == 0] for r in range(steps[a])]
        width = max(1, max(len(p) for p in phases))
        rows = ", ".join("{" + ", ".join(map(str, p + [0] * (width - len(p)))) + "}" for p in phases)
        code.add(
            f"const int taps_{name}[{steps[a]}][{width}] = {{{rows}}};",
            f"const int count_{name}[{steps[a]}] = {{{', '.join(str(len(p)) for p in phases)}}};",
            f"const int o{name} = {linear([(f'i{a + 2}', 1)], pads[a])};",
            f"const int r{name} = ((o{name} % {steps[a]}) + {steps[a]}) % {steps[a]}, n{name} = count_{name}[r{name}];",
        )
    one = sum_order(channels, 1)  # with one position, a leaf's blocks are the leaf target over the block
    block, target = one.block, one.blocks_per_leaf * one.block
    q = LEAF_TAPS // block
    code.add(
        f"const int positions = {' * '.join(f'n{n}' for n in axes)};",
        f"const int per_leaf = positions <= {q} ? positions : {q};",
        f"int blocks = positions >= 1 && positions <= {q} ? {target} / ({block} * positions) : 1;",
        "if (blocks < 1) blocks = 1;",
        f"ca1_tree{tree} tree;",
        f"ca1_tree_init{tree}(&tree);",
    )
    total = -(-channels // block)
    executed = op.has("runtime_weights")
    value = f"(inside ? xt[c * {x_step[1]}] : {zero})" if executed else f"xt[c * {x_step[1]}]"
    with (
        code.block(f"for (int leaf = 0; leaf < {total}; leaf += blocks)"),
        code.block("for (int first = 0; first < positions; first += per_leaf)"),
    ):
        code.add(f"{ctype} acc = {zero};")
        with (
            code.block(f"for (int b = leaf; b < leaf + blocks && b < {total}; b++)"),
            code.block("for (int k = first; k < first + per_leaf && k < positions; k++)"),
        ):
            below: list[str] = []
            for a, name in reversed(list(enumerate(axes))):
                place = " / ".join(["k", *below]) if below else "k"
                code.add(
                    f"const int k{name} = taps_{name}[r{name}][{place} % n{name}];",
                    f"const int u{name} = o{name} - k{name} * {dilations[a]};",
                )
                if not executed:
                    code.add(f"if (u{name} < 0 || u{name} / {steps[a]} >= {x_dims[a + 2]}) continue;")
                below.append(f"n{name}")
            if executed:
                inside = " && ".join(f"u{n} >= 0 && u{n} / {steps[a]} < {x_dims[a + 2]}" for a, n in enumerate(axes))
                code.add(f"const int inside = {inside};")
            source = [(f"u{n} / {steps[a]}", x_step[a + 2]) for a, n in enumerate(axes)]
            place = linear(source)
            code.add(
                f"const {ctype} *xt = {f'inside ? xg + {place} : xg' if executed else f'xg + {place}'};",
                f"const {ctype} *wt = wo + {linear([(f'k{n}', w_step[a + 2]) for a, n in enumerate(axes)])};",
                f"const int low = b * {block}, high = low + {block} < {channels} ? low + {block} : {channels};",
                f"for (int c = low; c < high; c++) acc = {fma}({value}, wt[c * {w_step[0]}], acc);",
            )
        code.add(f"ca1_tree_push{tree}(&tree, acc);")
    code.add(f"const {ctype} sum = ca1_tree_sum{tree}(&tree);")
    add_bias(op, code)


def gemm(function: Graph, code: Code) -> None:
    """y[m, n] = alpha * sum_k a[m, k] b[k, n] + beta * c; factors of one are omitted, never fused."""
    op = root_of(function)
    types = function.types()
    a, b = op.operands[:2]
    a_dims, b_dims = types[a].dims, types[b].dims
    trans_a, trans_b = bool(op.attr("trans_a")), bool(op.attr("trans_b"))
    depth = a_dims[0] if trans_a else a_dims[1]
    a_row, a_k = (1, a_dims[1]) if trans_a else (a_dims[1], 1)
    b_col, b_k = (b_dims[1], 1) if trans_b else (1, b_dims[1])
    dtype = op.out.dtype
    ctype, zero = c_type(op.out), c_number(0.0, dtype)
    code.add(
        *decode(op.out.dims),
        f"const {ctype} *xt = {a} + {linear([('i0', a_row)])};",
        f"const {ctype} *wt = {b} + {linear([('i1', b_col)])};",
    )
    x, w = f"xt[{linear([('c', a_k)])}]", f"wt[{linear([('c', b_k)])}]"
    _inner_sum(code, depth, x, w, dtype)
    alpha, beta = op.float_("alpha"), op.float_("beta")
    value = "sum" if alpha == 1.0 else f"{c_number(alpha, dtype)} * sum"
    if len(op.operands) > 2 and op.operands[2] and beta != 0.0:
        c = op.operands[2]
        rows, columns = (1, 1, *types[c].dims)[-2:]
        index = linear([("i0", 0 if is_one(rows) else columns), ("i1", 0 if is_one(columns) else 1)])
        addend = f"{c}[{index}]" if beta == 1.0 else f"{c_number(beta, dtype)} * {c}[{index}]"
        code.add(f"const {ctype} t0 = {value} + ({addend} + {zero});")
    else:
        code.add(f"const {ctype} t0 = {value} + {zero};")


def matmul(function: Graph, code: Code) -> None:
    """NumPy matmul: vectors promoted, batch axes broadcast."""
    op = root_of(function)
    types = function.types()
    a, b = op.operands
    a_dims, b_dims = types[a].dims, types[b].dims
    full = list(op.out.dims)
    if len(a_dims) == 1:
        full.insert(len(full) - (len(b_dims) > 1), 1)
    if len(b_dims) == 1:
        full.append(1)
    a_full = (1, *a_dims) if len(a_dims) == 1 else a_dims
    b_full = (*b_dims, 1) if len(b_dims) == 1 else b_dims
    rank, a_step, b_step = len(full), strides(a_full), strides(b_full)

    def batch(dims: tuple[int, ...], step: list[int]) -> list[tuple[str, int]]:
        lead = rank - len(dims)
        return [(f"i{lead + axis}", step[axis]) for axis in range(len(dims) - 2) if not is_one(dims[axis])]

    ctype = c_type(op.out)
    code.add(
        *decode(full),
        f"const {ctype} *xt = {a} + {linear([*batch(a_full, a_step), (f'i{rank - 2}', a_step[-2])])};",
        f"const {ctype} *wt = {b} + {linear([*batch(b_full, b_step), (f'i{rank - 1}', 1)])};",
    )
    w = f"wt[{linear([('c', b_step[-2])])}]"
    _inner_sum(code, a_full[-1], "xt[c]", w, op.out.dtype)
    code.add(f"const {ctype} t0 = sum + {c_number(0.0, op.out.dtype)};")


def _inner_sum(code: Code, depth: Size, x: str, w: str, dtype: str) -> None:
    """The sum over K of a matrix product; where K is known at run time only, so is the size of a leaf (section 3.2)."""
    if isinstance(depth, int):
        chain(code, sum_order(depth, 1), (), (), None, x, w, dtype)
        return
    ctype, tree = ("float", "") if dtype == "float32" else ("double", "_f64")
    fma = "ca1_fmaf" if dtype == "float32" else "ca1_fma64"
    code.add(
        f"const int depth = {depth}, taps = depth < {FEW_CHANNELS} ? {FEW_TARGET} : {LEAF_TARGET};",
        f"ca1_tree{tree} tree;",
        f"ca1_tree_init{tree}(&tree);",
    )
    with code.block("for (int first = 0; first < depth; first += taps)"):
        code.add(
            f"{ctype} acc = {c_number(0.0, dtype)};",
            f"for (int c = first; c < first + taps && c < depth; c++) acc = {fma}({x}, {w}, acc);",
            f"ca1_tree_push{tree}(&tree, acc);",
        )
    code.add(f"const {ctype} sum = ca1_tree_sum{tree}(&tree);")


def add_bias(op: Op, code: Code) -> None:
    """The bias is always added; an absent or -0 bias is +0."""
    zero = c_number(0.0, op.out.dtype)
    bias = f"({op.operands[2]}[i1] + {zero})" if len(op.operands) > 2 and op.operands[2] else zero
    code.add(f"const {c_type(op.out)} t0 = sum + {bias};")


def chain(
    code: Code,
    order: SumOrder,
    axes: Sequence[str],
    kernel: Sequence[int],
    tap: Tap | None,
    x: str,
    w: str,
    dtype: str = "float32",
) -> None:
    """Loops over leaves, blocks, positions and channels, ending in ``const float sum`` (or ``double``)."""
    ctype, tree = ("float", "") if dtype == "float32" else ("double", "_f64")
    fma = "ca1_fmaf" if dtype == "float32" else "ca1_fma64"
    if order.leaves == 0:
        code.add(f"const {ctype} sum = {c_number(0.0, dtype)};")
        return
    single = order.leaves == 1
    if not single:
        code.add(f"ca1_tree{tree} tree;", f"ca1_tree_init{tree}(&tree);")
    cut = order.positions_per_leaf < order.positions
    with ExitStack() as leaf:
        if not single:
            leaf.enter_context(code.block(loop("leaf", order.blocks, order.blocks_per_leaf)))
        if cut:
            leaf.enter_context(code.block(loop("first", order.positions, order.positions_per_leaf)))
        code.add(f"{ctype} acc = {c_number(0.0, dtype)};")
        with ExitStack() as taps:
            block = "leaf" if order.blocks_per_leaf == 1 and not single else "b"
            if block == "b" and order.blocks > 1:
                per = order.blocks_per_leaf
                bound = f"b < leaf + {per} && b < {order.blocks}" if not single else f"b < {order.blocks}"
                start = "leaf" if not single else "0"
                taps.enter_context(code.block(f"for (int b = {start}; {bound}; b++)"))
            if cut:
                per = order.positions_per_leaf
                taps.enter_context(code.block(f"for (int k = first; k < first + {per} && k < {order.positions}; k++)"))
                step = order.positions
                for name, size in zip(axes, kernel, strict=True):
                    step //= size
                    code.add(f"const int k{name} = {f'k / {step}' if step > 1 else 'k'} % {size};")
            else:
                for name, size in zip(axes, kernel, strict=True):
                    taps.enter_context(code.block(loop(f"k{name}", size)))
            if tap is not None:
                tap(code)
            low = linear([(block, order.block)]) if order.blocks > 1 else "0"
            if order.blocks == 1:
                high = str(order.channels)
            elif order.channels % order.block == 0:
                high = f"{low} + {order.block}"
            else:
                high = f"{order.channels} && c < {low} + {order.block}"
            code.add(f"for (int c = {low}; c < {high}; c++) acc = {fma}({x}, {w}, acc);")
        code.add(f"const {ctype} sum = acc;" if single else f"ca1_tree_push{tree}(&tree, acc);")
    if not single:
        code.add(f"const {ctype} sum = ca1_tree_sum{tree}(&tree);")
