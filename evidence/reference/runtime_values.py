"""Operations whose result shape depends on a run-time value: one that does not give the stated shape is a refusal."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.errors import Refusal
from evidence.reference.graph import RefNode
from evidence.reference.movement import padded


def checked(ar: Arithmetic, node: RefNode, y: Array, s: Array) -> Array:
    """y, where every element of s is among its alternatives; one element at most may be the wildcard instead."""
    allowed = np.asarray(node.attrs["expected"], np.float64 if s.dtype.kind == "f" else np.int64).reshape(s.size, -1)
    wrong = ~(s.reshape(-1, 1) == allowed).any(axis=1)
    if "wildcard" in node.attrs:
        open_ = wrong & (s.reshape(-1) == node.attrs["wildcard"])
        if open_.sum() <= 1:
            wrong &= ~open_
    if wrong.any():
        raise Refusal(str(node.attrs["message"]))
    return y


def by_axes(ar: Arithmetic, node: RefNode, s: Array, *values: Array) -> Array:
    """The value that belongs to the set of axes in s; negative axes count from the end."""
    rank, axes = int(node.attrs["rank"]), [int(a) for a in s.reshape(-1)]
    named = {a + rank if a < 0 else a for a in axes}
    for mask, pick in zip(node.attrs["masks"], node.attrs["picks"], strict=True):
        if named == {a for a in range(rank) if mask >> a & 1}:
            return values[int(pick)]
    raise Refusal(str(node.attrs["message"]))


def _axes(node: RefNode, axes: Array | None, count: int, rank: int) -> list[int]:
    """Named axes, by default the first ``count``; one outside the rank or named twice is a refusal."""
    named = list(range(count)) if axes is None else [int(a) + rank * (a < 0) for a in axes.reshape(-1)]
    if len(set(named)) != len(named) or any(not 0 <= a < rank for a in named):
        raise Refusal(str(node.attrs["message"]))
    return named


def _stated(node: RefNode, y: Array) -> Array:
    if y.shape != node.shape:
        raise Refusal(str(node.attrs["message"]))
    return y


def slice_at(
    ar: Arithmetic, node: RefNode, x: Array, starts: Array, ends: Array, axes: Array | None = None,
    steps: Array | None = None,
) -> Array:  # fmt: skip
    """ONNX Slice: bounds clamp to [0, d]; for a negative step begins to [0, d - 1], ends to [-1, d - 1]."""
    stride = [1] * starts.size if steps is None else [int(s) for s in steps.reshape(-1)]
    if 0 in stride:
        raise Refusal(str(node.attrs["message"]))
    named = _axes(node, axes, starts.size, x.ndim)
    for axis, first, last, step in zip(named, starts.reshape(-1), ends.reshape(-1), stride, strict=True):
        size = x.shape[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        begin, end = (min(max(int(v) + size * (v < 0), low), high) for v in (first, last))
        x = x.take(range(max(begin, 0), end, step) if size else [], axis=axis)
    return _stated(node, x)


def pad_by(ar: Arithmetic, node: RefNode, x: Array, pads: Array, value: Array, axes: Array | None = None) -> Array:
    """``pad`` with run-time amounts, fill value and axes."""
    count = pads.size // 2
    amounts = [0] * (2 * x.ndim)
    for k, axis in enumerate(_axes(node, axes, count, x.ndim)):
        amounts[axis], amounts[x.ndim + axis] = int(pads.reshape(-1)[k]), int(pads.reshape(-1)[count + k])
    sizes = [d + b + e for d, b, e in zip(x.shape, amounts[: x.ndim], amounts[x.ndim :], strict=True)]
    mode = str(node.attrs["mode"])
    left = [d + min(0, b) + min(0, e) for d, b, e in zip(x.shape, amounts[: x.ndim], amounts[x.ndim :], strict=True)]
    few = any(n < (0 if mode == "constant" else 1) for n, out in zip(left, node.shape, strict=True) if out)
    if tuple(sizes) != node.shape or few:
        raise Refusal(str(node.attrs["message"]))
    return _stated(node, padded(x, amounts, mode, value.reshape(())))


def range_(ar: Arithmetic, node: RefNode, start: Array, limit: Array, delta: Array) -> Array:
    """start + i * delta for i below ceil((limit - start) / delta): in binary64, or exactly for integers."""
    if start.dtype.kind == "f":
        count = float(np.ceil((limit.astype(np.float64) - start.astype(np.float64)) / delta.astype(np.float64)))
    else:
        count = -((int(start) - int(limit)) // int(delta)) if delta else math.nan
    if max(count, 0) != node.shape[0]:
        raise Refusal(str(node.attrs["message"]))
    return np.asarray(start + np.arange(node.shape[0]).astype(start.dtype) * delta)


def col2im(ar: Arithmetic, node: RefNode, x: Array, block: Array) -> Array:
    """Every image element is the sum, by positions of the block, of the column entries that fall on it."""
    image, n = node.shape[2:], len(node.shape) - 2
    strides, dilations, pads = (list(node.attrs[k]) for k in ("strides", "dilations", "pads"))
    sizes = [int(b) for b in block]
    spans = [image[a] + pads[a] + pads[n + a] - dilations[a] * (sizes[a] - 1) - 1 for a in range(n)]
    counts = [max(0, s // strides[a] + 1) if s >= 0 else 0 for a, s in enumerate(spans)]
    taps = x.shape[1] // node.shape[1]
    if min(sizes) < 1 or math.prod(sizes) != taps or math.prod(counts) != x.shape[2]:
        raise Refusal(str(node.attrs["message"]))
    columns = x.reshape(*node.shape[:2], taps, *counts)
    padded_sizes = [image[a] + pads[a] + pads[n + a] for a in range(n)]
    terms = np.zeros((taps, *node.shape[:2], *padded_sizes), x.dtype)
    for k, at in enumerate(itertools.product(*(range(s) for s in sizes))):
        first = [at[a] * dilations[a] for a in range(n)]
        place: list[Any] = [slice(first[a], first[a] + (counts[a] - 1) * strides[a] + 1, strides[a]) for a in range(n)]
        terms[k][(slice(None), slice(None), *place)] = columns[:, :, k]
    crop: list[Any] = [slice(None)] * 3
    inner = terms[(*crop, *(slice(pads[a], pads[a] + image[a]) for a in range(n)))]
    with np.errstate(all="ignore"):
        return ar.sum_positions(inner) if x.dtype.kind == "f" else np.asarray(inner.sum(axis=0, dtype=x.dtype))


RUNTIME: dict[str, Callable[..., Array]] = {
    "checked": checked,
    "by_axes": by_axes,
    "slice_at": slice_at,
    "pad_by": pad_by,
    "range": range_,
    "col2im": col2im,
}
"""Operators of any element type."""
