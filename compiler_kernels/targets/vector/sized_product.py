"""Matrix products over sizes known at run time: tiles of R rows x V vectors of columns, K by the leaves of 3.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from compiler_kernels.arithmetic.order import FEW_CHANNELS, FEW_TARGET, LEAF_TARGET
from compiler_kernels.ir.dims import Size, ceildiv
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.targets.c.sizes import most
from compiler_kernels.targets.c.writer import Code, c_float, is_one, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.sized import Body, steps_of
from compiler_kernels.targets.vector.sized_chain import SizedChain, load, store
from compiler_kernels.targets.vector.sized_tile import close, levels, merge
from compiler_kernels.targets.vector.vec import Vec


@dataclass(frozen=True, slots=True)
class Product:
    """y[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]; steps in floats, batch as (coordinate, step)."""

    op: Op
    depth: Size
    a_row: Size
    a_k: Size
    b_k: Size
    b_column: Size
    a_batch: Sequence[tuple[str, Size]] = ()
    b_batch: Sequence[tuple[str, Size]] = ()


def gemm(function: Graph, isa: Isa, name: str) -> Body | None:
    op, types = function.ops[0], function.types()
    if op.kind != "gemm":
        return None
    a_dims, b_dims = (types[o].dims for o in op.operands[:2])
    trans_a, trans_b = bool(op.attr("trans_a")), bool(op.attr("trans_b"))
    a_row, a_k = (1, a_dims[1]) if trans_a else (a_dims[1], 1)
    b_column, b_k = (b_dims[1], 1) if trans_b else (1, b_dims[1])
    return _emit(function, isa, name, Product(op, a_dims[0] if trans_a else a_dims[1], a_row, a_k, b_k, b_column))


def matmul(function: Graph, isa: Isa, name: str) -> Body | None:
    op, types = function.ops[0], function.types()
    if op.kind != "matmul":
        return None
    a_dims, b_dims = (types[o].dims for o in op.operands)
    rank = len(op.out.dims)
    if len(a_dims) < 2 or len(b_dims) < 2:
        return None

    def batch(dims: Sequence[Size]) -> list[tuple[str, Size]]:
        steps, lead = steps_of(dims), rank - len(dims)
        return [(f"i{lead + a}", steps[a]) for a in range(len(dims) - 2) if not is_one(dims[a])]

    found = Product(op, a_dims[-1], a_dims[-1], 1, b_dims[-1], 1, batch(a_dims), batch(b_dims))
    return _emit(function, isa, name, found)


def _emit(function: Graph, isa: Isa, name: str, product: Product) -> Body | None:
    vec, op = Vec(isa), product.op
    chain = SizedChain(function, vec, skip_root=True)
    if not chain.possible:
        return None
    out = op.out.dims
    rows_all, columns = out[-2], out[-1]
    gathered = not is_one(product.b_column)
    free = isa.registers - 1
    rows = min((free - 2) * 4 // 5 if gathered else 8 if isa.registers > 16 else 4, most(rows_all))
    vectors = 1 if gathered else max(1, min(8, free // (rows + 1), most(ceildiv(columns, vec.lanes))))
    before = Code()
    for whole in (True, False):
        _tile(before, f"{name}_t{'w' if whole else 'p'}", vec, rows, vectors, most(product.depth), gathered, whole)
    wide = vectors * vec.lanes
    setup = [
        f"const int across = (({columns}) + {wide - 1}) / {wide}, down = (({rows_all}) + {rows - 1}) / {rows};",
    ]
    batch = out[:-2]
    total = " * ".join([*(f"{d}" for d in batch), "across", "down"])
    code = Code()
    code.add(
        f"const int m0 = item % down * {rows}, n0_ = item / down % across * {wide};",
        "const int above = item / (down * across);",
    )
    rest = steps_of(batch)
    for a, size in enumerate(batch):
        code.add(f"const int i{a} = above / {rest[a]} % {size};", f"(void)i{a};")
    code.add(
        f"const float *a0 = {op.operands[0]} + {linear(product.a_batch)};",
        f"const float *w = {op.operands[1]} + {linear([*product.b_batch, ('n0_', product.b_column)])};",
        f"const float *xs[{rows}];",
        f"for (int r = 0; r < {rows}; r++) "
        f"xs[r] = a0 + (m0 + r < {rows_all} ? m0 + r : {rows_all} - 1) * (long){product.a_row};",
        f"unsigned bits[{vectors}];",
        f"for (int v = 0; v < {vectors}; v++) bits[v] = ca1_first({columns} - n0_ - v * {vec.lanes}, {vec.lanes});",
        f"_Alignas(64) float sums[{rows * wide}];",
    )
    arguments = f"(xs, {product.a_k}, w, {product.b_k}, {product.b_column}, {product.depth}, bits, sums)"
    code.add(f"if (n0_ + {wide} <= {columns}) {name}_tw{arguments}; else {name}_tp{arguments};")
    _finish(code, op, chain, vec, rows, vectors, function)
    items = prod(batch) * ceildiv(columns, wide) * ceildiv(rows_all, rows)
    return Body(code.lines, total, items, setup, before.lines)


def _tile(code: Code, name: str, vec: Vec, rows: int, vectors: int, deepest: int, gathered: bool, whole: bool) -> None:
    """``name(xs, xk, w, wk, wn, depth, bits, sums)``: rows at ``xs``, steps of k in x and w, of columns in w."""
    names = [f"a{r}_{v}" for r in range(rows) for v in range(vectors)]
    deep = levels(-(-deepest // (LEAF_TARGET if deepest >= FEW_CHANNELS else FEW_TARGET)))
    head = (
        "const float *const *xs, long xk, const float *w, long wk, int wn, int depth, const unsigned *bits, float *sums"
    )
    with code.block(f"static __attribute__((noinline)) void {name}({head})"):
        code.add(f"{vec.type} {', '.join(names)};", "(void)bits, (void)wn;")
        if deep:
            code.add(f"float node[{deep * len(names) * vec.lanes}];")
        code.add(
            f"const int taps = depth < {FEW_CHANNELS} ? {FEW_TARGET} : {LEAF_TARGET}, "
            "leaves = (depth + taps - 1) / taps;",
            *(f"const float *q{r} = xs[{r}];" for r in range(rows)),
        )
        if not whole:
            code.add(*(f"const unsigned m{v} = bits[{v}];" for v in range(vectors)))
        with code.block("for (int s = 0; s < leaves; s++)"):
            code.add(" ".join(f"{a} = {vec.set1('0.0f')};" for a in names))
            code.add("const int size = depth - s * taps < taps ? depth - s * taps : taps;")
            with code.block("for (int c = 0; c < size; c++, w += wk)"):
                for v in range(vectors):
                    mask = "" if whole else f"m{v}"
                    if gathered:
                        every = mask or hex((1 << vec.lanes) - 1)
                        value = f"{vec('load_step')}(w + {v * vec.lanes} * (long)wn, wn, {every})"
                    else:
                        value = load(vec, linear([("w", 1)], v * vec.lanes), mask)
                    code.add(f"const {vec.type} v{v} = {value};")
                for r in range(rows):
                    code.add(f"{{ const {vec.type} xr = {vec.set1(f'*q{r}')}; q{r} += xk;")
                    code.add(" ".join(f"a{r}_{v} = {vec.fma('xr', f'v{v}', f'a{r}_{v}')};" for v in range(vectors)))
                    code.add("}")
            if deep:
                code.add("if (s == leaves - 1) break;")
                merge(code, vec, names, deep, "s")
        close(code, vec, names, deep, "(leaves - 1)")
        code.add(*(vec.store(f"sums + {n * vec.lanes}", a) for n, a in enumerate(names)))


def _finish(code: Code, op: Op, chain: SizedChain, vec: Vec, rows: int, vectors: int, function: Graph) -> None:
    out = op.out.dims
    rank, steps = len(out), steps_of(out)
    row, column = f"i{rank - 2}", f"i{rank - 1}"
    with code.block(f"for (int r = 0; r < {rows} && m0 + r < {out[-2]}; r++)"):
        code.add(f"const int {row} = m0 + r;")
        with code.block(f"for (int v = 0; v < {vectors}; v++)"):
            code.add("const unsigned k = bits[v];", "if (!k) continue;")
            code.add(f"const int {column} = n0_ + v * {vec.lanes};")
            code.add(f"const {vec.type} sum = {vec.load(f'sums + (r * {vectors} + v) * {vec.lanes}')};")
            code.add(f"const {vec.type} t0 = {_closed(op, vec, function, row, column)};")
            position = [f"i{a}" for a in range(rank)]
            lines, result = chain.statements("t0", position, "k")
            at = linear([(p, s) for p, s, d in zip(position, steps, out, strict=True) if not is_one(d)])
            code.add(*lines, store(vec, f"y + {at}", result, "k"))


def _closed(op: Op, vec: Vec, function: Graph, row: str, column: str) -> str:
    """alpha * sum + (beta * c + 0), where factors of one and absent parts are left out."""
    value, zero = "sum", vec.set1("0.0f")
    if op.kind == "matmul":
        return vec.add(value, zero)
    alpha, beta = op.float_("alpha"), op.float_("beta")
    if alpha != 1.0:
        value = f"{vec('mul')}({vec.set1(c_float(alpha))}, sum)"
    if len(op.operands) < 3 or not op.operands[2] or beta == 0.0:
        return vec.add(value, zero)
    c = op.operands[2]
    c_rows, c_columns = (1, 1, *function.types()[c].dims)[-2:]
    index = linear([(row, 0 if is_one(c_rows) else c_columns), (column, 0 if is_one(c_columns) else 1)])
    addend = vec.set1(f"{c}[{index}]") if is_one(c_columns) else load(vec, f"{c} + {index}", "k")
    if beta != 1.0:
        addend = f"{vec('mul')}({vec.set1(c_float(beta))}, {addend})"
    return vec.add(value, vec.add(addend, zero))
