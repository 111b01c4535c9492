"""Resize: coordinates in exact rationals, weights rounded once, one axis after another from the innermost."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.errors import ReferenceError, Refusal
from evidence.reference.graph import RefNode

_HALF = Fraction(1, 2)


def source_coordinate(
    mode: str, o: int, size: int, out: int, scale: Fraction, roi: tuple[Fraction, Fraction]
) -> Fraction:
    """Where result element ``o`` of ``out`` lies on an input axis of ``size`` elements, before any clamping."""
    if mode == "half_pixel":
        return (o + _HALF) / scale - _HALF
    if mode == "half_pixel_symmetric":
        adjustment = Fraction(out) / (scale * size)
        return Fraction(size, 2) * (1 - adjustment) + (o + _HALF) / scale - _HALF
    if mode == "pytorch_half_pixel":
        return (o + _HALF) / scale - _HALF if out > 1 else Fraction(0)
    if mode == "align_corners":
        return Fraction(o * (size - 1), out - 1) if out > 1 else Fraction(0)
    if mode == "asymmetric":
        return o / scale
    if mode == "tf_half_pixel_for_nn":
        return (o + _HALF) / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        if out > 1:
            return start * (size - 1) + o * (end - start) * (size - 1) / (out - 1)
        return (start + end) * (size - 1) / 2
    raise ReferenceError(f"resize: coordinate mode {mode!r} is not defined in CA-1")


_NEAREST = {
    "round_prefer_floor": lambda x: ceil(x - _HALF),
    "round_prefer_ceil": lambda x: floor(x + _HALF),
    "floor": floor,
    "ceil": ceil,
}


def nearest_binary(value: Fraction, dtype: type[np.floating]) -> np.floating:
    """``value`` rounded once, to nearest even, to ``dtype``."""
    wide = float(value)  # Python rounds a Fraction to binary64 correctly
    if dtype is np.float64:
        return np.float64(wide)
    narrow = np.float32(wide)
    # Compare with both neighbours exactly, so that the detour over binary64 cannot round twice.
    candidates = [np.nextafter(narrow, np.float32(-np.inf)), narrow, np.nextafter(narrow, np.float32(np.inf))]
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.int32)) & 1))


def _number(value: object) -> Fraction:
    return Fraction(float(np.float32(value)))  # type: ignore[arg-type]


def resize(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Any subset of axes to the result type's shape."""
    scales = [_number(s) for s in node.attrs.get("scales") or ()]
    ratios = scales or [Fraction(m, n) for n, m in zip(x.shape, node.shape, strict=True)]
    return _resized(ar, node, x, ratios, [_number(r) for r in node.attrs.get("roi") or ()])


