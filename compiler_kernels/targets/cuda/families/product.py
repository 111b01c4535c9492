"""Matrix products on plain values: gemm and matmul, batched, operands and results reached through moves.

Leaves of the sum are the split of the work (tiles.py). One row or a few take 16 threads, one for each column of a
panel, that hold a leaf's weights in registers.
"""

from __future__ import annotations

from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code
from compiler_kernels.targets.cuda.families.sums import (
    Ending,
    Leaves,
    base_of,
    lead_of,
    leaves_of,
    merged_sum,
    push_nodes,
)  # fmt: skip
from compiler_kernels.targets.cuda.families.text import (
    ONE,
    computes_floats,
    is_constant,
    kernel_text,
    launched,
    split,
)  # fmt: skip
from compiler_kernels.targets.cuda.families.tiles import WARP, tiled
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.product import Problem, Statement, product_statement

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
    emit = _thin if found.problem.rows <= THIN_ROWS else tiled
    return emit(function, gpu, name, found)


def _thin(function: Graph, gpu: Gpu, name: str, found: Statement) -> CudaKernel:
    problem = found.problem
    left, right, rows, depth = problem.left, problem.right, problem.rows, problem.depth
    leaves = leaves_of(depth, THIN_LEAVES)
    threads = -(-BLOCK * max(leaves.at_once, rows) // WARP) * WARP
    x_floats = -(-rows * depth // 4) * 4
    shared = 4 * (x_floats + leaves.at_once * rows * BLOCK)
    if shared > gpu.shared_bytes:
        return tiled(function, gpu, name, found)
    panels, lead = -(-problem.columns // BLOCK), lead_of(problem)
    exists = f"threadIdx.x < {rows * BLOCK}" + (f" && column < {problem.columns}" if problem.columns % BLOCK else "")
    ending = Ending(found, lead, 1, f"const int r = threadIdx.x / {BLOCK}, c = column;", exists)
    with kernel_text(function, name) as code:
        code.add("float *shared = (float *)cuvil_shared;", f"float *partial = shared + {x_floats};")
        code.add(f"const int slot = threadIdx.x / {BLOCK}, c = threadIdx.x % {BLOCK};")
        split(code, "block", [*problem.batch, panels], [*(f"n{a}" for a in range(len(problem.batch))), "panel"])
        code.add(f"const int column = panel * {BLOCK} + c;")
        code.add(f"const float *w = {base_of(right, lead, [('panel', problem.right_panel), ('c', 1)])};")
        copy = (
            f"const float *x = {base_of(left, lead)};",
            f"for (int i = threadIdx.x; i < {rows * depth}; i += {threads}) "
            f"shared[i] = x[i / {depth} * {left.steps[-2]} + i % {depth} * {left.steps[-1]}];",
            "__syncthreads();",
        )
        if leaves.rounds == 1:
            inside = f"slot < {leaves.leaves}" if threads != BLOCK * leaves.leaves else ""
            early = is_constant(right.source)
            ending.read(code, True)
            code.add(*(() if early else ("cuvil_grid_wait();",)))
            _thin_weights(code, problem, leaves, "slot", inside)
            code.add(*(("cuvil_grid_wait();",) if early else ()))
            ending.read(code, False)
            code.add(*copy)
            _thin_leaf(code, problem, leaves, inside)
            code.add("__syncthreads();")
        else:
            ending.read(code, True)
            code.add("cuvil_grid_wait();")
            ending.read(code, False)
            code.add(*copy, "ca1_tree tree;", "ca1_tree_init(&tree);")
            with code.block(f"for (int from = 0; from < {leaves.leaves}; from += {leaves.at_once})"):
                code.add("const int leaf = from + slot;")
                _thin_weights(code, problem, leaves, "leaf", f"leaf < {leaves.leaves}")
                _thin_leaf(code, problem, leaves, f"leaf < {leaves.leaves}")
                code.add("__syncthreads();")
                with code.block(f"if (threadIdx.x < {rows * BLOCK})"):
                    push_nodes(code, leaves, "partial + threadIdx.x", rows * BLOCK, "&tree")
                code.add("__syncthreads();")
        if leaves.rounds == 1:
            total = Code()
            merged_sum(total, leaves, "(partial + threadIdx.x)", rows * BLOCK)
            ending.write(code, total.lines)
        else:
            ending.write(code, ["const float sum = ca1_tree_sum(&tree);"])
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
