"""Quantised operators (docs/arithmetic.md): exact sums in int32, one rounding per step of a requantisation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode, storage
from evidence.reference.typed import to_integer


def _wrapped(total: Array) -> Array:
    """int64 sums cut to 32 bits."""
    return (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def quantize(ar: Arithmetic, node: RefNode, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """saturate(round_even(x / scale) + zero); NaN becomes 0."""
    target = storage(str(node.attrs["to"]))
    steps = np.rint(x / scale)
    return to_integer(steps if zero is None else steps + zero.astype(x.dtype), target)


def dequantize(ar: Arithmetic, node: RefNode, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """(x - zero) * scale, both integers converted first, each step rounded."""
    wide = x.astype(ar.dtype)
    if zero is not None:
        wide = wide - zero.astype(ar.dtype)
    return np.asarray(wide * scale)


def conv_integer(ar: Arithmetic, node: RefNode, x: Array, w: Array) -> Array:
    """Convolution of ``x [N, C, ...]`` with ``w [M, C/group, ...]`` in int32; padding reads 0."""
    kernel, rank, group = w.shape[2:], w.ndim - 2, int(node.attrs["group"])
    strides, dilations, pads = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"]
    padded = np.pad(x.astype(np.int64), [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
    columns, out = w.shape[0] // group, node.shape[2:]
    total = np.zeros(node.shape, dtype=np.int64)
    for place in itertools.product(*(range(k) for k in kernel)):
        window = tuple(
            slice(k * d, k * d + (o - 1) * s + 1, s) for k, d, o, s in zip(place, dilations, out, strides, strict=True)
        )
        taps = padded[(slice(None), slice(None), *window)]
        every: tuple[Any, ...] = (slice(None), slice(None), *place)
        weights = w[every].astype(np.int64)
        for g in range(group):
            channels = slice(g * w.shape[1], (g + 1) * w.shape[1])
            ours = slice(g * columns, (g + 1) * columns)
            total[:, ours] += np.einsum("nc...,mc->nm...", taps[:, channels], weights[ours])
    return _wrapped(total)


def matmul_integer(ar: Arithmetic, node: RefNode, a: Array, b: Array) -> Array:
    return _wrapped(np.matmul(a.astype(np.int64), b.astype(np.int64)))


QUANTIZED: dict[str, Callable[..., Array]] = {
    "quantize": quantize,
    "dequantize": dequantize,
    "conv_integer": conv_integer,
    "matmul_integer": matmul_integer,
}
