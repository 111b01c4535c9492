"""The summation orders of Canonical Arithmetic 1 (docs/arithmetic.md, sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.rounding import fmaf
from evidence.reference.rounding64 import fma64

Array = npt.NDArray[Any]

RADIX = 8
LANES = 16
SUM_LEAF = 64
BLOCK_CHANNELS = 8
FEW_CHANNELS = 16
Tap = tuple[int, int]


@lru_cache(maxsize=256)
def product_leaves(channels: int, positions: int, leaf: int = SUM_LEAF) -> tuple[tuple[Tap, ...], ...]:
    """Leaves of a sum of products over ``channels`` x ``positions``; each tap is ``(channel, position)``.

    ``channels`` counts the input channels of the group (K for a matrix product), ``positions`` the kernel positions.
    ``leaf`` is the 64 of section 3.2, or the number in the name of a Winograd form.
    """
    few = leaf == SUM_LEAF and channels < FEW_CHANNELS
    cb = 1 if few or channels < BLOCK_CHANNELS else BLOCK_CHANNELS
    blocks = [range(c, min(c + cb, channels)) for c in range(0, channels, cb)]
    if positions == 0:
        return ()
    limit = 72 // cb
    if positions <= limit:
        per_leaf = max(1, (16 if few else leaf) // (cb * positions))
        return tuple(
            tuple((c, p) for block in blocks[i : i + per_leaf] for p in range(positions) for c in block)
            for i in range(0, len(blocks), per_leaf)
        )
    return tuple(
        tuple((c, p) for p in range(start, min(start + limit, positions)) for c in block)
        for block in blocks
        for start in range(0, positions, limit)
    )


@lru_cache(maxsize=256)
def gather_table(channels: int, positions: int, leaf: int = SUM_LEAF) -> npt.NDArray[np.int64]:
    """``[leaves, longest leaf]`` indices into the row-major (channel, position) axis; absent taps point one past it.

    An absent tap reads +0 for both factors, which the definition allows (only the sign of a zero could differ, and the
    bias that is added last removes it).
    """
    leaves = product_leaves(channels, positions, leaf)
    longest = max((len(taps) for taps in leaves), default=0)
    table = np.full((len(leaves), longest), channels * positions, dtype=np.int64)
    for row, taps in zip(table, leaves, strict=True):
        row[: len(taps)] = [c * positions + p for c, p in taps]
    return table


def tree(values: Array) -> Array:
    """Radix-8 tree over axis 0: ``[n, ...]`` to ``[...]``; nodes add their children left to right; nothing gives +0."""
    if values.shape[0] == 0:
        return np.zeros(values.shape[1:], dtype=values.dtype)
    with np.errstate(all="ignore"):
        while values.shape[0] > 1:
            node = values[::RADIX].copy()
            for child in range(1, RADIX):
                others = values[child::RADIX]
                node[: others.shape[0]] += others
            values = node
    root: Array = values[0]
    return root


def sum_positions(values: Array, squares: bool = False) -> Array:
    """Sum over axis 0 in leaves of 64 and the tree; with ``squares`` each step is ``acc = fma(v, v, acc)``. Of binary32
    or binary64 values, in their type."""
    count = values.shape[0]
    if count == 0:
        return np.zeros(values.shape[1:], dtype=values.dtype)
    fma = fma64 if values.dtype == np.float64 else fmaf
    leaves = -(-count // SUM_LEAF)
    leaf = min(count, SUM_LEAF)
    padded = np.zeros((leaves * leaf, *values.shape[1:]), dtype=values.dtype)
    padded[:count] = values
    steps = padded.reshape(leaves, leaf, *values.shape[1:])
    acc = np.zeros((leaves, *values.shape[1:]), dtype=values.dtype)
    with np.errstate(all="ignore"):
        for i in range(leaf):
            acc = fma(steps[:, i], steps[:, i], acc) if squares else acc + steps[:, i]
    return tree(acc)


def sum_lanes(values: Array, squares: bool = False) -> Array:
    """Sum over the last axis in 16 virtual lanes, each by :func:`sum_positions`, then lanes 8, 4, 2, 1."""
    lanes = sum_positions(_in_lanes(values, values.dtype.type(0)), squares)
    return _fold_lanes(lanes, np.add)


def _in_lanes(values: Array, absent: Any) -> Array:
    """``[..., n]`` to ``[ceil(n/16), ..., 16]``."""
    count = values.shape[-1]
    groups = -(-count // LANES)
    padded = np.full((*values.shape[:-1], groups * LANES), absent, dtype=values.dtype)
    padded[..., :count] = values
    return np.moveaxis(padded.reshape(*values.shape[:-1], groups, LANES), -2, 0)


def _fold_lanes(lanes: Array, combine: Callable[[Array, Array], Array]) -> Array:
    with np.errstate(all="ignore"):
        width = LANES
        while width > 1:
            width //= 2
            lanes = combine(lanes[..., :width], lanes[..., width : 2 * width])
    return lanes[..., 0]


def first_max(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """max(a, b): NaN if either is, ``a`` where they compare equal."""
    return np.where((b > a) | (b != b), b, a)


def first_min(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """min(a, b): NaN if either is, ``a`` where they compare equal."""
    return np.where((b < a) | (b != b), b, a)


Select = Callable[[npt.NDArray[np.floating], npt.NDArray[np.floating]], npt.NDArray[np.floating]]


def select_positions(values: npt.NDArray[np.floating], select: Select, absent: float) -> npt.NDArray[np.floating]:
    """Scan of axis 0 with :func:`first_max` or :func:`first_min`, starting at ``absent``.

    Neighbours are combined pairwise: keeping the first of equals is associative, so the result is that of the scan.
    """
    if values.shape[0] == 0:
        return np.full(values.shape[1:], absent, dtype=values.dtype)
    while values.shape[0] > 1:
        if values.shape[0] % 2:
            values = np.concatenate([values, np.full((1, *values.shape[1:]), absent, dtype=values.dtype)])
        values = select(values[0::2], values[1::2])
    chosen: npt.NDArray[np.floating] = values[0]
    return chosen


def select_lanes(values: npt.NDArray[np.floating], select: Select, absent: float) -> npt.NDArray[np.floating]:
    """The same over the last axis in 16 lanes, then lanes 8, 4, 2, 1."""
    lanes = select_positions(_in_lanes(values, values.dtype.type(absent)), select, absent)
    return _fold_lanes(lanes, select)
