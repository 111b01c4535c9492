"""Depthwise convolution on blocked values (runtime/cuda/cuvil_depthwise.h)."""

from __future__ import annotations

from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import root_of
from compiler_kernels.targets.cuda.families.blocked import (
    Ending,
    block_kernel,
    comments,
    constants,
    indented,
)
from compiler_kernels.targets.cuda.families.conv import windows_of
from compiler_kernels.targets.cuda.families.conv_tiles import pieces
from compiler_kernels.targets.cuda.families.text import indexable
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import full_access

THREADS: Final = 128
MOST_OUTPUTS: Final = 4


def depthwise(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The kernel of a convolution with one channel per group; ``None`` for any other statement."""
    op, types = root_of(function), function.types()
    if op.kind != "conv" or not types[op.operands[1]].layout.startswith("packed dw16 "):
        return None
    if not indexable(function):
        return None
    windows = windows_of(op, types[op.operands[0]], types[op.operands[1]])
    if not windows:
        return None
    window, x = windows[0], full_access("p0", types[op.operands[0]])
    batch, blocks = op.out.dims[0], pieces(op.out.dims[1], BLOCK)
    depth, height, width = window.extent
    lines = batch * blocks * depth * height * 4
    outputs = MOST_OUTPUTS
    while outputs > 1 and lines * pieces(width, outputs) < gpu.multiprocessors * 4 * THREADS:
        outputs //= 2
    grid = pieces(lines * pieces(width, outputs), THREADS)
    values: dict[str, int | bool] = {
        "THREADS": THREADS, "TW": outputs, "N": batch, "BLOCKS": blocks, "OD": depth, "OH": height, "OW": width,
        **{f"K{a}": v for a, v in zip("DHW", window.kernel, strict=True)},
        **{f"S{a}": v for a, v in zip("DHW", window.step, strict=True)},
        **{f"D{a}": v for a, v in zip("DHW", window.dilation, strict=True)},
        "XN": x.batch, "XB": x.block, "XD": x.spatial[0], "XR": x.spatial[1], "ORIGIN": x.origin + window.origins[0],
        "COLUMNS_IN": (width - 1) * window.step[2] + (window.kernel[2] - 1) * window.dilation[2] + 1,
    }  # fmt: skip
    ending = Ending(function, op.operands[2] if len(op.operands) > 2 else "")
    head = [
        *comments(function),
        *ending.chain_function(name),
        f"struct {name}_p {{",
        f"    {constants(values)}",
        *indented(ending.finish_function(name)),
        *indented(ending.ready_function(grid, THREADS)),
        "};",
    ]
    body = [f"cuvil_depthwise<{name}_p>::run({', '.join(['block', 'p0', 'p1', 'y', *ending.operands])});"]
    return block_kernel(function, name, head, body, grid, THREADS, 1, gpu, independent=True)
