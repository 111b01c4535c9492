"""Slice, Pad, Range, Col2Im by run-time operands. An item is a row along the last axis, of the latter two an element.

What the operands give is compared with the compiled shape; where it differs the kernel refuses and goes on with
element 0, so that no run-time value can lead outside a buffer.
"""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.runtime_checks import refuse
from compiler_kernels.targets.c.writer import SUFFIX, Code, c_type, decode, linear, loop, root_of, strides


def row_items(function: Graph) -> int:
    """Rows along the last axis, at least one, which checks."""
    return max(1, prod(root_of(function).out.dims[:-1]))


def element_items(function: Graph) -> int:
    return max(1, root_of(function).out.count)


def _array(name: str, ctype: str, values: list[int] | tuple[int, ...]) -> str:
    """A local array; C has none of length 0."""
    return f"{ctype} {name}[] = {{{', '.join(map(str, values or [0]))}}};"


def _axis(code: Code, axes: str, rank: int) -> None:
    """``a``: the axis of entry ``k``; one outside the rank or named twice is bad."""
    code.add(
        f"const int64_t a = {f'{axes}[k] < 0 ? (int64_t){axes}[k] + {rank} : (int64_t){axes}[k]' if axes else 'k'};",
        f"if (a < 0 || a >= {rank} || named >> a & 1u) {{ bad = 1; continue; }}",
        "named |= 1u << a;",
    )


def slice_at(function: Graph, code: Code) -> None:
    """Begins, steps and sizes per axis as ONNX clamps them, then one row."""
    op, types = root_of(function), function.types()
    x, starts, ends, axes, steps = (*op.operands, "", "", "")[:5]
    dims, out, rank = types[x].dims, op.out.dims, len(op.out.dims)
    code.add(
        _array("dims", "const int64_t", dims),
        _array("out", "const int64_t", out),
        _array("size", "int64_t", dims),
        _array("first", "int64_t", (0,) * rank),
        _array("step", "int64_t", (1,) * rank),
    )
    code.add("int bad = 0;", "unsigned named = 0;")
    with code.block(loop("k", types[starts].count)):
        _axis(code, axes, rank)
        code.add(
            f"int64_t b = {starts}[k], e = {ends}[k], s = {f'{steps}[k]' if steps else '1'};",
            "const int64_t d = dims[a];",
            "if (s == 0) { bad = 1; continue; }",
            "/* a step as long as any axis takes one element */",
            "s = s > INT32_MAX ? INT32_MAX : s < -INT32_MAX ? -INT32_MAX : s;",
            "const int64_t low = s > 0 ? 0 : -1, high = s > 0 ? d : d - 1;",
            "b = b < 0 ? b + d : b;",
            "e = e < 0 ? e + d : e;",
            "b = b < low ? low : b > high ? high : b;",
            "e = e < low ? low : e > high ? high : e;",
            "b = b < 0 ? 0 : b;",
            "size[a] = s > 0 ? (e > b ? (e - b - 1) / s + 1 : 0) : (b > e ? (b - e - 1) / -s + 1 : 0);",
            "if (d == 0) size[a] = 0;",
            "first[a] = b;",
            "step[a] = s;",
        )
    code.add(f"for (int k = 0; k < {rank}; k++) bad |= size[k] != out[k];")
    refuse(code, "bad && i == 0", op.str_("message"))
    if op.out.count == 0:
        return
    code.add(f"if (bad) for (int k = 0; k < {rank}; k++) first[k] = step[k] = 0;")
    place = strides(dims)
    code.add(*decode(out[:-1]))
    terms = [f"(first[{a}] + i{a} * step[{a}]) * {place[a]}" for a in range(rank - 1)]
    last = rank - 1
    code.add(f"const int64_t base = {' + '.join([*terms, f'first[{last}]'] if rank else ['0'])};")
    length = out[-1] if rank else 1
    with code.block(loop("k", length)):
        code.add(f"y[(int64_t)i * {length} + k] = {x}[base{f' + k * step[{last}]' if rank else ''}];")


