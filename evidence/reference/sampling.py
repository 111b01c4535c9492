"""Reading between elements at run-time coordinates: grid_sample, roi_align, max_roi_pool, deform_sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode
from evidence.reference.order import first_max

_FAR = 2.0**40


def _position(values: Array) -> Array:
    """Whole numbers as int64: NaN is 0, what is beyond 2^40 is that far away."""
    return np.trunc(np.clip(np.nan_to_num(values.astype(np.float64), nan=0.0), -_FAR, _FAR)).astype(np.int64)


def _pixel(index: Array, size: int, padding: str, corners: bool) -> Array:
    """The element that each position reads; -1 for none."""
    if padding == "zeros":
        return np.where((index >= 0) & (index < size), index, -1)
    if padding == "border":
        return np.clip(index, 0, size - 1)
    if corners and size == 1:
        return np.zeros_like(index)
    if corners:
        j = index % (2 * (size - 1))
        return np.asarray(np.minimum(j, 2 * (size - 1) - j))
    j = index % (2 * size)
    return np.asarray(np.minimum(j, 2 * size - 1 - j))


def _inside(c: Array, size: int, padding: str, corners: bool) -> Array:
    real = c.dtype.type
    low, high = (real(0), real(size - 1)) if corners else (real(-0.5), real(size) - real(0.5))
    outside = (c < low) | (c > high)
    if padding == "border":
        return np.where(outside, np.where(c < 0, real(0), real(size - 1)), c)
    if padding == "zeros":
        return c
    span = high - low
    if span == 0:
        return np.where(outside, low, c)
    over = np.where(c < low, low - c, c - high)
    turns = np.trunc(over / span)
    rest = over - turns * span
    odd = turns - 2 * np.floor(turns / 2) != 0
    return np.where(outside, np.where((c < low) != odd, low + rest, high - rest), c)


def _weights(ar: Arithmetic, t: Array, cubic: bool) -> list[Array]:
    real = t.dtype.type
    s = real(1) - t
    if not cubic:
        return [s, t]
    a = real(-0.75)

    def near(u: Array) -> Array:
        slope = ar.fma(np.full_like(u, 1.25), u, np.full_like(u, -2.25))
        return ar.fma(slope * u, u, np.ones_like(u))

    return [a * t * (s * s), near(t), near(s), a * s * (t * t)]


def _interpolate(
    ar: Arithmetic, planes: Array, places: Sequence[Array], cubic: bool, padding: str, corners: bool
) -> Array:
    """``planes [P, spatial...]`` at coordinates ``places[axis] [P, Q]``: innermost axis first, a chain over the
    neighbours from +0 along each."""
    axes = []
    for c, size in zip(places, planes.shape[1:], strict=True):
        low = np.floor(c)
        first = _position(low) - (1 if cubic else 0)
        weights = _weights(ar, c - low, cubic)
        axes.append([(_pixel(first + k, size, padding, corners), w) for k, w in enumerate(weights)])
    rows = np.arange(planes.shape[0])[:, None]

    def along(chosen: tuple[Array, ...]) -> Array:
        if len(chosen) == len(axes):
            absent = np.any([c < 0 for c in chosen], axis=0)
            found = planes[(rows, *(np.maximum(c, 0) for c in chosen))]
            return np.asarray(np.where(absent, planes.dtype.type(0), found))
        total = np.zeros(places[0].shape, planes.dtype)
        for index, weight in axes[len(chosen)]:
            total = ar.fma(weight, along((*chosen, index)), total)
        return total

    return along(())


def grid_sample(ar: Arithmetic, node: RefNode, x: Array, grid: Array) -> Array:
    """Values of x at normalised coordinates, the last axis of x first in the grid."""
    mode, padding = str(node.attrs["mode"]), str(node.attrs["padding"])
    corners, n = bool(node.attrs["align_corners"]), x.ndim - 2
    batch, channels = x.shape[:2]
    real = grid.dtype.type
    points = grid.reshape(batch, -1, n)
    places = []
    for a, size in enumerate(x.shape[2:]):
        g = points[:, :, n - 1 - a]
        half = (g + real(1)) / real(2) * real(size - 1) if corners else ((g + real(1)) * real(size) - real(1)) / real(2)
        places.append(half)
    if mode == "nearest":
        index = [
            _pixel(_position(np.rint(c)), size, padding, corners) for c, size in zip(places, x.shape[2:], strict=True)
        ]
        absent = np.any([i < 0 for i in index], axis=0)
        rows = np.arange(batch)[:, None]
        found = np.moveaxis(x, 1, -1)[(rows, *(np.maximum(i, 0) for i in index))]
        y = np.where(absent[..., None], np.zeros((), x.dtype), found)
        return np.moveaxis(y, -1, 1).reshape(node.shape)
    moved = places
    if mode != "cubic" or padding != "border":
        moved = [_inside(c, size, padding, corners) for c, size in zip(places, x.shape[2:], strict=True)]
    each = [np.repeat(c, channels, axis=0) for c in moved]
    planes = x.reshape(batch * channels, *x.shape[2:])
    return _interpolate(ar, planes, each, mode == "cubic", padding, corners).reshape(node.shape)


def deform_sample(ar: Arithmetic, node: RefNode, x: Array, offset: Array, mask: Array | None = None) -> Array:
    """Values of x under every kernel position, moved by its offset and times its mask."""
    attrs, n = node.attrs, x.ndim - 2
    kernel, group = list(attrs["kernel"]), int(attrs["offset_group"])
    batch, channels, positions, count = node.shape
    out, real = offset.shape[2:], x.dtype.type
    moves = offset.reshape(batch, group, positions, n, count)
    places = []
    for a in range(n):
        steps = np.array(list(np.ndindex(*out)), np.int64).reshape(-1, n)[:, a] * attrs["strides"][a]
        taps = np.array(list(np.ndindex(*kernel)), np.int64).reshape(-1, n)[:, a] * attrs["dilations"][a]
        base = (taps[:, None] + steps[None, :] - attrs["pads"][a]).astype(x.dtype)
        places.append((base + moves[:, :, :, a]).reshape(batch, group, positions * count))
    each = [np.repeat(c, channels // group, axis=1).reshape(batch * channels, -1) for c in places]
    y = _interpolate(ar, x.reshape(batch * channels, *x.shape[2:]), each, False, "zeros", False)
    y = y.reshape(batch, channels, positions, count)
    if mask is not None:
        y = y * np.repeat(mask.reshape(batch, group, positions, count), channels // group, axis=1)
    return np.asarray(y, real)


def _entry(index: int, count: int) -> int:
    return min(max(index + count * (index < 0), 0), count - 1)


def _rounded(value: Any) -> int:
    """Ties away from zero."""
    if not math.isfinite(value):
        return 0 if math.isnan(value) else int(math.copysign(_FAR, value))
    value = float(value)
    return int(max(-_FAR, min(_FAR, math.copysign(math.floor(abs(value) + 0.5), value))))


def max_roi_pool(ar: Arithmetic, node: RefNode, x: Array, rois: Array) -> Array:
    """Maximum over the bins of regions in whole elements; an empty bin is 0."""
    height, width = node.attrs["output"]
    real = x.dtype.type
    scale = real(np.float32(node.attrs["spatial_scale"]))
    y = np.zeros(node.shape, x.dtype)
    for r, roi in enumerate(rois):
        plane = x[_entry(int(_position(np.trunc(roi[:1]))[0]), x.shape[0])]
        ranges = []
        for first, bins, size in ((2, height, x.shape[2]), (1, width, x.shape[3])):
            start, end = _rounded(roi[first] * scale), _rounded(roi[first + 2] * scale)
            step = real(max(end - start + 1, 1)) / real(bins)
            lows = [start + int(_position(np.floor(real(i) * step))) for i in range(bins)]
            highs = [start + int(_position(np.ceil(real(i + 1) * step))) for i in range(bins)]
            ranges.append([(min(max(a, 0), size), min(max(b, 0), size)) for a, b in zip(lows, highs, strict=True)])
        for (i, (a, b)), (j, (c, d)) in itertools.product(enumerate(ranges[0]), enumerate(ranges[1])):
            if b > a and d > c:
                best = np.full(x.shape[1], -np.inf, x.dtype)
                for p, q in itertools.product(range(a, b), range(c, d)):
                    best = first_max(best, plane[:, p, q])
                y[r, :, i, j] = best
    return y


def _corners(c: Any, size: int) -> tuple[int, int, Any] | None:
    """Lower and upper element and the weight of the upper one; none for a position outside."""
    if c < -1 or c > size:
        return None
    c = c if c > 0 else type(c)(0)
    low = min(int(min(c, type(c)(size))), size - 1)
    return low, min(low + 1, size - 1), c - type(c)(low) if int(c) < size - 1 else type(c)(0)


def roi_align(ar: Arithmetic, node: RefNode, x: Array, rois: Array, batch: Array) -> Array:
    """Mean or maximum of bilinear samples in the bins of regions."""
    attrs, real = node.attrs, x.dtype.type
    height, width = attrs["output"]
    half, average, ratio = bool(attrs["half_pixel"]), attrs["mode"] == "avg", int(attrs["sampling_ratio"])
    scale = real(np.float32(attrs["spatial_scale"]))
    y = np.zeros(node.shape, x.dtype)
    for r, roi in enumerate(rois):
        plane = x[_entry(int(batch[r]), x.shape[0])]
        sides = []
        for first, bins in ((1, height), (0, width)):
            start, end = (roi[k] * scale - real(0.5) if half else roi[k] * scale for k in (first, first + 2))
            size = end - start
            step = (size if half or size > 1 else real(1)) / real(bins)
            samples = min(max(ratio if ratio > 0 else int(_position(np.ceil(step))), 0), 1024)
            sides.append((start, step, samples))
        for i, j in np.ndindex(height, width):
            rows, columns = (
                [start + real(n) * step + (real(k) + real(0.5)) * step / real(samples) for k in range(samples)]
                for (start, step, samples), n in zip(sides, (i, j), strict=True)
            )
            values = [_sample(ar, plane, u, v, average) for u in rows for v in columns]
            y[r, :, i, j] = _pooled(ar, values, average) if values else 0
    return y


def _sample(ar: Arithmetic, plane: Array, u: Any, v: Any, average: bool) -> Array:
    row, column = _corners(u, plane.shape[1]), _corners(v, plane.shape[2])
    value = np.zeros(plane.shape[0], plane.dtype)
    if row is None or column is None:
        return value
    one = plane.dtype.type(1)
    pairs = [
        (p * q, plane[:, a, b])
        for p, a in ((one - row[2], row[0]), (row[2], row[1]))
        for q, b in ((one - column[2], column[0]), (column[2], column[1]))
    ]
    if average:
        for weight, found in pairs:
            value = ar.fma(np.full_like(found, weight), found, value)
        return value
    products = [weight * found for weight, found in pairs]
    return _scan(products)


def _scan(values: Sequence[Array]) -> Array:
    best = values[0]
    for value in values[1:]:
        best = first_max(best, value)
    return best


def _pooled(ar: Arithmetic, values: Sequence[Array], average: bool) -> Array:
    if not average:
        return _scan(values)
    return np.asarray(ar.sum_positions(np.stack(values)) / values[0].dtype.type(len(values)))


SAMPLING: dict[str, Callable[..., Array]] = {
    "grid_sample": grid_sample,
    "deform_sample": deform_sample,
    "roi_align": roi_align,
    "max_roi_pool": max_roi_pool,
}