def resize_by(ar: Arithmetic, node: RefNode, x: Array, scales: Array | None = None, roi: Array | None = None) -> Array:
    """Scales and region of the named axes are values of the run; those that do not give the stated shape, or that are
    outside the stated limits, are refused."""
    axes, rank = [int(a) for a in node.attrs["axes"]], x.ndim
    ratios = [Fraction(m, n) for n, m in zip(x.shape, node.shape, strict=True)]
    ends = [Fraction(0)] * rank + [Fraction(1)] * rank
    bad = False
    for k, axis in zip(node.attrs["entries"], axes, strict=True):
        span = np.float32(1)
        if roi is not None:
            begin, end = (np.float32(roi.reshape(-1)[i]) for i in (k, roi.size // 2 + k))
            span = end - begin
            for place, value in ((axis, begin), (rank + axis, end)):
                fits = np.isfinite(value) and abs(value) < 1024 and (_number(value) * 2**40).denominator == 1
                bad |= not fits
                ends[place] = _number(value) if fits else Fraction(0)
        if scales is None:
            continue
        scale = np.float32(scales.reshape(-1)[k])
        if not np.float32(2.0**-14) <= scale <= np.float32(2.0**14):
            bad = True
            continue
        ratios[axis] = _number(scale)
        size, out = x.shape[axis], node.shape[axis]
        if node.attrs["rounded"]:
            bad |= abs(float(size) * float(scale) - out) > 0.5005
        else:
            reached = np.float32(size) * span * scale
            bad |= not (np.float32(out) <= reached < np.float32(out + 1))
    if bad:
        raise Refusal(str(node.attrs["message"]))
    return _resized(ar, node, x, ratios, ends if roi is not None else [])


def _resized(ar: Arithmetic, node: RefNode, x: Array, ratios: list[Fraction], ends: list[Fraction]) -> Array:
    attrs = node.attrs
    mode, coordinates = str(attrs["mode"]), str(attrs.get("coordinate_mode", "half_pixel"))
    if mode not in ("nearest", "linear", "cubic"):
        raise ReferenceError(f"resize: mode {mode!r} is not defined in CA-1")
    outside = np.zeros(node.shape, dtype=bool)
    rank, y = x.ndim, x
    for axis in reversed(range(rank)):
        size, out, scale = x.shape[axis], node.shape[axis], ratios[axis]
        roi = (ends[axis], ends[rank + axis]) if ends else (Fraction(0), Fraction(1))
        exact = [source_coordinate(coordinates, o, size, out, scale, roi) for o in range(out)]
        if out == size and (all(c == o for o, c in enumerate(exact)) or _unscaled(coordinates, scale)):
            continue
        along = [1] * rank
        along[axis] = out
        if coordinates == "tf_crop_and_resize":
            outside |= np.array([c < 0 or c > size - 1 for c in exact]).reshape(along)
        if mode == "nearest":
            y = _nearest(y, axis, exact, attrs)
        elif mode == "linear" and not attrs.get("antialias"):
            y = _linear(ar, y, axis, exact, along)
        else:
            y = _filtered(ar, y, axis, [_filter(node, c, scale, size) for c in exact])
    fill = np.asarray(np.float32(attrs.get("extrapolation_value", 0.0))).astype(x.dtype) if x.dtype.kind != "V" else 0
    return np.where(outside, fill, y) if outside.any() else y


def _cubic(t: Fraction, a: Fraction) -> Fraction:
    """Cubic convolution at distance t >= 0."""
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else Fraction(0)


def _filter(node: RefNode, c: Fraction, scale: Fraction, size: int) -> list[tuple[int, Fraction]]:
    """Elements (clamped) and exact weights of the output at ``c``, ascending."""
    cubic, antialias = node.attrs["mode"] == "cubic", bool(node.attrs.get("antialias"))
    exclude = bool(node.attrs.get("exclude_outside"))
    a = _number(node.attrs["cubic_coefficient"]) if cubic else Fraction(0)
    narrow = min(scale, Fraction(1)) if antialias else Fraction(1)
    reach = (2 if cubic else 1) / narrow
    if antialias:
        places = [i for i in range(floor(c - reach), ceil(c + reach) + 1) if abs(i - c) < reach]
    else:
        places = list(range(floor(c) - 1, floor(c) + 3))
    if exclude:
        places = [i for i in places if 0 <= i < size]
    values = [_cubic(abs(i - c) * narrow, a) if cubic else 1 - abs(i - c) * narrow for i in places]
    total = sum(values) if antialias or exclude else Fraction(1)
    return [(min(max(i, 0), size - 1), v / (total or 1)) for i, v in zip(places, values, strict=True)]


def _filtered(ar: Arithmetic, y: Array, axis: int, rows: list[list[tuple[int, Fraction]]]) -> Array:
    """One chain from +0 per output, over as many taps as it has."""
    front = np.moveaxis(y, axis, 0)
    result = np.empty((len(rows), *front.shape[1:]), y.dtype)
    for o, row in enumerate(rows):
        total = np.zeros(front.shape[1:], y.dtype)
        for place, weight in row:
            total = ar.fma(nearest_binary(weight, y.dtype.type), front[place], total)
        result[o] = total
    return np.moveaxis(result, 0, axis)


def _unscaled(coordinates: str, scale: Fraction) -> bool:
    """tf_half_pixel_for_nn would shift even the batch axis by half an element; an axis of scale 1 is left alone."""
    return coordinates == "tf_half_pixel_for_nn" and scale == 1


def _nearest(y: Array, axis: int, exact: list[Fraction], attrs: object) -> Array:
    rounding = _NEAREST.get(attrs.get("nearest_mode", "round_prefer_floor"))  # type: ignore[attr-defined]
    if rounding is None:
        raise ReferenceError("resize: nearest_mode is not one of " + ", ".join(_NEAREST))
    return y.take([min(max(rounding(c), 0), y.shape[axis] - 1) for c in exact], axis=axis)


def _linear(ar: Arithmetic, y: Array, axis: int, exact: list[Fraction], along: list[int]) -> Array:
    last = y.shape[axis] - 1
    clamped = [min(max(c, Fraction(0)), Fraction(last)) for c in exact]
    low = [floor(c) for c in clamped]
    dtype = y.dtype.type
    upper = np.array([nearest_binary(c - i, dtype) for c, i in zip(clamped, low, strict=True)], dtype=dtype)
    lower = np.array([nearest_binary(1 - (c - i), dtype) for c, i in zip(clamped, low, strict=True)], dtype=dtype)
    with np.errstate(all="ignore"):
        first = lower.reshape(along) * y.take(low, axis=axis)
    return ar.fma(upper.reshape(along), y.take([min(i + 1, last) for i in low], axis=axis), first)
