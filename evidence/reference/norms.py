"""Normalisation operators: two passes, the variance from the rounded differences."""

from __future__ import annotations

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode


def _normalised(ar: Arithmetic, x: Array, epsilon: float, lanes: bool) -> Array:
    """``d * r`` for rows along the last axis: d = x - mean, r = 1 / sqrt(var + epsilon)."""
    count = x.dtype.type(x.shape[-1])

    def total(values: Array, squares: bool) -> Array:
        rows = ar.sum_lanes(values, squares) if lanes else ar.sum_positions(np.moveaxis(values, -1, 0), squares)
        return np.asarray(rows)[..., None]

    with np.errstate(all="ignore"):
        d = x - total(x, False) / count
        r = 1 / np.sqrt(total(d, True) / count + x.dtype.type(np.float32(epsilon)))
        return np.asarray(d * r)


def layer_normalization(ar: Arithmetic, node: RefNode, x: Array, scale: Array, bias: Array | None = None) -> Array:
    """Rows are the axes from ``axis`` on, flattened row-major; 16 lanes; ``y = fma(d * r, scale, bias)``."""
    axis = int(node.attrs["axis"]) % x.ndim
    rows = x.reshape(*x.shape[:axis], -1) if x.size else x.reshape(*x.shape[:axis], 0)
    y = _normalised(ar, rows, node.attrs["epsilon"], lanes=True).reshape(x.shape)
    return ar.fma(y, scale, x.dtype.type(0) if bias is None else bias)


def rms_normalization(ar: Arithmetic, node: RefNode, x: Array, scale: Array) -> Array:
    """Layer normalisation about 0: ``r = 1 / sqrt(sum(x * x) / n + epsilon)``; ``y = fma(x * r, scale, +0)``."""
    axis = int(node.attrs["axis"]) % x.ndim
    rows = x.reshape(*x.shape[:axis], -1)
    count, epsilon = x.dtype.type(rows.shape[-1]), x.dtype.type(np.float32(node.attrs["epsilon"]))
    with np.errstate(all="ignore"):
        r = 1 / np.sqrt(np.asarray(ar.sum_lanes(rows, True))[..., None] / count + epsilon)
        return ar.fma(np.asarray(rows * r).reshape(x.shape), scale, x.dtype.type(0))


def group_normalization(ar: Arithmetic, node: RefNode, x: Array, scale: Array, bias: Array) -> Array:
    """One row per sample and group: channel, then position; summed by positions; ``scale`` and ``bias`` per channel."""
    groups = int(node.attrs.get("num_groups", x.shape[1]))
    y = _normalised(ar, x.reshape(x.shape[0], groups, -1), node.attrs["epsilon"], lanes=False).reshape(x.shape)
    per_channel = (1, -1, *(1,) * (x.ndim - 2))
    return ar.fma(y, scale.reshape(per_channel), bias.reshape(per_channel))


def instance_normalization(ar: Arithmetic, node: RefNode, x: Array, scale: Array, bias: Array) -> Array:
    """Group normalisation with one channel per group."""
    return group_normalization(ar, node, x, scale, bias)


def batch_normalization(
    ar: Arithmetic, node: RefNode, x: Array, scale: Array, bias: Array, mean: Array, var: Array
) -> Array:
    """``fma(x, a, b)`` with a and b computed in binary64 and rounded once each."""
    wide = [v.astype(np.float64) for v in (scale, bias, mean, var)]
    with np.errstate(all="ignore"):
        a = wide[0] / np.sqrt(wide[3] + np.float64(np.float32(node.attrs["epsilon"])))
        b = wide[1] - wide[2] * a
        per_channel = (1, -1, *(1,) * (x.ndim - 2))
        return ar.fma(x, a.astype(x.dtype).reshape(per_channel), b.astype(x.dtype).reshape(per_channel))
