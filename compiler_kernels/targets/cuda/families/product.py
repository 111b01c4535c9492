"""Matrix products: a warp makes one leaf of a tile of results, a block all leaves of it, then the tree.

The leaves of the sum (64 products each) are the split of the work: they are independent, so a block takes up to 16 of
them at once, its warps meeting in shared memory, where every result's leaves are added in the order of the tree. What
follows the product runs on the sums. One row or a few take ``thin``: 16 threads, one for each column of a panel, hold
a leaf's weights in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import RADIX, sum_order
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.views import View
from compiler_kernels.targets.c.writer import Code
from compiler_kernels.targets.cuda.families.text import (
    ONE,
    address,
    computes_floats,
    is_constant,
    kernel_text,
    launched,
    split,
    sum_tree,
)
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.product import Problem, Statement, product_statement

WARP: Final = 32
LEAF: Final = 64
X_PITCH: Final = LEAF + 4
"""Floats from row to row of the left tile in shared memory: four rows of four floats meet no bank twice."""
THIN_ROWS: Final = 4
THIN_LEAVES: Final = 40
"""Of a block of ``thin``: 640 threads, so that 64 weights and what else a thread holds fit the registers."""


def product(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The kernel of a statement whose root is a product on plain values; ``None`` for anything else."""
    if not computes_floats(function):
        return None
    found = product_statement(function, ONE)
    if found is None or found.problem.depth == 0:
        return None
    emit = _thin if found.problem.rows <= THIN_ROWS else _tiled
    return emit(function, gpu, name, found)