def pad_by(function: Graph, code: Code) -> None:
    """Negative amounts remove elements first; then each axis by itself, as the static operation ``pad`` does."""
    op, types = root_of(function), function.types()
    x, pads, value, axes = (*op.operands, "")[:4]
    dims, out, rank, mode = types[x].dims, op.out.dims, len(op.out.dims), op.str_("mode")
    count = types[pads].count // 2
    code.add(
        _array("dims", "const int64_t", dims),
        _array("out", "const int64_t", out),
        "/* elements that are left of each axis, the first of them, and how many are added before it */",
        _array("left", "int64_t", dims),
        _array("skip", "int64_t", (0,) * rank),
        _array("lead", "int64_t", (0,) * rank),
        _array("size", "int64_t", dims),
    )
    code.add("int bad = 0;", "unsigned named = 0;")
    with code.block(loop("k", count)):
        _axis(code, axes, rank)
        code.add(
            f"const int64_t b = {pads}[k], e = {pads}[k + {count}];",
            "if (b > INT32_MAX || e > INT32_MAX || b < -INT32_MAX || e < -INT32_MAX) { bad = 1; continue; }",
            "skip[a] = b < 0 ? -b : 0;",
            "lead[a] = b > 0 ? b : 0;",
            "left[a] = dims[a] - skip[a] - (e < 0 ? -e : 0);",
            "size[a] = dims[a] + b + e;",
            f"if (left[a] < {'0' if mode == 'constant' else '1'} && out[a] > 0) bad = 1;",
        )
    code.add(f"for (int k = 0; k < {rank}; k++) bad |= size[k] != out[k];")
    refuse(code, "bad && i == 0", op.str_("message"))
    if op.out.count == 0:
        return
    code.add(f"if (bad) for (int k = 0; k < {rank}; k++) left[k] = lead[k] = skip[k] = 0;")
    place = strides(dims)
    code.add(*decode(out[:-1]))
    code.add("int64_t base = 0;", "int inside = 1;")
    for a in range(rank - 1):
        _place(code, f"at{a}", f"i{a}", a, mode)
        code.add(f"base += at{a} * {place[a]};")
    length = out[-1] if rank else 1
    with code.block(loop("k", length)):
        code.add("int within = inside;")
        if rank:
            _place(code, "at", "k", rank - 1, mode, flag="within")
        source = f"{x}[base{' + at' if rank else ''}]"
        code.add(f"y[(int64_t)i * {length} + k] = within ? {source} : {value}[0];")


def _place(code: Code, at: str, index: str, axis: int, mode: str, flag: str = "inside") -> None:
    """``at``: the element of ``axis`` that result index ``index`` takes; where there is none, ``flag`` becomes 0."""
    n = f"left[{axis}]"
    code.add(f"int64_t {at} = {index} - lead[{axis}];")
    if mode == "constant":
        code.add(f"if ({at} < 0 || {at} >= {n}) {flag} = {at} = 0;")
    elif mode == "edge":
        code.add(f"{at} = {at} >= {n} ? {n} - 1 : {at};", f"{at} = {at} < 0 ? 0 : {at};")
    elif mode == "wrap":
        code.add(f"{at} = {n} > 0 ? ({at} % {n} + {n}) % {n} : 0;")
    else:
        code.add(
            f"const int64_t turn{axis} = {n} > 1 ? 2 * ({n} - 1) : 1;",
            f"{at} = ({at} % turn{axis} + turn{axis}) % turn{axis};",
            f"{at} = {n} > 1 ? ({at} >= {n} ? turn{axis} - {at} : {at}) : 0;",
        )
    code.add(f"{at} += skip[{axis}];")


