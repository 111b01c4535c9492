"""Convolutions and products of 8- and 16-bit integers with constant weights (passes/integers.py), a thread per result.

Sums are modulo 2^32, so their order is free; what follows is the scalar kernel's chain.
"""

from __future__ import annotations

from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.passes.integers import INTEGER, KINDS
from compiler_kernels.targets.c.elementwise import body_lines
from compiler_kernels.targets.c.scalar import without_unused_coordinates
from compiler_kernels.targets.c.writer import Code, c_type, decode, linear, strides
from compiler_kernels.targets.cuda.families.text import indexable, kernel_text, launched
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel

THREADS: Final = 128


def integer(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The kernel of a ``conv_integer`` or ``matmul_integer`` with packed weights, and of what is fused behind it."""
    op, types = function.ops[0], function.types()
    if op.kind not in KINDS or any(not t.is_static for t in types.values()):
        return None
    if not types[op.operands[1]].layout.startswith(f"packed {INTEGER} ") or not indexable(function):
        return None
    body = Code()
    body.add(*decode(op.out.dims), "unsigned total = 0;")
    (_conv if op.kind == "conv_integer" else _matmul)(function, body)
    lines, _ = body_lines(function, skip_root=True)
    body.add(f"const int32_t {op.result} = (int32_t)total;", *lines, f"y[i] = {function.ops[-1].result};")
    count = op.out.count
    with kernel_text(function, name) as code:
        code.add(f"const int i = block * {THREADS} + (int)threadIdx.x;")
        code.add(*([f"if (i >= {count}) return;"] if count % THREADS else []), "cuvil_grid_wait();")
        code.add(*without_unused_coordinates(body.lines))
    return launched(function, name, code, -(-count // THREADS), THREADS, independent=True)


def _pairs(code: Code, channels: int, step: int) -> None:
    """Products of the channels from ``x`` on, ``step`` elements apart, with pairs of weights from ``w`` on."""
    with code.block(f"for (int pair = 0; pair < {channels // 2}; pair++)"):
        code.add(f"const int two = w[pair * {BLOCK}];")
        code.add(f"total += (unsigned)((int)(int16_t)two * (int)x[{linear([('pair', 2 * step)])}]);")
        code.add(f"total += (unsigned)((two >> 16) * (int)x[{linear([('pair', 2 * step)], step)}]);")
    if channels % 2:
        last = channels // 2
        code.add(f"total += (unsigned)((int)(int16_t)w[{last * BLOCK}] * (int)x[{2 * last * step}]);")


def _conv(function: Graph, code: Code) -> None:
    op, types = function.ops[0], function.types()
    x, w = types[op.operands[0]], types[op.operands[1]]
    rank, channels = len(x.dims) - 2, w.dims[1]
    steps, dilations, pads = op.ints("strides"), op.ints("dilations"), op.ints("pads")
    x_step, positions, pairs = strides(x.dims), prod(w.dims[2:]), -(-channels // 2)
    kind = c_type(x)
    code.add(
        f"const int *rows = (const int *){op.operands[1]} + i1 / {BLOCK} * {positions * pairs * BLOCK} + i1 % {BLOCK};"
    )
    for a in range(rank):
        code.add(f"for (int k{a} = 0; k{a} < {w.dims[a + 2]}; k{a}++) {{")
        code.depth += 1
        code.add(f"const int x{a} = {linear([(f'i{a + 2}', steps[a]), (f'k{a}', dilations[a])], -pads[a])};")
        code.add(f"if (x{a} < 0 || x{a} >= {x.dims[a + 2]}) continue;")
    place = linear([("i0", x_step[0]), *((f"x{a}", x_step[a + 2]) for a in range(rank))])
    position = linear([(f"k{a}", s) for a, s in enumerate(strides(w.dims[2:]))])
    code.add(f"const {kind} *x = {op.operands[0]} + {place};")
    code.add(f"const int *w = rows + ({position}) * {pairs * BLOCK};")
    _pairs(code, channels, x_step[1])
    for _ in range(rank):
        code.depth -= 1
        code.add("}")


def _matmul(function: Graph, code: Code) -> None:
    op, types = function.ops[0], function.types()
    x, (depth, columns) = types[op.operands[0]], types[op.operands[1]].dims
    block = f"column / {BLOCK} * {-(-depth // 2) * BLOCK} + column % {BLOCK}"
    code.add(
        f"const int row = i / {columns}, column = i % {columns};",
        f"const {c_type(x)} *x = {op.operands[0]} + row * {depth};",
        f"const int *w = (const int *){op.operands[1]} + {block};",
    )
    _pairs(code, depth, 1)