@dataclass(frozen=True, slots=True)
class Leaves:
    """``leaves`` leaves of ``leaf`` products, the last of ``last``; ``at_once`` of them in a block, in ``rounds``."""

    leaves: int
    leaf: int
    last: int
    at_once: int

    @property
    def rounds(self) -> int:
        return -(-self.leaves // self.at_once)

    def products(self, leaf: str) -> str:
        """Number of products of ``leaf``, a C expression."""
        if self.last == self.leaf or self.leaves == 1:
            return str(self.last)
        return f"({leaf} == {self.leaves - 1} ? {self.last} : {self.leaf})"


def leaves_of(depth: int, most: int) -> Leaves:
    """All leaves at once if they are ``most`` at most, else whole nodes of them."""
    order = sum_order(depth, 1)
    leaf = min(depth, order.block * order.blocks_per_leaf)
    count = -(-depth // leaf)
    at_once = count if count <= most else max(1, most // RADIX) * RADIX
    return Leaves(count, leaf, depth - (count - 1) * leaf, at_once)


def whole_vectors(view: View, axes: Sequence[int]) -> bool:
    """Whether four consecutive elements of the last axis, from a multiple of four on, lie on 16 bytes."""
    steps = [view.steps[a] for a in axes if view.dims[a] > 1]
    return view.steps[-1] == 1 and view.offset % 4 == 0 and all(s % 4 == 0 for s in steps)


def _lead(problem: Problem) -> list[tuple[str, int]]:
    return [(f"n{axis}", axis) for axis, size in enumerate(problem.batch) if size > 1]


def _base(view: View, lead: Sequence[tuple[str, int]], terms: Sequence[tuple[str, int]] = ()) -> str:
    return address(view.source, [*((n, view.steps[axis]) for n, axis in lead), *terms], view.offset)


def _epilogue(code: Code, found: Statement, lead: Sequence[tuple[str, int]], row: str, column: str) -> None:
    """From ``sum`` to y: the chain on one element."""
    problem, chain = found.problem, found.chain
    code.add("float a = sum;", *(line.format(a="a") for line in found.first))
    for operand in chain.operands.values():
        code.add(f"const float *{operand.pointer} = {_base(operand.view, lead)};")
    lines, result = chain.statements(found.root, "a", row, column, 1)
    code.add(*lines)
    y = problem.y
    code.add(f"*({_base(y, lead, [(row, y.steps[-2]), (column, y.steps[-1])])}) = {result};")


def _merged_sum(code: Code, leaves: Leaves, partial: str, step: int) -> None:
    """``const float sum`` of ``partial[leaf * step]``."""
    sum_tree(code, [f"{partial}[{n * step}]" if n else f"{partial}[0]" for n in range(leaves.leaves)], "sum")


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a block's tile: ``down`` x ``across`` threads of a warp with ``each`` rows and 4 columns of results."""

    down: int
    across: int
    each: int

    @property
    def rows(self) -> int:
        return self.down * self.each

    @property
    def columns(self) -> int:
        return self.across * 4


SHAPES: Final = (Shape(4, 8, 4), Shape(4, 8, 2), Shape(8, 4, 4), Shape(8, 4, 2))


def shape_of(problem: Problem, leaves: Leaves, gpu: Gpu) -> Shape:
    """The shape with the least estimate of cycles: waves of blocks, each as long as a warp's chain or what the warps of
    a multiprocessor issue and load."""

    def cycles(shape: Shape) -> float:
        tiles = -(-problem.rows // shape.rows) * -(-problem.columns // shape.columns) * prod(problem.batch)
        shared = 4 * leaves.at_once * (shape.rows * X_PITCH + LEAF * shape.columns)
        room = max(1, min(gpu.shared_bytes // shared, 2048 // (WARP * leaves.at_once), 16))
        waves = -(-tiles // (gpu.multiprocessors * room))
        together = min(room, -(-tiles // gpu.multiprocessors)) * leaves.at_once
        products, loads = leaves.leaf * shape.each * 4, leaves.leaf * (shape.each + 2) / 2
        return waves * leaves.rounds * (600 + max(1.3 * products, together * products / 4, together * loads))

    return min((s for s in SHAPES if s.columns <= 16 or problem.columns > BLOCK), key=cycles)


def _tiled(function: Graph, gpu: Gpu, name: str, found: Statement) -> CudaKernel:
    problem = found.problem
    leaves = leaves_of(problem.depth, 16)
    shape = shape_of(problem, leaves, gpu)
    threads = WARP * leaves.at_once
    row_tiles, column_tiles = -(-problem.rows // shape.rows), -(-problem.columns // shape.columns)
    x_floats, w_floats = shape.rows * X_PITCH, LEAF * shape.columns
    tile, step, lead = shape.rows * shape.columns, x_floats + w_floats, _lead(problem)
    with kernel_text(function, name) as code:
        code.add("float *shared = (float *)cuvil_shared;")
        code.add("const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;")
        sizes = [*problem.batch, row_tiles, column_tiles]
        split(code, "block", sizes, [*(f"n{a}" for a in range(len(problem.batch))), "rt", "ct"])
        code.add(f"const int row = rt * {shape.rows}, column = ct * {shape.columns};")
        code.add(f"float *xs = shared + warp * {step}, *ws = xs + {x_floats};", "cuvil_grid_release();")
        if leaves.rounds == 1:
            _leaf(code, problem, shape, leaves, lead, "warp")
            code.add("__syncthreads();")
        else:
            code.add("cuvil_grid_wait();")
            own = -(-tile // threads)
            code.add(f"ca1_tree tree[{own}];", f"for (int t = 0; t < {own}; t++) ca1_tree_init(&tree[t]);")
            with code.block(f"for (int from = 0; from < {leaves.leaves}; from += {leaves.at_once})"):
                code.add("const int leaf = from + warp;")
                with code.block(f"if (leaf < {leaves.leaves})"):
                    _leaf(code, problem, shape, leaves, lead, "leaf")
                code.add("__syncthreads();")
                with code.block(f"for (int e = threadIdx.x, t = 0; e < {tile}; e += {threads}, t++)"):
                    push_nodes(code, leaves, f"shared + {x_floats} + e", step, "&tree[t]")
                code.add("__syncthreads();")
        advance = f"e += {threads}{'' if leaves.rounds == 1 else ', t++'}"
        with code.block(f"for (int e = threadIdx.x{'' if leaves.rounds == 1 else ', t = 0'}; e < {tile}; {advance})"):
            code.add(f"const int r = row + e / {shape.columns}, c = column + e % {shape.columns};")
            bounds = [f"r >= {problem.rows}"] if problem.rows % shape.rows else []
            bounds += [f"c >= {problem.columns}"] if problem.columns % shape.columns else []
            code.add(*([f"if ({' || '.join(bounds)}) continue;"] if bounds else []))
            if leaves.rounds == 1:
                code.add(f"const float *part = shared + {x_floats} + e;")
                _merged_sum(code, leaves, "part", step)
            else:
                code.add("const float sum = ca1_tree_sum(&tree[t]);")
            _epilogue(code, found, lead, "r", "c")
    grid = row_tiles * column_tiles * prod(problem.batch)
    return launched(function, name, code, grid, threads, 4 * leaves.at_once * step)


def push_nodes(code: Code, leaves: Leaves, partial: str, step: int, tree: str) -> None:
    """Nodes of the leaves of a round, from leaf ``from`` on, pushed to ``tree`` in order."""
    code.add(f"const float *part = {partial};")
    with code.block(f"for (int n = 0; n < {leaves.at_once} && from + n < {leaves.leaves}; n += {RADIX})"):
        code.add(f"float node = part[n * {step}];")
        inside = f"j < {RADIX} && from + n + j < {leaves.leaves}"
        code.add(f"for (int j = 1; {inside}; j++) node = {ONE.add('node', f'part[(n + j) * {step}]')};")
        code.add(f"ca1_tree_push({tree}, node);")


def _leaf(
    code: Code, problem: Problem, shape: Shape, leaves: Leaves, lead: Sequence[tuple[str, int]], leaf: str
) -> None:
    """One leaf of the tile, left in ``ws``. Constants are under way before the launch before this one has ended."""
    code.add(f"const int first = {leaf} * {leaves.leaf}, taps = {leaves.products(leaf)};")
    early = leaves.rounds == 1 and is_constant(problem.right.source)
    if early:
        _copy_right(code, problem, shape, lead)
    if leaves.rounds == 1:
        code.add("cuvil_grid_wait();")
    _copy_left(code, problem, shape, leaves, lead, leaf)
    if not early:
        _copy_right(code, problem, shape, lead)
    code.add("cuvil_copy_commit();", "cuvil_copy_wait<0>();", "__syncwarp();")
    _products(code, shape, leaves, leaf)


def _thin(function: Graph, gpu: Gpu, name: str, found: Statement) -> CudaKernel:
    problem = found.problem
    left, right, rows, depth = problem.left, problem.right, problem.rows, problem.depth
    leaves = leaves_of(depth, THIN_LEAVES)
    threads = -(-BLOCK * leaves.at_once // WARP) * WARP
    x_floats = -(-rows * depth // 4) * 4
    shared = 4 * (x_floats + leaves.at_once * rows * BLOCK)
    if shared > gpu.shared_bytes:
        return _tiled(function, gpu, name, found)
    panels, lead = -(-problem.columns // BLOCK), _lead(problem)
    with kernel_text(function, name) as code:
        code.add("float *shared = (float *)cuvil_shared;", f"float *partial = shared + {x_floats};")
        code.add(f"const int slot = threadIdx.x / {BLOCK}, c = threadIdx.x % {BLOCK};")
        split(code, "block", [*problem.batch, panels], [*(f"n{a}" for a in range(len(problem.batch))), "panel"])
        code.add("cuvil_grid_release();")
        code.add(f"const float *w = {_base(right, lead, [('panel', problem.right_panel), ('c', 1)])};")
        copy = (
            f"const float *x = {_base(left, lead)};",
            f"for (int i = threadIdx.x; i < {rows * depth}; i += {threads}) "
            f"shared[i] = x[i / {depth} * {left.steps[-2]} + i % {depth} * {left.steps[-1]}];",
            "__syncthreads();",
        )
        if leaves.rounds == 1:
            inside = f"slot < {leaves.leaves}" if threads != BLOCK * leaves.leaves else ""
            early = is_constant(right.source)
            code.add(*(() if early else ("cuvil_grid_wait();",)))
            _thin_weights(code, problem, leaves, "slot", inside)
            code.add(*(("cuvil_grid_wait();",) if early else ()), *copy)
            _thin_leaf(code, problem, leaves, inside)
            code.add("__syncthreads();")
        else:
            code.add("cuvil_grid_wait();", *copy, "ca1_tree tree;", "ca1_tree_init(&tree);")
            with code.block(f"for (int from = 0; from < {leaves.leaves}; from += {leaves.at_once})"):
                code.add("const int leaf = from + slot;")
                _thin_weights(code, problem, leaves, "leaf", f"leaf < {leaves.leaves}")
                _thin_leaf(code, problem, leaves, f"leaf < {leaves.leaves}")
                code.add("__syncthreads();")
                with code.block(f"if (threadIdx.x < {rows * BLOCK})"):
                    push_nodes(code, leaves, "partial + threadIdx.x", rows * BLOCK, "&tree")
                code.add("__syncthreads();")
        code.add(f"const int row = threadIdx.x / {BLOCK}, column = panel * {BLOCK} + c;")
        bound = f" && column < {problem.columns}" if problem.columns % BLOCK else ""
        with code.block(f"if (threadIdx.x < {rows * BLOCK}{bound})"):
            if leaves.rounds == 1:
                code.add("const float *part = partial + threadIdx.x;")
                _merged_sum(code, leaves, "part", rows * BLOCK)
            else:
                code.add("const float sum = ca1_tree_sum(&tree);")
            _epilogue(code, found, lead, "row", "column")
    return launched(function, name, code, panels * prod(problem.batch), threads, shared)


def _thin_weights(code: Code, problem: Problem, leaves: Leaves, leaf: str, inside: str) -> None:
    """The weights of one column of leaf ``leaf`` into registers."""
    ragged = leaves.products(leaf) != str(leaves.leaf)
    code.add(f"float wk[{leaves.leaf}];", f"const int first = {leaf} * {leaves.leaf};")
    code.add(*([f"const int taps = {leaves.products(leaf)};"] if ragged else []))
    with code.block(f"if ({inside})" if inside else ""):
        place = f"w[(first + k) * {problem.right.steps[-2]}]"
        code.add("#pragma unroll")
        code.add(f"for (int k = 0; k < {leaves.leaf}; k++) {'if (k < taps) ' if ragged else ''}wk[k] = {place};")


def _thin_leaf(code: Code, problem: Problem, leaves: Leaves, inside: str) -> None:
    """The chain of the leaf for every row, left in ``partial``."""
    rows, depth = range(problem.rows), problem.depth
    ragged = leaves.products("leaf") != str(leaves.leaf)
    with code.block(f"if ({inside})" if inside else ""):
        code.add(f"float acc[{problem.rows}] = {{0.0f}};")
        code.add("#pragma unroll")
        steps = (f"acc[{r}] = {ONE.fma(f'shared[{r * depth} + first + k]', 'wk[k]', f'acc[{r}]')};" for r in rows)
        with (
            code.block(f"for (int k = 0; k < {leaves.leaf}; k++)"),
            code.block("if (k < taps)" if ragged else ""),
        ):
            code.add(*steps)
        code.add(*(f"partial[(slot * {problem.rows} + {r}) * {BLOCK} + c] = acc[{r}];" for r in rows))


def _copy_left(
    code: Code, problem: Problem, shape: Shape, leaves: Leaves, lead: Sequence[tuple[str, int]], leaf: str
) -> None:
    """Bring leaf ``leaf`` of the rows to ``xs`` [row][X_PITCH]; a row that does not exist is the last that does."""
    left = problem.left
    code.add(f"const float *x = {_base(left, lead, [('first', left.steps[-1])])};")
    last = problem.rows - 1
    clamp = f"row + r < {problem.rows} ? row + r : {last}" if problem.rows % shape.rows else "row + r"
    vector = whole_vectors(left, range(len(left.dims) - 1)) and leaves.leaf % 4 == 0 and leaves.last % 4 == 0
    if vector:
        groups = leaves.leaf // 4
        with code.block(f"for (int i = lane; i < {shape.rows * groups}; i += 32)"):
            code.add(f"const int r = i / {groups}, k = i % {groups} * 4, from = {clamp};")
            skip = "" if leaves.products(leaf) == str(leaves.leaf) else "if (k < taps) "
            code.add(f"{skip}cuvil_copy_async<16>(xs + r * {X_PITCH} + k, x + from * {left.steps[-2]} + k);")
    else:
        across = left.steps[-2] == 1 and left.steps[-1] != 1
        place = (
            f"r = i % {shape.rows}, k = i / {shape.rows}" if across else f"r = i / {leaves.leaf}, k = i % {leaves.leaf}"
        )
        with code.block(f"for (int i = lane; i < {shape.rows * leaves.leaf}; i += 32)"):
            code.add(f"const int {place}, from = {clamp};")
            target = f"xs + r * {X_PITCH} + k"
            code.add(
                f"if (k < taps) cuvil_copy_async<4>({target}, x + from * {left.steps[-2]} + k * {left.steps[-1]});"
            )


def _copy_right(code: Code, problem: Problem, shape: Shape, lead: Sequence[tuple[str, int]]) -> None:
    """Bring the leaf of the columns to ``ws`` [k][columns]; a panel that does not exist is the last that does."""
    right, panels, per_tile = problem.right, -(-problem.columns // BLOCK), -(-shape.columns // BLOCK)
    code.add(f"const float *w = {_base(right, lead, [('first', right.steps[-2])])};")
    panel = f"column / {BLOCK} + c / {BLOCK}"
    if panels % per_tile:
        panel = f"({panel} < {panels} ? {panel} : {panels - 1})"
    axes = [*range(len(right.dims) - 2), len(right.dims) - 2]
    if whole_vectors(right, axes) and problem.right_panel % 4 == 0:
        quads = shape.columns // 4
        with code.block(f"for (int i = lane; i < taps * {quads}; i += 32)"):
            code.add(f"const int k = i / {quads}, c = i % {quads} * 4, panel = {panel};")
            code.add(
                f"cuvil_copy_async<16>(ws + k * {shape.columns} + c, "
                f"w + panel * {problem.right_panel} + k * {right.steps[-2]} + c % {BLOCK});"
            )
    else:
        with code.block(f"for (int i = lane; i < taps * {shape.columns}; i += 32)"):
            code.add(f"const int k = i / {shape.columns}, c = i % {shape.columns}, panel = {panel};")
            code.add(
                f"cuvil_copy_async<4>(ws + k * {shape.columns} + c, "
                f"w + panel * {problem.right_panel} + k * {right.steps[-2]} + c % {BLOCK});"
            )


def _products(code: Code, shape: Shape, leaves: Leaves, leaf: str) -> None:
    """The leaf of ``each`` x 4 results per thread, left in ``ws`` as [row][column]."""
    each = range(shape.each)
    code.add(f"const int down = lane / {shape.across}, over = lane % {shape.across};")
    code.add(f"float acc[{shape.each}][4] = {{{{0.0f}}}};")
    code.add(f"const float *xr = xs + down * {X_PITCH}, *wr = ws + over * 4;")
    whole = leaves.leaf % 4 == 0 and leaves.last % 4 == 0
    bound = "taps" if whole else "taps / 4 * 4"
    if leaves.products(leaf) == str(leaves.leaf):
        bound = str(leaves.leaf // 4 * 4)
    code.add("#pragma unroll 4")
    with code.block(f"for (int k = 0; k < {bound}; k += 4)"):
        for r in each:
            code.add(f"const float4 x{r} = *(const float4 *)(xr + {r * shape.down * X_PITCH} + k);")
        for j, part in enumerate("xyzw"):
            code.add(f"const float4 w{j} = *(const float4 *)(wr + (k + {j}) * {shape.columns});")
            for r in each:
                for c, column in enumerate("xyzw"):
                    code.add(f"acc[{r}][{c}] = {ONE.fma(f'x{r}.{part}', f'w{j}.{column}', f'acc[{r}][{c}]')};")
    if not whole:
        with code.block(f"for (int k = {bound}; k < taps; k++)"):
            code.add(f"const float4 w0 = *(const float4 *)(wr + k * {shape.columns});")
            for r in each:
                code.add(f"const float x{r} = xr[{r * shape.down * X_PITCH} + k];")
                for c, column in enumerate("xyzw"):
                    code.add(f"acc[{r}][{c}] = {ONE.fma(f'x{r}', f'w0.{column}', f'acc[{r}][{c}]')};")
    code.add("__syncwarp();")
    for r in each:
        place = f"ws + (down + {r * shape.down}) * {shape.columns} + over * 4"
        code.add(f"*(float4 *)({place}) = make_float4(acc[{r}][0], acc[{r}][1], acc[{r}][2], acc[{r}][3]);")
