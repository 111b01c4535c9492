"""Matrix products on plain values: gemm and matmul, batched, operands read through moves, results written through them.

A work item is a tile of rows times panels of one batch element. Right operands come in panels of 16 columns
(passes/products.py) or are rows of whole panels read in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph, Op, make_attrs
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.text import format_op
from compiler_kernels.ir.views import MOVES, View, views_of, written_view
from compiler_kernels.passes.products import PRODUCTS
from compiler_kernels.targets.c.writer import Code, Kernel, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.epilogue import PlainChain
from compiler_kernels.targets.vector.product_tile import Reading, Tile, emit_tile, scaled, tile_shape
from compiler_kernels.targets.vector.vec import Vec

RESIDENT: Final = 192 * 1024
"""Floats of a right operand that a second-level cache keeps: then a tile's rows meet all panels, one after another, and
stay in the first level; otherwise a panel meets all rows, so that it is fetched once."""


@dataclass(frozen=True, slots=True)
class Problem:
    """``result = left @ right`` with ``batch`` leading axes: views of shape (*batch, rows or K, K or columns)."""

    batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int
    left: View
    right: View  # of whole panels: last axis is the column in a panel's order, see ``right_panel``
    right_panel: int
    y: View

    @property
    def reading(self) -> Reading:
        return Reading(self.depth, self.left.steps[-2], self.left.steps[-1], self.right.steps[-2], self.right_panel)


@dataclass(frozen=True, slots=True)
class Statement:
    """A product and what follows it: ``chain`` after the result ``root``; ``first`` are templates on an accumulator
    ``{a}`` that make the root's result of the sum."""

    problem: Problem
    chain: PlainChain
    root: str
    first: list[str]


