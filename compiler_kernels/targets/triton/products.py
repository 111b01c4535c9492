"""Matrix products on plain values, batched, operands and results reached through moves: targets/vector/product.py."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from compiler_kernels.arithmetic.order import sum_order
from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.views import View
from compiler_kernels.passes.products import PRODUCTS
from compiler_kernels.targets.cuda.families.text import ONE, computes_floats
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.triton.form import Form
from compiler_kernels.targets.triton.sums import DOT, stages_of, step_of, tile_of, tree
from compiler_kernels.targets.triton.text import Lines, chain, grid_address, linear, number
from compiler_kernels.targets.vector.epilogue import PlainChain
from compiler_kernels.targets.vector.product import product_statement


def product(function: Graph, gpu: Gpu) -> Form | None:
    """The form of a statement whose root is a product on plain values; ``None`` for anything else."""
    if not computes_floats(function):
        return None
    found = product_statement(function, ONE)
    if found is None or found.problem.depth == 0:
        return None
    problem, root = found.problem, next(op for op in function.ops if op.kind in PRODUCTS)
    rows, depth, columns = problem.rows, problem.depth, problem.columns
    order = sum_order(depth, 1)
    taps = min(depth, order.block * order.blocks_per_leaf)
    leaves, step = -(-depth // taps), step_of(taps)
    panels = -(-columns // BLOCK)
    batch = prod(problem.batch)
    high, wide = tile_of(rows, columns, batch, gpu.multiprocessors, panels * BLOCK)
    row_tiles, column_tiles = -(-rows // high), -(-columns // wide)
    lines = Lines()
    lines.add("pid = tl.program_id(0)")
    lead = [f"n{axis}" for axis in range(len(problem.batch))]
    lines.split("pid", [*problem.batch, row_tiles, column_tiles], [*lead, "row_tile", "column_tile"])
    lines.add(f"r = row_tile * {high} + tl.arange(0, {high})", f"c = column_tile * {wide} + tl.arange(0, {wide})")
    left = linear([*_lead(problem.left, lead), _vector("r", problem.left.steps[-2])], problem.left.offset)
    right = linear(
        [*_lead(problem.right, lead), (f"(c // {BLOCK})", problem.right_panel), (f"(c % {BLOCK})", 1)],
        problem.right.offset,
    )
    lines.add(f"left = {problem.left.source} + {left}", f"right = {problem.right.source} + {right}")
    of_k = problem.left.steps[-1], problem.right.steps[-2]
    here = [f"(r < {rows})[:, None]"] if rows % high else []
    there = [f"(c < {panels * BLOCK})[None, :]"] if panels * BLOCK % wide else []
    ragged = [f"i < {depth} - first"] if depth % taps else []
    ragged += [f"i < {taps}"] if taps % step else []

    def leaf(inner: Lines, which: str) -> None:
        inner.add(f"first = {which} * {taps}")
        with inner.block(f"for j in tl.static_range(0, {-(-taps // step)}):"):
            inner.add(f"i = j * {step} + tl.arange(0, {step})")
            if ragged:
                inner.add(f"some = {' & '.join(f'({m})' for m in ragged)}")
            of_left = [*here, *(["some[None, :]"] if ragged else [])]
            of_right = [*there, *(["some[:, None]"] if ragged else [])]
            inner.add(
                load("a", f"left[:, None] + {_scaled('first', of_k[0])} + ({_scaled('i', of_k[0])})[None, :]", of_left)
            )
            inner.add(
                load(
                    "b", f"right[None, :] + {_scaled('first', of_k[1])} + ({_scaled('i', of_k[1])})[:, None]", of_right
                )
            )
            inner.add(f"acc = {DOT}")

    total = tree(lines, leaves, high, wide, leaf)
    exists = [*here, *([f"(c < {columns})[None, :]"] if columns % wide else [])]
    result = _ending(lines, found.chain, found.root, root, total, lead, exists)
    y = problem.y
    down = linear([*_lead(y, lead), _vector("r", y.steps[-2])], y.offset)
    place = grid_address("y", down, linear([_vector("c", y.steps[-1])]))
    lines.add(f"tl.store({place}, {result}{mask(exists)})")
    return Form(lines, batch * row_tiles * column_tiles, 4, stages_of(taps, high, wide))


def _vector(name: str, step: int) -> tuple[str, int]:
    """A term that stays a vector where the step is 0 because the axis has one element."""
    return (name, step) if step else (f"({name} * 0)", 1)


def _scaled(name: str, step: int) -> str:
    return name if step == 1 else f"{name} * {step}"


def mask(conditions: Sequence[str]) -> str:
    """The argument of a load or store."""
    return f", mask={' & '.join(conditions)}" if conditions else ""


def load(name: str, place: str, conditions: Sequence[str]) -> str:
    return f"{name} = tl.load({place}{mask(conditions)}{', other=0.0' if conditions else ''})"


def _lead(view: View, names: Sequence[str]) -> list[tuple[str, int]]:
    return [(name, view.steps[axis]) for axis, name in enumerate(names) if view.dims[axis] > 1]


def _ending(
    lines: Lines, after: PlainChain, first: str, root: Op, total: str, lead: Sequence[str], exists: Sequence[str]
) -> str:
    """alpha, the bias or +0, and the fused operations."""
    gemm = root.kind == "gemm"
    alpha = root.float_("alpha") if gemm else 1.0
    lines.add(f"t = {total}" if alpha == 1.0 else f"t = {total} * {number(alpha)}")
    if not (after.ops and after.ops[0].kind == "add_c"):
        lines.add("t = t + 0.0")
    names = {first: "t"}
    for name, operand in after.operands.items():
        view, pointer = operand.view, operand.pointer
        down = linear([*_lead(view, lead), ("r", view.steps[-2] if len(view.steps) > 1 else 0)], view.offset)
        across = linear([("c", view.steps[-1] if view.steps else 0)])
        moves = len(view.steps) > 1 and view.steps[-2]
        place = grid_address(view.source, down if moves else "0", across)
        if not moves:
            place = place.replace(view.source, f"{view.source} + {down}", 1)
        conditions = [m for m in exists if (moves if m.startswith("(r") else view.steps and view.steps[-1])]
        lines.add(load(pointer, place, conditions))
        names[name] = pointer
    ops = list(after.ops)
    result = "t"
    if ops and ops[0].kind == "add_c":
        op = ops.pop(0)
        beta, c = op.float_("beta"), names[op.operands[1]]
        addend = c if beta == 1.0 else f"{c} * {number(beta)}"
        lines.add(f"v_{op.result} = t + ({addend} + 0.0)")
        names[op.result] = result = f"v_{op.result}"
    return chain(lines, ops, names, result)
