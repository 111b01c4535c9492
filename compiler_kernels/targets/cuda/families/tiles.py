"""Tiles of a matrix product: a warp makes one leaf of a block's tile of results, a block all leaves of it.

A leaf (64 products) of the rows and columns comes to shared memory in two halves, the second on its way while the warp
works on the first. The warps meet in shared memory, where every result's leaves are added in the order of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import Final, Protocol

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
    whole_vectors,
)  # fmt: skip
from compiler_kernels.targets.cuda.families.text import ONE, is_constant, kernel_text, launched, split
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.product import Problem, Statement

WARP: Final = 32
HALF: Final = 32
MOST_LEAVES: Final = 16
"""Warps of a block."""


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

    def floats(self, leaf: int) -> int:
        """Shared memory of a warp: a leaf of the rows, then of the columns, whose place its results take."""
        return self.rows * pitch_of(leaf) + max(-(-leaf // 8) * 8, self.rows) * self.columns


def pitch_of(leaf: int) -> int:
    """Floats from row to row of the left tile: rows of four floats meet no bank twice."""
    return -(-leaf // 8) * 8 + 4


SHAPES: Final = (Shape(4, 8, 4), Shape(4, 8, 2), Shape(8, 4, 4), Shape(8, 4, 2))


def shape_of(problem: Problem, leaves: Leaves, gpu: Gpu) -> Shape:
    return best_shape(prod(problem.batch), problem.rows, problem.columns, leaves, gpu)


def best_shape(batch: int, rows: int, columns: int, leaves: Leaves, gpu: Gpu) -> Shape:
    """The shape with the least estimate of cycles: waves of blocks, each as long as a warp's chain or what the warps of
    a multiprocessor issue and load."""

    def cycles(shape: Shape) -> float:
        tiles = -(-rows // shape.rows) * -(-columns // shape.columns) * batch
        shared = 4 * leaves.at_once * shape.floats(leaves.leaf)
        room = max(1, min(gpu.shared_bytes // shared, 2048 // (WARP * leaves.at_once), 16))
        waves = -(-tiles // (gpu.multiprocessors * room))
        together = min(room, -(-tiles // gpu.multiprocessors)) * leaves.at_once
        products, loads = leaves.leaf * shape.each * 4, leaves.leaf * (shape.each + 2) / 2
        return waves * leaves.rounds * (600 + max(1.3 * products, together * products / 4, together * loads))

    room = gpu.shared_bytes // (4 * leaves.at_once)
    fitting = [s for s in SHAPES if (s.columns <= BLOCK or columns > BLOCK) and s.floats(leaves.leaf) <= room]
    return min(fitting, key=cycles)


def tiled(function: Graph, gpu: Gpu, name: str, found: Statement) -> CudaKernel:
    """The kernel of a product of any sizes."""
    problem = found.problem
    leaves = leaves_of(problem.depth, MOST_LEAVES)
    shape = shape_of(problem, leaves, gpu)
    lead = lead_of(problem)
    ending = Ending(found, lead, *results(shape, leaves, problem.rows, problem.columns))
    work = Tile(problem, shape, leaves, ending)
    axes = [(f"n{a}", size) for a, size in enumerate(problem.batch)]
    return emit_tiles(function, name, work, axes, problem.rows, problem.columns)


class End(Protocol):
    """What follows the sums of a block's tile; see ``Ending``."""

    def read(self, code: Code, constant: bool) -> None: ...

    def write(self, code: Code, total: Sequence[str]) -> None: ...


