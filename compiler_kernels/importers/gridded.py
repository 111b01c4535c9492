"""Col2Im, AffineGrid, LpPool, GlobalLpPool."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.functions import expand
from compiler_kernels.importers.halves import widened
from compiler_kernels.importers.runtime_values import checked, declared_sizes, ints, runtime
from compiler_kernels.importers.windowed import window
from compiler_kernels.ir.dtypes import numpy_dtype
from compiler_kernels.ir.graph import Attr

Ints = tuple[int, ...]


def col2im(ctx: Context) -> None:
    """The block's shape is an operand of the kernel, which checks it: the image's shape does not determine it."""
    x, block = ctx.tensor(0), ctx.tensor(2)
    if x.rank != 3:
        ctx.at.invalid(f"needs an input of rank 3, not of shape {list(x.shape)}")
    image, check = ints(ctx, 1, "an image shape", lambda: declared_sizes(ctx, 1, "its image shape")[2:])
    n = len(image)
    if block.rank != 1 or block.shape != (n,) or not n:
        ctx.at.invalid(f"has a block shape of {list(block.shape)} values for an image of {n} axes")
    if runtime(ctx, 2) is not None:
        channels = declared_sizes(ctx, 2, "its block shape")[1]
    else:
        channels = x.shape[1] // max(1, prod(ctx.const_ints(2, "its block shape")))
    if channels < 1 or x.shape[1] % channels:
        ctx.at.invalid(f"cannot make {channels} channels of {x.shape[1]} rows")
    attrs: dict[str, Attr] = {
        "strides": ctx.at.ints("strides", (1,) * n, n),
        "dilations": ctx.at.ints("dilations", (1,) * n, n),
        "pads": ctx.at.ints("pads", (0,) * 2 * n, 2 * n),
        "message": (
            f"node {ctx.at.name!r} (Col2Im) has columns of shape {list(x.shape)} for an image of {list(image)}, which "
            "the block shape given does not fit; give such that fits, or compile the model for other shapes"
        ),
    }
    ctx.bind(check(ctx.emit("col2im", [x, block], attrs, shape=(x.shape[0], channels, *image))))


def affine_grid(ctx: Context) -> None:
    """The ONNX function body for a known size. The declared result gives all of it but the channels, which no value
    depends on."""
    size = runtime(ctx, 1)
    ctx.at.int_("align_corners", 0)  # the body reads it
    if size is None:
        expand(ctx)
        return
    out = declared_sizes(ctx, 1, "its size")
    name = ctx.at.inputs[1]
    ctx.tensors[name] = constant(np.array([out[0], 1, *out[1:-1]], numpy_dtype(size.type.dtype)), name)
    try:
        expand(ctx)
    finally:
        ctx.tensors[name] = size
    count = size.type.count
    used = ctx.emit("concat", [ctx.slice(size, [0], [1], [1]), ctx.slice(size, [2], [1], [count - 2])], {"axis": 0})
    ctx.bind(checked(ctx, ctx.tensors[ctx.at.outputs[0]], 1, "a size", [*out[:1], *out[1:-1]], steering=used))


def _power(ctx: Context, x: Tensor, p: int) -> Tensor:
    """|x|^p."""
    if p == 2:
        return ctx.emit("mul", [x, x])
    size = ctx.emit("abs", [x])
    return size if p == 1 else ctx.emit("pow", [size, ctx.scalar(p, x.type.dtype)])


def _root(ctx: Context, total: Tensor, p: int) -> Tensor:
    if p == 2:
        return ctx.emit("sqrt", [total])
    return total if p == 1 else ctx.emit("pow", [total, ctx.scalar(1 / p, total.type.dtype)])


def lp_pool(ctx: Context) -> None:
    """(sum of |x|^p)^(1/p) over the window: the sum is a convolution with ones, channel by channel."""
    x, kernel, p = ctx.tensor(0), ctx.at.ints("kernel_shape"), ctx.at.int_("p", 2)
    if p < 1:
        ctx.at.invalid(f"has p = {p}")
    found = window(ctx, x, kernel)
    if min(found.pads) < 0:
        ctx.at.unsupported("has negative pads")
    n, pads = len(kernel), list(found.pads)
    if ctx.at.flag("ceil_mode", 0) and not found.automatic:
        for a, size in enumerate(x.shape[2:]):
            extent = (kernel[a] - 1) * found.dilations[a] + 1
            span = size + pads[a] + pads[n + a] - extent
            steps = -(-span // found.strides[a])
            steps -= steps * found.strides[a] >= size + pads[a]  # a window that begins beyond the input is dropped
            pads[n + a] += max(0, steps * found.strides[a] - span)
    ones = constant(np.ones((x.shape[1], 1, *kernel), numpy_dtype(x.type.dtype)))
    attrs: dict[str, Attr] = {
        "group": x.shape[1],
        "strides": found.strides,
        "dilations": found.dilations,
        "pads": tuple(pads),
    }
    ctx.bind(_root(ctx, ctx.emit("conv", [_power(ctx, x, p), ones], attrs), p))


def global_lp_pool(ctx: Context) -> None:
    x, p = ctx.tensor(0), ctx.at.int_("p", 2)
    if p < 1 or x.rank < 3:
        ctx.at.invalid(f"has p = {p} and an input of shape {list(x.shape)}")
    axes: Attr = tuple(range(2, x.rank))
    total = ctx.emit("reduce_sum", [_power(ctx, x, p)], {"axes": axes, "keepdims": True})
    ctx.bind(_root(ctx, total, p))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Col2Im": widened(col2im),
    "AffineGrid": affine_grid,
    "LpPool": widened(lp_pool),
    "GlobalLpPool": widened(global_lp_pool),
}
