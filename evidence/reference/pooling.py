"""Pooling and softmax: what sums or selects windows and rows without weights."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode
from evidence.reference.order import Select, first_max, select_positions
from evidence.reference.reductions import front


def windows(node: RefNode, x: Array, absent: float) -> Array:
    """``[positions, N, C, out...]``: the window of every output in row-major order; absent taps read ``absent``."""
    kernel, strides, dilations, pads = _window_attrs(node, x.ndim - 2)
    rank, out = len(kernel), node.shape[2:]
    width = [(0, 0), (0, 0)]
    for i in range(rank):
        needed = (out[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1  # ceil_mode may overhang the end pad
        width.append((pads[i], max(0, needed - x.shape[2 + i] - pads[i])))
    padded = np.pad(x, width, constant_values=x.dtype.type(absent))
    taps = []
    for position in itertools.product(*(range(k) for k in kernel)):
        place: list[Any] = [...]
        for k, d, n, s in zip(position, dilations, out, strides, strict=True):
            place.append(slice(k * d, k * d + (n - 1) * s + 1, s))
        taps.append(padded[tuple(place)])
    return np.stack(taps)


def _window_attrs(node: RefNode, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    attrs = node.attrs
    return (
        list(attrs["kernel"]),
        list(attrs.get("strides") or [1] * rank),
        list(attrs.get("dilations") or [1] * rank),
        list(attrs.get("pads") or [0] * (2 * rank)),
    )


def max_pool(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Scan of the window in row-major order from -inf; padding is absent."""
    return select_positions(windows(node, x, -math.inf), first_max, -math.inf)


def max_pool_integers(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """The same of integers: an absent position is the lowest value."""
    return np.asarray(windows(node, x, np.iinfo(x.dtype).min).max(axis=0))


def global_max_pool_integers(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    return np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True))


def average_pool(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Sum of the window in row-major order divided by ONNX's count for ``count_include_pad``."""
    kernel, strides, dilations, pads = _window_attrs(node, x.ndim - 2)
    rank = len(kernel)
    include = bool(node.attrs.get("count_include_pad", 0))
    divisor = np.ones((), dtype=np.int64)
    for i in range(rank):
        low, high = (-pads[i], x.shape[2 + i] + pads[rank + i]) if include else (0, x.shape[2 + i])
        reads = np.arange(node.shape[2 + i])[:, None] * strides[i] - pads[i] + np.arange(kernel[i]) * dilations[i]
        divisor = np.multiply.outer(divisor, ((reads >= low) & (reads < high)).sum(axis=1))
    with np.errstate(all="ignore"):
        return np.asarray(ar.sum_positions(windows(node, x, 0.0)) / divisor.astype(x.dtype))


def global_average_pool(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Mean over all spatial positions, in row-major order."""
    return _mean(ar.sum_positions(front(x, tuple(range(2, x.ndim)))), math.prod(x.shape[2:])).reshape(node.shape)


def global_max_pool(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Maximum over all spatial positions, in row-major order."""
    return select_positions(front(x, tuple(range(2, x.ndim))), first_max, -math.inf).reshape(node.shape)


def _mean(total: Array, count: int) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(total / total.dtype.type(count))


_MAX: tuple[Select, float] = (first_max, -math.inf)


def _shifted(ar: Arithmetic, node: RefNode, x: Array) -> tuple[Array, Array, Array]:
    """x - max, exp of it, and the sum of that, all with the softmax axis in place (the sum with extent 1)."""
    axis = int(node.attrs["axis"]) % x.ndim
    front = np.moveaxis(x, axis, 0)
    with np.errstate(all="ignore"):
        shifted = front - select_positions(front, *_MAX)
    e = ar.exp(shifted)
    total = ar.sum_lanes(np.moveaxis(e, 0, -1)) if axis == x.ndim - 1 else ar.sum_positions(e)
    return tuple(np.moveaxis(v, 0, axis) for v in (shifted, e, total[None]))  # type: ignore[return-value]


def softmax(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """m = max; e = exp(x - m); e / sum(e)."""
    _, e, total = _shifted(ar, node, x)
    with np.errstate(all="ignore"):
        return np.asarray(e / total)


def log_softmax(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """(x - m) - log(sum(exp(x - m)))."""
    shifted, _, total = _shifted(ar, node, x)
    with np.errstate(all="ignore"):
        return np.asarray(shifted - ar.log(total))
