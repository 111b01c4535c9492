"""Operators that only move data: every output element is a copy of one input element or a constant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.errors import ReferenceError
from evidence.reference.graph import RefNode


def concat(ar: Arithmetic, node: RefNode, *parts: Array) -> Array:
    """Operands one after another along ``axis``."""
    return np.concatenate(parts, axis=int(node.attrs["axis"]))


def transpose(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """``perm`` names the source axis of each result axis."""
    return np.ascontiguousarray(x.transpose(node.attrs["perm"]))


def reshape(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Same elements in row-major order, the result type's shape."""
    return x.reshape(node.shape)


def expand(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Broadcast to the result type's shape."""
    return np.ascontiguousarray(np.broadcast_to(x, node.shape))


def slice_(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Element i of each axis is element ``start + i * step``."""
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    for axis, count in enumerate(node.shape):
        x = x.take(starts[axis] + steps[axis] * np.arange(count), axis=axis)
    return x


def pad(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """``pads`` begins then ends; negative amounts remove elements before the mode applies to what is left."""
    return padded(x, node.attrs["pads"], node.attrs.get("mode", "constant"), np.asarray(node.attrs.get("value", 0.0)))


def padded(x: Array, pads: Sequence[int], mode: str, fill: Array) -> Array:
    """``x`` with ``pads`` elements added (removed where negative) at the begins, then the ends, of all axes."""
    rank = x.ndim
    for axis in range(rank):
        begin, end = pads[axis], pads[rank + axis]
        x = x.take(range(max(0, -begin), x.shape[axis] - max(0, -end)), axis=axis)
        begin, end, size = max(0, begin), max(0, end), x.shape[axis]
        if begin == end == 0:
            continue
        index = np.arange(-begin, size + end)
        if mode == "constant":
            value = fill.astype(x.dtype)
            shape = [1] * rank
            shape[axis] = -1
            inside = ((index >= 0) & (index < size)).reshape(shape)
            source = x.take(np.clip(index, 0, size - 1), axis=axis) if size else np.zeros(1, dtype=x.dtype)
            x = np.where(inside, source, value)
        else:
            x = x.take(_source(mode, index, size), axis=axis)
    return x


def _source(mode: str, index: Array, size: int) -> Array:
    if mode == "edge":
        return np.clip(index, 0, size - 1)
    if mode == "wrap":
        return index % size
    if mode == "reflect":
        period = max(1, 2 * (size - 1))
        folded = index % period
        return np.minimum(folded, period - folded) if size > 1 else folded * 0
    raise ReferenceError(f"pad: mode {mode!r} is not one of constant, reflect, edge, wrap")
