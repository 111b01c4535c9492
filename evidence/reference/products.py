"""Operators that are sums of products: conv, conv_transpose, gemm, matmul."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode
from evidence.reference.winograd import winograd

_BLOCK_BYTES = 16 << 20
Index = tuple[Any, ...]


def add_bias(total: Array, bias: Array | None) -> Array:
    """``total + bias``; an absent or -0 bias is +0."""
    zero = total.dtype.type(0)
    with np.errstate(all="ignore"):
        return np.asarray(total + (zero if bias is None else bias + zero))


def _channelwise(bias: Array | None, spatial: int) -> Array | None:
    return None if bias is None else bias.reshape(1, -1, *(1,) * spatial)


def conv(ar: Arithmetic, node: RefNode, x: Array, w: Array, b: Array | None = None) -> Array:
    """Convolution of ``x [N, C, ...]`` with ``w [M, C/group, ...]``; padding reads +0.

    In binary64 every named form is the same convolution, so the yardstick ignores the name.
    """
    form = str(node.attrs.get("arithmetic", "direct"))
    if form != "direct" and ar.dtype is np.float32:
        return add_bias(winograd(ar, node, form, x, w), _channelwise(b, w.ndim - 2))
    kernel = w.shape[2:]
    rank = len(kernel)
    group = int(node.attrs.get("group", 1))
    strides = node.attrs.get("strides") or [1] * rank
    dilations = node.attrs.get("dilations") or [1] * rank
    pads = node.attrs.get("pads") or [0] * (2 * rank)
    out = node.shape[2:]
    batch, channels = x.shape[:2]
    per_group, columns = channels // group, w.shape[0] // group
    positions = math.prod(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
    starts = [[k * d for k in range(n)] for n, d in zip(kernel, dilations, strict=True)]
    weights = w.reshape(group, columns, per_group * positions).transpose(0, 2, 1)
    result = np.empty((batch, group * columns, *out), dtype=x.dtype)
    row_bytes = x.dtype.itemsize * channels * positions * math.prod(out[1:])
    rows = max(1, _BLOCK_BYTES // max(1, row_bytes))
    for n, first in itertools.product(range(batch), range(0, out[0], rows)):
        size = (min(rows, out[0] - first), *out[1:])
        taps = np.empty((channels, positions, *size), dtype=x.dtype)
        for p, offsets in enumerate(itertools.product(*starts)):
            place: Index = (n, slice(None), *_window(offsets, (first, *(0,) * (rank - 1)), size, strides))
            taps[:, p] = padded[place]
        columns_of_x = taps.reshape(group, per_group * positions, math.prod(size))
        block = ar.product_sum(columns_of_x, weights, per_group, positions)
        result[n, :, first : first + size[0]] = block.reshape(group * columns, *size)
    return add_bias(result, _channelwise(b, rank))


def _window(
    offsets: Sequence[int], first: Sequence[int], size: Sequence[int], strides: Sequence[int]
) -> tuple[slice, ...]:
    return tuple(
        slice(o + f * s, o + (f + n - 1) * s + 1, s) for o, f, n, s in zip(offsets, first, size, strides, strict=True)
    )


def conv_transpose(ar: Arithmetic, node: RefNode, x: Array, w: Array, b: Array | None = None) -> Array:
    """Transposed convolution with ``w [C, M/group, ...]``: one sum of products per output phase (o modulo stride)."""
    kernel = w.shape[2:]
    rank = len(kernel)
    group = int(node.attrs.get("group", 1))
    strides = node.attrs.get("strides") or [1] * rank
    dilations = node.attrs.get("dilations") or [1] * rank
    pads = node.attrs.get("pads") or [0] * (2 * rank)
    out = node.shape[2:]
    batch, channels = x.shape[:2]
    per_group, columns = channels // group, w.shape[1]
    weights = w.reshape(group, per_group, columns, *kernel)
    result = np.zeros((batch, group * columns, *out), dtype=x.dtype)
    for phase in itertools.product(*(range(min(s, n)) for s, n in zip(strides, out, strict=True))):
        axes = [
            _phase_taps(phase[i], out[i], strides[i], dilations[i], pads[i], kernel[i], x.shape[2 + i])
            for i in range(rank)
        ]
        counts = tuple(axis.count for axis in axes)
        tap_lists = list(itertools.product(*(axis.taps for axis in axes)))
        padded = np.pad(x, [(0, 0), (0, 0), *((axis.before, axis.after) for axis in axes)])
        taps = np.empty((channels, len(tap_lists), batch, *counts), dtype=x.dtype)
        chosen = np.empty((group, per_group, len(tap_lists), columns), dtype=x.dtype)
        for p, tap in enumerate(tap_lists):
            place = tuple(slice(base, base + n) for (_, base), n in zip(tap, counts, strict=True))
            taps[:, p] = padded[(slice(None), slice(None), *place)].swapaxes(0, 1)
            used: Index = (..., *(k for k, _ in tap))
            chosen[:, :, p] = weights[used]
        block = ar.product_sum(
            taps.reshape(group, per_group * len(tap_lists), math.prod((batch, *counts))),
            chosen.reshape(group, per_group * len(tap_lists), columns),
            per_group,
            len(tap_lists),
        )
        target = tuple(slice(f, None, s) for f, s in zip(phase, strides, strict=True))
        result[(slice(None), slice(None), *target)] = block.reshape(group * columns, batch, *counts).swapaxes(0, 1)
    return add_bias(result, _channelwise(b, rank))


class _AxisTaps:
    """One axis of one phase: the kernel taps that reach it and where each starts reading in the zero-padded input."""

    def __init__(self, count: int, bases: list[tuple[int, int]], size: int) -> None:
        self.count = count
        self.before = max([0, *(-base for _, base in bases)])
        self.after = max([0, *(base + count - size for _, base in bases)])
        self.taps = [(k, base + self.before) for k, base in bases]


def _phase_taps(first: int, out: int, stride: int, dilation: int, pad: int, kernel: int, size: int) -> _AxisTaps:
    reach = [(k, first + pad - k * dilation) for k in range(kernel)]
    return _AxisTaps(-(-(out - first) // stride), [(k, r // stride) for k, r in reach if r % stride == 0], size)


def gemm(ar: Arithmetic, node: RefNode, a: Array, b: Array, c: Array | None = None) -> Array:
    """``alpha * sum + beta * C``; the scalings are separate roundings, omitted when 1 (alpha, beta) or 0 (beta)."""
    x = a if node.attrs.get("trans_a", 0) else a.T
    w = b.T if node.attrs.get("trans_b", 0) else b
    alpha, beta = (x.dtype.type(np.float32(node.attrs.get(key, 1.0))) for key in ("alpha", "beta"))
    total = ar.product_sum(x[None], w[None], x.shape[0], 1)[0].T
    with np.errstate(all="ignore"):
        if alpha != 1:
            total = alpha * total
        bias = None if c is None or beta == 0 else c if beta == 1 else beta * c
    return add_bias(total, bias)


def matmul(ar: Arithmetic, node: RefNode, a: Array, b: Array) -> Array:
    """NumPy's matmul: 1-D operands are promoted, leading axes broadcast."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    rows, depth, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    x = np.broadcast_to(left, (*batch, rows, depth)).reshape(math.prod(batch), rows, depth).transpose(0, 2, 1)
    w = np.broadcast_to(right, (*batch, depth, columns)).reshape(math.prod(batch), depth, columns)
    result = np.empty((math.prod(batch), rows, columns), dtype=x.dtype)
    for i in range(result.shape[0]):
        result[i] = ar.product_sum(x[i : i + 1], w[i : i + 1], depth, 1)[0].T
    return add_bias(result, None).reshape(node.shape)
