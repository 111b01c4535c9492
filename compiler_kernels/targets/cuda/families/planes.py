"""Contiguous stretches summed by positions: instance and group normalisation, global pools and means of plain values.

A block takes a stretch, a thread leaves of 64 positions; the leaves meet in shared memory, where the threads add the
nodes of one level of the tree after another. Of a long stretch the blocks of a cluster take a part of the leaves each
and send them to all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import RADIX, SUM_LEAF
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.rows import in_lanes
from compiler_kernels.targets.c.writer import Code, c_float
from compiler_kernels.targets.cuda.families.text import ONE, kernel_text, launched, one_plain_statement, split
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel

MOST_THREADS: Final = 512
LONG: Final = 1024
"""Leaves from which on a cluster shares a stretch."""
CLUSTER: Final = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """``size`` positions, shared by ``blocks`` blocks."""

    size: int
    blocks: int

    @property
    def leaves(self) -> int:
        return -(-self.size // SUM_LEAF)

    @property
    def own(self) -> int:
        """Leaves of a block."""
        return -(-self.leaves // self.blocks)

    @property
    def threads(self) -> int:
        return min(MOST_THREADS, -(-self.own // 32) * 32)

    @property
    def shared(self) -> int:
        """Floats: the leaves, and the nodes of one level."""
        return self.leaves + -(-self.leaves // RADIX)

    @property
    def meet(self) -> str:
        return "__syncthreads();" if self.blocks == 1 else "cuvil_cluster_sync();"

    def leaf_values(self, code: Code, begin: str, step: Callable[[str], str]) -> None:
        """Leaves of the block, each a chain of ``step(value)`` on ``acc``, to ``level`` in every block."""
        first = "" if self.blocks == 1 else f"rank * {self.own} + "
        end = str(self.leaves) if self.blocks == 1 else f"(rank + 1) * {self.own} && leaf < {self.leaves}"
        with code.block(f"for (int leaf = {first}(int)threadIdx.x; leaf < {end}; leaf += {self.threads})"):
            code.add(f"float acc = {begin};")
            if self.size % SUM_LEAF == 0:
                code.add("#pragma unroll 4")
                with code.block(f"for (int k = 0; k < {SUM_LEAF}; k += 4)"):
                    code.add(f"const float4 v = *(const float4 *)(x + leaf * {SUM_LEAF} + k);")
                    code.add(*(f"acc = {step(f'v.{part}')};" for part in "xyzw"))
            else:
                bound = f"k < {SUM_LEAF} && leaf * {SUM_LEAF} + k < {self.size}"
                code.add(f"for (int k = 0; {bound}; k++) acc = {step(f'x[leaf * {SUM_LEAF} + k]')};")
            if self.blocks == 1:
                code.add("level[leaf] = acc;")
            else:
                code.add(f"for (unsigned r = 0; r < {self.blocks}; r++) *cuvil_cluster_at(level + leaf, r) = acc;")
        code.add(self.meet)

    def combined(self, code: Code, result: str, combine: Callable[[str, str], str]) -> None:
        """``const float result`` of the leaves, in nodes of 8, in every thread of every block."""
        code.add(f"float {result}_of;", "{")
        code.depth += 1
        code.add(f"float *from = level, *to = level + {self.leaves};")
        with code.block(f"for (int n = {self.leaves}; n > 1; n = (n + {RADIX - 1}) / {RADIX})"):
            with code.block(f"for (int i = (int)threadIdx.x; i * {RADIX} < n; i += {self.threads})"):
                code.add(f"float node = from[i * {RADIX}];")
                inside = f"j < {RADIX} && i * {RADIX} + j < n"
                code.add(f"for (int j = 1; {inside}; j++) node = {combine('node', f'from[i * {RADIX} + j]')};")
                code.add("to[i] = node;")
            code.add("__syncthreads();", "float *other = from;", "from = to;", "to = other;")
        code.add(f"{result}_of = *from;", self.meet)
        code.depth -= 1
        code.add("}", f"const float {result} = {result}_of;")

    def total(self, code: Code, result: str, step: Callable[[str], str]) -> None:
        self.leaf_values(code, "0.0f", step)
        self.combined(code, result, ONE.add)


def _kernel(
    function: Graph, gpu: Gpu, name: str, size: int, rows: int, emit: Callable[[Code, Stretch], None]
) -> CudaKernel | None:
    """``emit`` writes what is done with ``x``, the stretch ``row``."""
    long = gpu.clusters and -(-size // SUM_LEAF) >= LONG
    stretch = Stretch(size, CLUSTER if long else 1)
    if 4 * stretch.shared > gpu.shared_bytes:
        return None
    with kernel_text(function, name) as code:
        code.add("float *level = (float *)cuvil_shared;")
        split(code, "block", [rows, stretch.blocks], ["row", "rank"])
        code.add("cuvil_grid_wait();", f"const float *x = {function.ops[0].operands[0]} + (long)row * {size};")
        code.add(*(["cuvil_cluster_sync();"] if long else []))  # every block of the cluster has its memory from here on
        emit(code, stretch)
    blocks = rows * stretch.blocks
    return launched(function, name, code, blocks, stretch.threads, 4 * stretch.shared, cluster=stretch.blocks)


def normalization(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """instance_normalization and group_normalization: two passes for the sums, one that writes."""
    op = function.ops[0]
    if op.kind not in ("instance_normalization", "group_normalization") or not one_plain_statement(function):
        return None
    dims = op.out.dims
    per_group = dims[1] // op.int_("num_groups") if op.kind == "group_normalization" else 1
    spatial = prod(dims[2:])
    size, groups = per_group * spatial, dims[1] // per_group
    scale, bias = op.operands[1], op.operands[2] if len(op.operands) > 2 else ""

    def emit(code: Code, stretch: Stretch) -> None:
        count = c_float(size)
        stretch.total(code, "sum", lambda v: ONE.add("acc", v))
        code.add(f"const float mean = {ONE('div')}(sum, {count});")

        def square(v: str) -> str:
            deviation = f"{ONE('sub')}({v}, mean)"
            return ONE.fma(deviation, deviation, "acc")

        stretch.total(code, "squares", square)
        code.add(f"const float var = {ONE('div')}(squares, {count});")
        root = f"{ONE('sqrt')}({ONE.add('var', c_float(op.float_('epsilon')))})"
        code.add(f"const float r = {ONE('div')}(1.0f, {root});", f"float *out = y + (long)row * {size};")
        step = stretch.threads * stretch.blocks
        with code.block(f"for (int k = rank * {stretch.threads} + (int)threadIdx.x; k < {size}; k += {step})"):
            code.add(f"const int channel = row % {groups} * {per_group} + k / {spatial};")
            scaled = f"{ONE('mul')}({ONE('sub')}(x[k], mean), r)"
            code.add(f"out[k] = {ONE.fma(scaled, f'{scale}[channel]', f'{bias}[channel]' if bias else '0.0f')};")

    return _kernel(function, gpu, name, size, dims[0] * groups, emit)


def plane(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """Global pools, and means of a feature map over its spatial axes."""
    op = function.ops[0]
    if op.kind not in ("global_average_pool", "global_max_pool", "reduce_mean") or not one_plain_statement(function):
        return None
    dims = function.types()[op.operands[0]].dims
    if op.kind == "reduce_mean" and (op.ints("axes") != tuple(range(2, len(dims))) or in_lanes(op, len(dims))):
        return None
    size = prod(dims[2:])
    if size <= SUM_LEAF:
        return None  # one chain: nothing to share

    def emit(code: Code, stretch: Stretch) -> None:
        if op.kind == "global_max_pool":
            stretch.leaf_values(code, "-__builtin_inff()", lambda v: f"{ONE('max')}(acc, {v})")
            stretch.combined(code, "total", lambda a, b: f"{ONE('max')}({a}, {b})")
        else:
            stretch.total(code, "total", lambda v: ONE.add("acc", v))
        result = "total" if op.kind == "global_max_pool" else f"{ONE('div')}(total, {c_float(size)})"
        code.add(f"if (rank == 0 && threadIdx.x == 0) y[row] = {result};")

    return _kernel(function, gpu, name, size, prod(dims[:2]), emit)
