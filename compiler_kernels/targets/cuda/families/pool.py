"""Pooling of blocked values: a thread for four channels of a result; globally, 16 channels of a leaf of positions."""

from __future__ import annotations

from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import SUM_LEAF
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, c_float, linear
from compiler_kernels.targets.cuda.families.positions import QUAD, Blocked, blocked_root, quad
from compiler_kernels.targets.cuda.families.text import ONE, computes_floats, kernel_text, launched, split, sum_tree
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import full_access, three

SLOTS: Final = 64
"""Leaves that a block makes at once."""


def pool(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """max_pool and average_pool from blocked to blocked."""
    op = function.ops[0]
    if op.kind not in ("max_pool", "average_pool") or not computes_floats(function) or not blocked_root(function):
        return None
    kernel, step, dilation = (three(op.ints(k), 1) for k in ("kernel", "strides", "dilations"))
    average = op.kind == "average_pool"
    if average and prod(kernel) > SUM_LEAF:
        return None
    x_type = function.types()["p0"]
    x, size, rank = full_access("p0", x_type), three(x_type.dims[2:], 1), len(x_type.dims) - 2
    begin, end = three(op.ints("pads")[:rank], 0), three(op.ints("pads")[rank:], 0)
    outputs = three(op.out.dims[2:], 1)
    leaving = [
        begin[a] > 0 or (outputs[a] - 1) * step[a] - begin[a] + (kernel[a] - 1) * dilation[a] >= size[a]
        for a in range(3)
    ]

    def body(code: Code) -> None:
        start = "0.0f" if average else "-__builtin_inff()"
        code.add(f"float4 value = make_float4({', '.join([start] * 4)});")
        for a, axis in enumerate("dhw"):
            code.add(f"const int {axis}s = {linear([(axis, step[a])], -begin[a])};")
            if average:
                low, high = (-begin[a], size[a] + end[a]) if op.attr("count_include_pad") else (0, size[a])
                at = [f"{axis}s + {k * dilation[a]}" for k in range(kernel[a])]
                tests = [f"({place} >= {low} && {place} < {high})" for place in at]
                code.add(f"const int count_{axis} = {' + '.join(tests)};")
        code.add(f"const float *from = {x.at('n', 'cb', ['ds', 'hs', 'ws'])} + q * 4;")
        loops = []
        for a, axis in enumerate("dhw"):
            code.add(*(["#pragma unroll"] if prod(kernel) <= 16 else []))
            code.add(f"for (int k{axis} = 0; k{axis} < {kernel[a]}; k{axis}++) {{")
            code.depth += 1
            if leaving[a]:
                place = linear([(f"{axis}s", 1), (f"k{axis}", dilation[a])])
                code.add(f"if ({place} < 0 || {place} >= {size[a]}) continue;")
            loops.append((f"k{axis}", dilation[a] * x.spatial[a]))
        code.add(f"const float4 v = {quad('from', loops)};")
        for part in QUAD:
            pick = ONE.add if average else lambda a, b: f"{ONE('max')}({a}, {b})"
            code.add(f"value.{part} = {pick(f'value.{part}', f'v.{part}')};")
        for _ in range(3):
            code.depth -= 1
            code.add("}")
        if average:
            code.add("const float count = (float)(count_d * count_h * count_w);")
            code.add(*(f"value.{part} = {ONE('div')}(value.{part}, count);" for part in QUAD))

    return Blocked(function, name).emit(body)


def global_pool(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """Mean or maximum over all positions of a blocked value, to a blocked or a plain result: a block for 16 channels,
    its threads taking a leaf of 64 positions each."""
    op = function.ops[0]
    if not computes_floats(function) or len(function.ops) > 1:
        return None
    x_type, out = function.types()[op.operands[0]], op.out
    if op.kind not in ("global_average_pool", "global_max_pool", "reduce_mean") or not x_type.layout.startswith("c16"):
        return None
    if out.layout and any(out.physical.halo):
        return None
    depth, height, width = three(x_type.dims[2:], 1)
    count, mean = depth * height * width, op.kind != "global_max_pool"
    leaves = -(-count // SUM_LEAF)
    slots = min(leaves, SLOTS)
    if 4 * BLOCK * leaves > gpu.shared_bytes:
        return None
    x, channels, blocks = full_access("p0", x_type), x_type.dims[1], x_type.physical.blocks
    threads = BLOCK * slots
    with kernel_text(function, name) as code:
        code.add("float *shared = (float *)cuvil_shared;")
        split(code, "block", [x_type.dims[0], blocks], ["n", "cb"])
        code.add(
            f"const int lane = threadIdx.x % {BLOCK}, slot = threadIdx.x / {BLOCK};",
            "cuvil_grid_wait();",
        )
        code.add(f"const float *from = {x.at('n', 'cb', ['0', '0', '0'])} + lane;")
        start = "0.0f" if mean else "-__builtin_inff()"
        bound = str(count) if leaves == 1 else f"(leaf == {leaves - 1} ? {count} : (leaf + 1) * {SUM_LEAF})"
        code.add("float best;")
        with code.block(f"for (int leaf = slot; leaf < {leaves}; leaf += {slots})"):
            code.add(f"best = {start};", "#pragma unroll" if leaves == 1 else "#pragma unroll 16")
            with code.block(f"for (int k = leaf * {SUM_LEAF}; k < {bound}; k++)"):
                split(code, "k", [depth, height, width], ["d", "h", "w"])
                value = f"from[{linear(list(zip('dhw', x.spatial, strict=True)))}]"
                code.add(f"best = {ONE.add('best', value) if mean else ONE('max') + f'(best, {value})'};")
            code.add(*([f"shared[leaf * {BLOCK} + lane] = best;"] if leaves > 1 else []))
        if leaves > 1:
            code.add("__syncthreads();", "if (slot > 0) return;")
        if leaves == 1:
            code.add("const float total = best;")
        elif leaves <= SLOTS and mean:
            sum_tree(code, [f"shared[{leaf * BLOCK} + lane]" for leaf in range(leaves)], "total")
        elif mean:
            code.add("ca1_tree tree;", "ca1_tree_init(&tree);")
            code.add(f"for (int i = 0; i < {leaves}; i++) ca1_tree_push(&tree, shared[i * {BLOCK} + lane]);")
            code.add("const float total = ca1_tree_sum(&tree);")
        else:
            pick = f"total = {ONE('max')}(total, shared[i * {BLOCK} + lane]);"
            code.add("float total = shared[lane];", f"for (int i = 1; i < {leaves}; i++) {pick}")
        result = f"{ONE('div')}(total, {c_float(count)})" if mean else "total"
        tail = channels % BLOCK
        inside = f"cb < {blocks - 1} || lane < {tail}" if tail else ""
        if out.layout:
            result = f"({inside} ? {result} : 0.0f)" if inside else result
            code.add(f"y[(n * {blocks} + cb) * {BLOCK} + lane] = {result};")
        else:
            code.add(f"{f'if ({inside}) ' if inside else ''}y[n * {channels} + cb * {BLOCK} + lane] = {result};")
    grid = x_type.dims[0] * blocks
    return launched(function, name, code, grid, threads, 4 * BLOCK * leaves if leaves > 1 else 0)
