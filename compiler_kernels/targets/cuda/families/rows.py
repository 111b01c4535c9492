"""Rows of contiguous plain values: softmax, log_softmax, layer and RMS normalisation, reductions over trailing axes.

The 16 virtual lanes of CA-1 are 16 threads. A row of at most 64 elements per lane belongs to half a warp and lies in
registers; of a longer one the threads of a block take a leaf of 64 per lane each, which meet in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from compiler_kernels.arithmetic.order import ROW_LANES, SUM_LEAF
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.rows import in_lanes
from compiler_kernels.targets.c.writer import Code, c_float
from compiler_kernels.targets.cuda.families.text import ONE, is_constant, kernel_text, launched, one_plain_statement
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel

WARP: Final = 32
MOST_LEAVES: Final = 2048
"""Of a row that fits the shared memory: 2048 leaves are two million elements."""

Value = Callable[[str], str]
"""C expression of what is summed or selected, given that of the element."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of ``size`` elements. ``groups`` of 16 threads share it; with one group the elements are in ``v``."""

    size: int

    @property
    def steps(self) -> int:
        """Elements of lane 0, the fullest."""
        return -(-self.size // ROW_LANES)

    @property
    def leaves(self) -> int:
        return -(-self.steps // SUM_LEAF)

    @property
    def short(self) -> bool:
        return self.leaves == 1

    @property
    def groups(self) -> int:
        return 1 if self.short else min(32, self.leaves + self.leaves % 2)

    def exists(self, step: str) -> str:
        """Condition on element ``step`` of the lane; empty where every lane has it."""
        return f"{step} * {ROW_LANES} + lane < {self.size}" if self.size % ROW_LANES else ""

    def each(self, code: Code, element: Callable[[str], list[str]]) -> None:
        """``element(value)`` for every element of the lane, in order; ``at`` is its index in the row."""
        if self.short:
            code.add("#pragma unroll")
            with code.block(f"for (int k = 0; k < {self.steps}; k++)"):
                code.add(f"const int at = k * {ROW_LANES} + lane;", "(void)at;")
                test = self.exists("k") if self.size % ROW_LANES else ""
                with code.block(f"if ({test})" if test else ""):
                    code.add(*element("v[k]"))
            return
        with code.block(f"for (int at = (int)threadIdx.x; at < {self.size}; at += {self.groups * ROW_LANES})"):
            code.add(*element("x[at]"))

    def reduce(self, code: Code, result: str, begin: str, step: Value, combine: str) -> None:
        """``const float result``: ``step(value)``, an expression of ``acc``, over the lane's elements in leaves, those
        combined by the tree (sums) or in order, then the lanes 8, 4, 2, 1 apart by function ``combine``."""
        code.add(f"float {result}_lane = {begin};")
        if self.short:
            self.each(code, lambda v: [f"{result}_lane = {step(v).replace('acc', f'{result}_lane')};"])
        else:
            self._long(code, result, begin, step, combine)
        fold = f"for (int apart = 8; apart >= 1; apart /= 2) {result}_lane = {combine}({result}_lane, "
        shuffle = f"__shfl_down_sync(0xffffffffu, {result}_lane, apart, {ROW_LANES})"
        code.add("#pragma unroll", f"{fold}{shuffle});")
        if self.short:
            code.add(f"const float {result} = __shfl_sync(0xffffffffu, {result}_lane, 0, {ROW_LANES});")
            return
        code.add(f"if (threadIdx.x == 0) *shared = {result}_lane;", "__syncthreads();")
        code.add(f"const float {result} = *shared;", "__syncthreads();")

    def _long(self, code: Code, result: str, begin: str, step: Value, combine: str) -> None:
        """Lane values of all leaves in the threads of the first warp, both halves alike."""
        with code.block(f"for (int leaf = group; leaf < {self.leaves}; leaf += {self.groups})"):
            code.add(f"float acc = {begin};")
            with code.block(f"for (int k = 0; k < {SUM_LEAF}; k++)"):
                code.add(f"const int at = (leaf * {SUM_LEAF} + k) * {ROW_LANES} + lane;")
                code.add(f"if (at < {self.size}) acc = {step('x[at]')};")
            code.add(f"shared[16 + leaf * {ROW_LANES} + lane] = acc;")
        code.add("__syncthreads();")
        with code.block("if (threadIdx.x < 32)"):
            value = f"shared[16 + leaf * {ROW_LANES} + lane]"
            loop = f"for (int leaf = 0; leaf < {self.leaves}; leaf++)"
            if combine == ONE("add"):
                code.add("ca1_tree tree;", "ca1_tree_init(&tree);", f"{loop} ca1_tree_push(&tree, {value});")
                code.add(f"{result}_lane = ca1_tree_sum(&tree);")
            else:
                code.add(f"{loop} {result}_lane = {combine}({result}_lane, {value});")


def _kernel(
    function: Graph, gpu: Gpu, name: str, row: Row, rows: int, out: int, emit: Callable[[Code], None],
    early: Sequence[str] = (),
) -> CudaKernel | None:  # fmt: skip
    """``early`` are statements before the wait for the launch before. ``emit`` writes the statements from ``x``, the
    row, and ``v``, its elements in registers, to ``out``, of a row that ``exists``."""
    if not row.short and (row.leaves > MOST_LEAVES or 4 * ROW_LANES * (row.leaves + 1) > gpu.shared_bytes):
        return None
    threads = row.groups * ROW_LANES
    if row.short:
        threads = WARP * max(1, min(4, rows // (4 * gpu.multiprocessors)))
    per_block = threads // ROW_LANES if row.short else 1
    with kernel_text(function, name) as code:
        if row.short:
            code.add(f"const int lane = threadIdx.x % {ROW_LANES};")
            code.add(f"const int found = block * {per_block} + (int)threadIdx.x / {ROW_LANES};")
            code.add(f"const int row = found < {rows} ? found : {rows - 1}, exists = found < {rows};")
        else:
            code.add("float *shared = (float *)cuvil_shared;", "const int row = block, exists = 1;")
            code.add(f"const int lane = threadIdx.x % {ROW_LANES}, group = threadIdx.x / {ROW_LANES};")
        code.add(*early, "cuvil_grid_wait();")
        code.add(f"const float *x = {function.ops[0].operands[0]} + (long)row * {row.size};")
        code.add(f"float *out = y + (long)row * {out};")
        if row.short:
            code.add(f"float v[{row.steps}];", "#pragma unroll")
            load = f"v[k] = x[k * {ROW_LANES} + lane];"
            test = row.exists("k")
            code.add(f"for (int k = 0; k < {row.steps}; k++) {f'if ({test}) ' if test else ''}{load}")
        emit(code)
    shared = 0 if row.short else 4 * ROW_LANES * (row.leaves + 1)
    return launched(function, name, code, -(-rows // per_block), threads, shared)


def _sum(value: Value) -> Value:
    return lambda v: ONE.add("acc", value(v))


def softmax(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """softmax and log_softmax over a last axis; a long row computes its exponentials twice."""
    op = function.ops[0]
    if (
        op.kind not in ("softmax", "log_softmax")
        or not one_plain_statement(function)
        or op.int_("axis") != len(op.out.dims) - 1
    ):
        return None
    size = op.out.dims[-1]
    row = Row(size)

    def emit(code: Code) -> None:
        row.reduce(code, "m", "-__builtin_inff()", lambda v: f"{ONE('max')}(acc, {v})", ONE("max"))

        def exponential(v: str) -> str:
            return f"{ONE('exp_nonpositive')}({ONE('sub')}({v}, m))"

        kept = row.short and op.kind == "softmax"
        if kept:
            row.each(code, lambda v: [f"{v} = {exponential(v)};"])
        row.reduce(code, "s", "0.0f", _sum((lambda v: v) if kept else exponential), ONE("add"))
        if op.kind == "softmax":
            row.each(code, lambda v: [f"if (exists) out[at] = {ONE('div')}({v if kept else exponential(v)}, s);"])
        else:
            code.add("const float ls = ca1_log(s);")
            shifted = f"{ONE('sub')}({ONE('sub')}({{0}}, m), ls)"
            row.each(code, lambda v: [f"if (exists) out[at] = {shifted.format(v)};"])

    return _kernel(function, gpu, name, row, prod(op.out.dims[:-1]), size, emit)


def layer_normalization(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """Two passes over the row, one for the RMS, whose mean is 0; y = fma(d * r, scale, bias)."""
    op = function.ops[0]
    if op.kind not in ("layer_normalization", "rms_normalization") or not one_plain_statement(function):
        return None
    dims, axis, types = op.out.dims, op.int_("axis"), function.types()
    size = prod(dims[axis:])
    if any(types[p].count != size for p in op.operands[1:] if p):
        return None
    row, count, with_mean = Row(size), c_float(size), op.kind == "layer_normalization"
    scale, bias = op.operands[1], op.operands[2] if len(op.operands) > 2 else ""

    kept = [p for p in (scale, bias) if p and row.short and is_constant(p)]
    early = [f"float {p}_v[{row.steps}];" for p in kept]
    test = f"if ({row.exists('k')}) " if row.exists("k") else ""
    for p in kept:
        early += [
            "#pragma unroll",
            f"for (int k = 0; k < {row.steps}; k++) {test}{p}_v[k] = {p}[k * {ROW_LANES} + lane];",
        ]

    def deviation(v: str) -> str:
        return f"{ONE('sub')}({v}, mean)" if with_mean else v

    def emit(code: Code) -> None:
        if with_mean:
            row.reduce(code, "sum", "0.0f", _sum(lambda v: v), ONE("add"))
            code.add(f"const float mean = {ONE('div')}(sum, {count});")
        row.reduce(code, "sq", "0.0f", lambda v: ONE.fma(deviation(v), deviation(v), "acc"), ONE("add"))
        code.add(
            f"const float var = {ONE('div')}(sq, {count});",
            f"const float r = {ONE('div')}(1.0f, {ONE('sqrt')}({ONE.add('var', c_float(op.float_('epsilon')))}));",
        )
        factor, shift = (f"{p}_v[k]" if p in kept else f"{p}[at]" if p else "0.0f" for p in (scale, bias))

        def result(v: str) -> list[str]:
            scaled = f"{ONE('mul')}({deviation(v)}, r)"
            return [f"if (exists) out[at] = {ONE.fma(scaled, factor, shift)};"]

        row.each(code, result)

    return _kernel(function, gpu, name, row, prod(dims[:axis]), size, emit, early)


def reduction(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """Sum, mean, maximum or minimum over trailing axes, where CA-1 says lanes."""
    op = function.ops[0]
    if op.kind not in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min") or not one_plain_statement(function):
        return None
    dims, axes = function.types()[op.operands[0]].dims, op.ints("axes")
    if not axes or not in_lanes(op, len(dims)):
        return None
    size = prod(dims[a] for a in axes)
    row = Row(size)

    def emit(code: Code) -> None:
        if op.kind in ("reduce_max", "reduce_min"):
            pick = ONE(op.kind.removeprefix("reduce_"))
            begin = "-__builtin_inff()" if op.kind == "reduce_max" else "__builtin_inff()"
            row.reduce(code, "total", begin, lambda v: f"{pick}(acc, {v})", pick)
        else:
            row.reduce(code, "total", "0.0f", _sum(lambda v: v), ONE("add"))
        mean = f"{ONE('div')}(total, {c_float(size)})" if op.kind == "reduce_mean" else "total"
        code.add(f"if (exists && threadIdx.x % {ROW_LANES * row.groups} == 0) *out = {mean};")

    return _kernel(function, gpu, name, row, prod(dims) // size, 1, emit)