def range_(function: Graph, code: Code) -> None:
    """start + i * delta, each operation rounded (integers wrap); the count is that of section 9 of the arithmetic."""
    op = root_of(function)
    start, limit, delta = (f"{o}[0]" for o in op.operands)
    count, dtype = op.out.count, op.out.dtype
    if "float" in dtype:
        code.add(f"const double q = __builtin_ceil(((double){limit} - (double){start}) / (double){delta});")
        refuse(code, f"i == 0 && !(q == {count}.0 || ({count} == 0 && q <= 0.0))", op.str_("message"))
    else:
        code.add(
            f"const int up = {delta} > 0, none = up ? {limit} <= {start} : {limit} >= {start};",
            "/* the distance as an unsigned number: it may exceed the type */",
            f"const uint64_t far = up ? (uint64_t){limit} - (uint64_t){start} : (uint64_t){start} - (uint64_t){limit};",
            f"const uint64_t by = up ? (uint64_t){delta} : -(uint64_t){delta};",
            "const uint64_t n = none || by == 0 ? 0 : (far - 1) / by + 1;",
        )
        refuse(code, f"i == 0 && ({delta} == 0 || n != {count}ull)", op.str_("message"))
    if not count:
        return
    if dtype == "float32":
        code.add(f"y[i] = {start} + (float)i * {delta};")
    elif dtype == "float64":
        code.add(f"y[i] = {start} + (double)i * {delta};")
    else:
        suffix = SUFFIX[dtype]
        code.add(f"y[i] = ca1_add_{suffix}({start}, ca1_mul_{suffix}(({c_type(op.out)})i, {delta}));")


def col2im(function: Graph, code: Code) -> None:
    """One image element: the sum, by positions of the block, of the column entries that fall on it."""
    op, types = root_of(function), function.types()
    x, block = op.operands
    (_, rows, columns), image, dtype = types[x].dims, op.out.dims[2:], op.out.dtype
    n, taps = len(image), rows // op.out.dims[1]
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    code.add(
        _array("image", "const int64_t", image),
        _array("stride", "const int64_t", steps),
        _array("dilation", "const int64_t", dilations),
        _array("pad", "const int64_t", pads),
        _array("count", "int64_t", (0,) * n),
        "int64_t size = 1, all = 1;",
        "int bad = 0;",
    )
    with code.block(loop("a", n)):
        code.add(
            f"const int64_t b = {block}[a];",
            f"if (b < 1 || b > {taps}) {{ bad = 1; continue; }}",
            f"const int64_t span = image[a] + pad[a] + pad[a + {n}] - dilation[a] * (b - 1) - 1;",
            "count[a] = span < 0 ? 0 : span / stride[a] + 1;",
            "size *= b;",
            "all *= count[a];",
            f"if (size > {taps} || all > {columns}) {{ bad = 1; size = all = 1; }}",
        )
    code.add(f"bad |= size != {taps} || all != {columns};")
    refuse(code, "bad && i == 0", op.str_("message"))
    if not op.out.count:
        return
    code.add("if (bad) { y[i] = 0; continue; }", *decode(op.out.dims))
    code.add(f"const int64_t at[] = {{{', '.join(f'i{a + 2}' for a in range(n))}}};")
    suffix = {"float32": "", "float64": "_f64"}.get(dtype, "")
    floating, ctype = "float" in dtype, c_type(op.out)
    code.add(f"const {ctype} *column = {x} + {linear([('i0', rows * columns), ('i1', taps * columns)])};")
    if floating:
        code.add(f"ca1_tree{suffix} tree;", f"ca1_tree_init{suffix}(&tree);")
    code.add(f"{ctype} acc = 0;")
    with code.block(loop("k", taps)):
        if floating and taps > 64:
            code.add(f"if (k % 64 == 0 && k > 0) {{ ca1_tree_push{suffix}(&tree, acc); acc = 0; }}")
        code.add("int64_t rest = k, place = 0, whole = 1;", "int inside = 1;")
        with code.block(f"for (int a = {n - 1}; a >= 0; a--)"):
            code.add(
                f"const int64_t from = at[a] + pad[a] - rest % {block}[a] * dilation[a];",
                f"rest /= {block}[a];",
                "const int64_t step = from / stride[a];",
                "if (from < 0 || from % stride[a] || step >= count[a]) inside = 0;",
                "place += step * whole;",
                "whole *= count[a];",
            )
        term = f"column[(int64_t)k * {columns} + place]"
        code.add(f"if (inside) acc = {f'acc + {term}' if floating else f'ca1_add_{SUFFIX[dtype]}(acc, {term})'};")
    if floating:
        code.add(f"ca1_tree_push{suffix}(&tree, acc);", f"acc = ca1_tree_sum{suffix}(&tree);")
    code.add("y[i] = acc;")