def product(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """The kernel of a statement whose root is a product on plain values; ``None`` for anything else."""
    found = product_statement(function, Vec(isa))
    return _emit(function, name, isa, found.problem, found.chain, found.root, found.first) if found else None


def product_statement(function: Graph, vec: Vec) -> Statement | None:
    """What a function with a product on plain values computes; ``None`` for anything else."""
    found = [i for i, op in enumerate(function.ops) if op.kind in PRODUCTS]
    if len(found) != 1 or any(op.kind not in MOVES for op in function.ops[: found[0]]):
        return None
    root, after = function.ops[found[0]], list(function.ops[found[0] + 1 :])
    tail = len(after)
    while tail and after[tail - 1].kind in ("transpose", "reshape"):
        tail -= 1
    elementwise, moves = after[:tail], after[tail:]
    if any(op.kind in MOVES for op in elementwise) or any(op.out.layout for op in (root, *after)):
        return None
    problem = _problem(function, root, moves)
    if problem is None:
        return None
    sum_name, ops = root.result, list(elementwise)
    c = root.operands[2] if len(root.operands) > 2 else ""
    first = scaled(vec, root.float_("alpha")) if root.kind == "gemm" else []
    if c and root.float_("beta") != 0.0:
        sum_name = "sum"
        attrs = make_attrs({"beta": root.float_("beta")})
        ops.insert(0, Op("op.add_c", (sum_name, c), root.result, root.out, attrs))
    else:
        first.append(f"{{a}} = {vec.add('{a}', vec.set1('0.0f'))};")
    dims = (*problem.batch, problem.rows, problem.columns)
    chain = PlainChain(function, ops, root.out.dims, vec)
    if not chain.possible:
        return None
    for key, operand in chain.operands.items():
        chain.operands[key] = replace(operand, view=_promoted(operand.view, root, function, dims))
    return Statement(_merged(problem, chain), chain, sum_name, first)


def _promoted(view: View, root: Op, function: Graph, dims: tuple[int, ...]) -> View:
    """A view of the result with the axes NumPy adds to 1-D operands of a matmul."""
    if root.kind == "gemm" or len(view.dims) == len(dims):
        return view
    types = {op.result: op.out for op in function.ops} | function.types()
    shape, steps = list(view.dims), list(view.steps)
    if len(types[root.operands[0]].dims) == 1:
        place = len(shape) - (1 if len(types[root.operands[1]].dims) > 1 else 0)
        shape.insert(place, 1)
        steps.insert(place, 0)
    if len(types[root.operands[1]].dims) == 1:
        shape.append(1)
        steps.append(0)
    return replace(view, dims=tuple(shape), steps=tuple(steps))


def _problem(function: Graph, root: Op, moves: list[Op]) -> Problem | None:
    types = {op.result: op.out for op in function.ops} | function.types()
    views = views_of(function.ops, {v.id: v.type for v in function.inputs})
    a, b = root.operands[:2]
    if a not in views:
        return None
    left, b_dims = views[a], types[b].dims
    if root.kind == "gemm" and root.attr("trans_a"):
        left = replace(left, dims=left.dims[::-1], steps=left.steps[::-1])
    if len(left.dims) == 1:
        left = replace(left, dims=(1, *left.dims), steps=(0, *left.steps))
    if root.kind == "gemm" and root.attr("trans_b"):
        b_dims = b_dims[::-1]
    wide = b_dims if len(b_dims) > 1 else (*b_dims, 1)
    depth, columns = wide[-2:]
    if types[b].layout.startswith("packed panels16"):
        count = -(-columns // BLOCK)
        lead = wide[:-2]
        steps = [depth * count * BLOCK * prod(lead[i + 1 :]) for i in range(len(lead))]
        right, panel = View(b, 0, wide, (*steps, BLOCK, 1)), depth * BLOCK
    elif b in views and columns % BLOCK == 0 and views[b].steps[-1] == 1 and len(b_dims) > 1:
        right, panel = views[b], BLOCK
    else:
        return None
    y = written_view(moves, root.out.dims)
    if y is None:
        return None
    rank = max(len(left.dims), len(wide))
    batch = root.out.dims[: rank - 2] if root.kind == "matmul" else ()
    rows = left.dims[-2]
    y = _promoted(y, root, function, (*batch, rows, columns))
    if columns > 1 and y.steps[-1] != 1:
        return None
    left = left.broadcast((*batch, rows, depth))
    return Problem(tuple(batch), rows, depth, columns, left, right.broadcast((*batch, depth, columns)), panel, y)


def _merged(problem: Problem, chain: PlainChain) -> Problem:
    """Leading axes that only add rows (one right operand for all) become rows, as far as the steps allow."""
    while problem.batch and problem.right.steps[len(problem.batch) - 1] == 0:
        axis = len(problem.batch) - 1
        size, rows = problem.batch[-1], problem.rows
        views = [problem.left, problem.y, *(o.view for o in chain.operands.values())]
        if size > 1 and rows > 1 and any(v.steps[axis] != v.steps[axis + 1] * rows for v in views):
            break

        def joined(view: View, axis: int = axis, size: int = size, rows: int = rows) -> View:
            step = view.steps[axis + 1] if rows > 1 else view.steps[axis]
            dims = (*view.dims[:axis], size * rows, *view.dims[axis + 2 :])
            return replace(view, dims=dims, steps=(*view.steps[:axis], step, *view.steps[axis + 2 :]))

        for key, operand in chain.operands.items():
            chain.operands[key] = replace(operand, view=joined(operand.view))
        right = problem.right
        problem = replace(
            problem,
            batch=problem.batch[:-1],
            rows=size * rows,
            left=joined(problem.left),
            y=joined(problem.y),
            right=replace(
                right,
                dims=(*right.dims[:axis], *right.dims[axis + 1 :]),
                steps=(*right.steps[:axis], *right.steps[axis + 1 :]),
            ),
        )
    return problem


def _emit(
    function: Graph, name: str, isa: Isa, problem: Problem, chain: PlainChain, root: str, first: list[str]
) -> Kernel:
    most, panels = tile_shape(isa, problem.rows)
    width = min(panels * BLOCK, -(-problem.columns // BLOCK) * BLOCK)
    row_tiles = -(-problem.rows // most)
    low, more = divmod(problem.rows, row_tiles)  # the first ``more`` tiles have one row more than ``low``
    column_tiles = -(-problem.columns // width)
    last = problem.columns - (column_tiles - 1) * width
    reading, code = problem.reading, Code()
    for op in function.ops:
        code.add(*(f"/* {line.strip()} */" for line in format_op(op)))
    scratch = 0
    widths = (width, last) if column_tiles > 1 else (last,)
    shapes = [(r, c) for r in dict.fromkeys((low + 1 if more else low, low)) for c in dict.fromkeys(widths)]
    for rows, columns in shapes:
        tile = Tile(rows, columns, isa)
        scratch = max(scratch, tile.scratch(reading, chain.cheap))
        emit_tile(code, f"{name}_{rows}x{columns}", tile, reading, chain, root, first, problem.y.steps[-2])
    params = ", ".join(f"const float *{v.id}" for v in function.inputs)
    extra = "float *scratch, " if scratch else ""
    batch = prod(problem.batch)
    with (
        code.block(f"static void {name}({params}, float *y, {extra}int begin, int end)"),
        code.block("for (int i = begin; i < end; i++)"),
    ):
        if problem.depth * column_tiles * width <= RESIDENT:
            code.add(f"const int ct = i % {column_tiles}, rt = i / {column_tiles} % {row_tiles};")
        else:
            code.add(f"const int rt = i % {row_tiles}, ct = i / {row_tiles} % {column_tiles};")
        code.add(
            f"const int row = rt * {low} + (rt < {more} ? rt : {more});" if more else f"const int row = rt * {low};"
        )
        lead: list[tuple[str, int]] = []
        for axis, size in enumerate(problem.batch):
            below = row_tiles * column_tiles * prod(problem.batch[axis + 1 :])
            if size > 1:
                code.add(f"const int n{axis} = i / {below} % {size};")
                lead.append((f"n{axis}", axis))

        def at(view: View, base: str, row_step: int, column: int) -> str:
            terms = [(base, 1), *((n, view.steps[axis]) for n, axis in lead), ("row", row_step), ("ct", column)]
            return linear(terms, view.offset)

        left, right, y = problem.left, problem.right, problem.y
        across = width // BLOCK * problem.right_panel
        code.add(
            f"const float *x = {at(left, left.source, left.steps[-2], 0)};",
            f"const float *w = {at(right, right.source, 0, across)};",
            f"float *out = {at(y, 'y', y.steps[-2], width)};",
        )
        arguments = ["x", "w", "out", "scratch" if scratch else "0"]
        for operand in chain.operands.values():
            steps = operand.view.steps
            code.add(
                f"const float *{operand.pointer} = "
                f"{at(operand.view, operand.view.source, steps[-2], width * steps[-1])};"
            )
            arguments.append(operand.pointer)
        call = ", ".join(arguments)
        for number, (rows, columns) in enumerate(shapes):
            conditions = []
            if more:
                conditions.append(f"rt < {more}" if rows == low + 1 else f"rt >= {more}")
            if last != width and column_tiles > 1:
                conditions.append(f"ct == {column_tiles - 1}" if columns == last else f"ct < {column_tiles - 1}")
            test = f"if ({' && '.join(conditions)}) " if conditions else ""
            code.add(f"{'else ' if number and test else ''}{test}{name}_{rows}x{columns}({call});")
    items = row_tiles * column_tiles * batch
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), items, scratch)