def results(shape: Shape, leaves: Leaves, rows: int, columns: int) -> tuple[int, str, str]:
    """How many results a thread has, where they are, and which exist."""
    threads, tile = WARP * leaves.at_once, shape.rows * shape.columns
    place = f"const int e = t * {threads} + (int)threadIdx.x; const int r = row + e / {shape.columns};"
    bounds = [f"t * {threads} + (int)threadIdx.x < {tile}"] if tile % threads else []
    bounds += [f"r < {rows}"] if rows % shape.rows else []
    bounds += [f"c < {columns}"] if columns % shape.columns else []
    return -(-tile // threads), f"{place} const int c = column + e % {shape.columns};", " && ".join(bounds)


def emit_tiles(
    function: Graph, name: str, work: Tile, axes: Sequence[tuple[str, int]], rows: int, columns: int
) -> CudaKernel:
    """The kernel whose blocks make the tiles of a matrix of ``rows`` x ``columns`` for every index of ``axes``."""
    shape, leaves, ending = work.shape, work.leaves, work.ending
    threads, tile, step = WARP * leaves.at_once, shape.rows * shape.columns, shape.floats(leaves.leaf)
    row_tiles, column_tiles = -(-rows // shape.rows), -(-columns // shape.columns)
    x_floats = shape.rows * pitch_of(leaves.leaf)
    with kernel_text(function, name) as code:
        code.add("float *shared = (float *)cuvil_shared;")
        code.add("const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;")
        sizes = [*(size for _, size in axes), row_tiles, column_tiles]
        split(code, "block", sizes, [*(n for n, _ in axes), "rt", "ct"])
        code.add(f"const int row = rt * {shape.rows}, column = ct * {shape.columns};")
        code.add(f"float *xs = shared + warp * {step}, *ws = xs + {x_floats};")
        code.add(f"const int down = lane / {shape.across}, over = lane % {shape.across};")
        if leaves.rounds == 1:
            work.leaf(code, "warp")
            code.add("__syncthreads();", f"const float *part = shared + {x_floats};")
            merged = Code()
            merged_sum(merged, leaves, "(part + e)", step)
            ending.write(code, merged.lines)
        else:
            own = -(-tile // threads)
            ending.read(code, True)
            code.add("cuvil_grid_wait();")
            ending.read(code, False)
            code.add(f"ca1_tree tree[{own}];", f"for (int t = 0; t < {own}; t++) ca1_tree_init(&tree[t]);")
            with code.block(f"for (int from = 0; from < {leaves.leaves}; from += {leaves.at_once})"):
                code.add("const int leaf = from + warp;")
                with code.block(f"if (leaf < {leaves.leaves})"):
                    work.leaf(code, "leaf")
                code.add("__syncthreads();")
                with code.block(f"for (int e = threadIdx.x, t = 0; e < {tile}; e += {threads}, t++)"):
                    push_nodes(code, leaves, f"shared + {x_floats} + e", step, "&tree[t]")
                code.add("__syncthreads();")
            ending.write(code, ["const float sum = ca1_tree_sum(&tree[t]);"])
    grid = row_tiles * column_tiles * prod(size for _, size in axes)
    return launched(function, name, code, grid, threads, 4 * leaves.at_once * step)


@dataclass(frozen=True)
class Tile:
    """Statements of one warp: a leaf's rows and columns to shared memory, and their products."""

    problem: Problem
    shape: Shape
    leaves: Leaves
    ending: End

    @property
    def pitch(self) -> int:
        return pitch_of(self.leaves.leaf)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First and last product of each half of a leaf."""
        size = self.leaves.leaf
        return [(0, HALF), (HALF, size)] if size > HALF and self.leaves.rounds == 1 else [(0, size)]

    @property
    def ragged(self) -> bool:
        """Whether the last leaf is shorter than the others."""
        return self.leaves.last != self.leaves.leaf

    @property
    def constant(self) -> bool:
        """Whether the columns are constants."""
        return is_constant(self.problem.right.source)

    def begin(self, code: Code, leaf: str) -> None:
        """Declare ``taps``, the leaf's number of products, and ``w``, its columns."""
        right = self.problem.right
        code.add(f"const int first = {leaf} * {self.leaves.leaf}, taps = {self.leaves.products(leaf)};")
        code.add(f"const float *w = {base_of(right, lead_of(self.problem), [('first', right.steps[-2])])};")

    def point(self, code: Code) -> None:
        """Declare ``x``, the leaf's first product of row 0."""
        left = self.problem.left
        code.add(f"const float *x = {base_of(left, lead_of(self.problem), [('first', left.steps[-1])])};")

    def leaf(self, code: Code, leaf: str) -> None:
        """The leaf, left in ``ws`` as [row][column]. Constants are under way before the launch before has ended."""
        once = self.leaves.rounds == 1
        self.begin(code, leaf)
        early = once and self.constant
        if early:
            for part in self.parts:
                self.copy_columns(code, *part)
                code.add("cuvil_copy_commit();")
        if once:
            self.ending.read(code, True)
            code.add("cuvil_grid_wait();")
        self.point(code)
        for part in self.parts:
            self.copy_rows(code, *part)
            if not early:
                self.copy_columns(code, *part)
            code.add("cuvil_copy_commit();")
        if once:
            self.ending.read(code, False)
        code.add(f"float acc[{self.shape.each}][4] = {{{{0.0f}}}};")
        code.add(f"const float *xr = xs + down * {self.pitch}, *wr = ws + over * 4;")
        for number, part in enumerate(self.parts):
            code.add(f"cuvil_copy_wait<{len(self.parts) - 1 - number}>();", "__syncwarp();")
            self._products(code, *part)
        code.add("__syncwarp();")
        for r in range(self.shape.each):
            place = f"ws + (down + {r * self.shape.down}) * {self.shape.columns} + over * 4"
            code.add(f"*(float4 *)({place}) = make_float4(acc[{r}][0], acc[{r}][1], acc[{r}][2], acc[{r}][3]);")

    def copy_rows(self, code: Code, begin: int, end: int) -> None:
        """Products ``begin`` to ``end`` of the rows to ``xs`` [row][pitch]; a row beyond the last is the last."""
        left, shape, rows = self.problem.left, self.shape, self.problem.rows
        last = f"row + r < {rows} ? row + r : {rows - 1}" if rows % shape.rows else "row + r"
        whole = self.leaves.leaf % 4 == 0 and self.leaves.last % 4 == 0
        kept = "if (k < taps) " if self.ragged else ""
        if whole and whole_vectors(left, range(len(left.dims) - 1)):
            groups = (end - begin) // 4
            with loop(code, shape.rows * groups):
                code.add(f"const int r = i / {groups}, k = {begin} + i % {groups} * 4, from = {last};")
                code.add(f"{kept}cuvil_copy_async<16>(xs + r * {self.pitch} + k, x + from * {left.steps[-2]} + k);")
            return
        size = end - begin
        across = left.steps[-2] == 1 and left.steps[-1] != 1
        place = (
            f"r = i % {shape.rows}, k = {begin} + i / {shape.rows}"
            if across
            else f"r = i / {size}, k = {begin} + i % {size}"
        )
        source = f"x + from * {left.steps[-2]} + k * {left.steps[-1]}"
        with loop(code, shape.rows * size):
            code.add(f"const int {place}, from = {last};")
            code.add(f"{kept}cuvil_copy_async<4>(xs + r * {self.pitch} + k, {source});")

    def copy_columns(self, code: Code, begin: int, end: int) -> None:
        """Products ``begin`` to ``end`` of the columns to ``ws`` [k][columns]; a panel beyond the last is the last."""
        problem, columns = self.problem, self.shape.columns
        right, panels = problem.right, -(-problem.columns // BLOCK)
        panel = f"column / {BLOCK} + c / {BLOCK}"
        if panels % -(-columns // BLOCK):
            panel = f"({panel} < {panels} ? {panel} : {panels - 1})"
        wide = whole_vectors(right, range(len(right.dims) - 1)) and problem.right_panel % 4 == 0
        each = 4 if wide else 1
        across = columns // each
        kept = "if (k < taps) " if self.ragged else ""
        with loop(code, (end - begin) * across):
            column = f"i % {across} * 4" if wide else f"i % {across}"
            code.add(f"const int k = {begin} + i / {across}, c = {column}, panel = {panel};")
            source = f"w + panel * {problem.right_panel} + k * {right.steps[-2]} + c % {BLOCK}"
            code.add(f"{kept}cuvil_copy_async<{4 * each}>(ws + k * {columns} + c, {source});")

    def _products(self, code: Code, begin: int, end: int) -> None:
        """``each`` x 4 results per thread, products ``begin`` to ``end`` of the leaf."""
        shape, each = self.shape, range(self.shape.each)
        whole = self.leaves.leaf % 4 == 0 and self.leaves.last % 4 == 0
        bound, rest = str(end // 4 * 4), ""
        if self.ragged:
            bound = f"(taps < {end} ? taps : {end})"
        if not whole:
            rest, bound = bound if self.ragged else str(end), f"{bound} / 4 * 4"
        code.add(f"#pragma unroll {4 if self.ragged else 8}")
        with code.block(f"for (int k = {begin}; k < {bound}; k += 4)"):
            for r in each:
                code.add(f"const float4 x{r} = *(const float4 *)(xr + {r * shape.down * self.pitch} + k);")
            for j, part in enumerate("xyzw"):
                code.add(f"const float4 w{j} = *(const float4 *)(wr + (k + {j}) * {shape.columns});")
                self._row_of_products(code, j, [f"x{r}.{part}" for r in each])
        if rest:
            with code.block(f"for (int k = {bound} > {begin} ? {bound} : {begin}; k < {rest}; k++)"):
                code.add(f"const float4 w0 = *(const float4 *)(wr + k * {shape.columns});")
                self._row_of_products(code, 0, [f"xr[{r * shape.down * self.pitch} + k]" for r in each])

    def _row_of_products(self, code: Code, j: int, values: Sequence[str]) -> None:
        for r, value in enumerate(values):
            for c, column in enumerate("xyzw"):
                code.add(f"acc[{r}][{c}] = {ONE.fma(value, f'w{j}.{column}', f'acc[{r}][{c}]')};")


def loop(code: Code, count: int) -> AbstractContextManager[None]:
    """The lanes of the warp take ``i`` from 0 to ``count``."""
    code.add(*(["#pragma unroll"] if count % WARP == 0 and count <= 32 * WARP else []))
    return code.block(f"for (int i = lane; i < {count}; i += {WARP})")
