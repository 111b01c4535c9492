"""Resize: coordinates in exact rationals, linear weights rounded once, one axis after another from the innermost."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.errors import ReferenceError
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
    """``value`` in [0, 1] rounded once, to nearest even, to ``dtype``."""
    wide = float(value)  # Python rounds a Fraction to binary64 correctly
    if dtype is np.float64:
        return np.float64(wide)
    narrow = np.float32(wide)
    # Compare with both neighbours exactly, so that the detour over binary64 cannot round twice.
    candidates = [np.nextafter(narrow, np.float32(-1)), narrow, np.nextafter(narrow, np.float32(2))]
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - value), int(c.view(np.int32)) & 1))


def resize(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Nearest or linear resize of any subset of axes to the result type's shape."""
    attrs = node.attrs
    mode, coordinates = attrs["mode"], attrs.get("coordinate_mode", "half_pixel")
    if mode not in ("nearest", "linear") or attrs.get("antialias", 0):
        raise ReferenceError(f"resize: mode {mode!r} with antialias={attrs.get('antialias', 0)} is not defined in CA-1")
    outside = np.zeros(node.shape, dtype=bool)
    rank, y = x.ndim, x
    for axis in reversed(range(rank)):
        size, out = x.shape[axis], node.shape[axis]
        scale = Fraction(float(np.float32(attrs["scales"][axis]))) if attrs.get("scales") else Fraction(out, size)
        roi = (Fraction(0), Fraction(1))
        if attrs.get("roi"):
            roi = tuple(Fraction(float(np.float32(attrs["roi"][i]))) for i in (axis, rank + axis))  # type: ignore[assignment]
        exact = [source_coordinate(coordinates, o, size, out, scale, roi) for o in range(out)]
        if out == size and (all(c == o for o, c in enumerate(exact)) or _unscaled(coordinates, scale)):
            continue
        along = [1] * rank
        along[axis] = out
        if coordinates == "tf_crop_and_resize":
            outside |= np.array([c < 0 or c > size - 1 for c in exact]).reshape(along)
        y = _nearest(y, axis, exact, attrs) if mode == "nearest" else _linear(ar, y, axis, exact, along)
    return np.where(outside, x.dtype.type(np.float32(attrs.get("extrapolation_value", 0.0))), y) if outside.any() else y


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
