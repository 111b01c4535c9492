"""Compile-time tables of Resize: source indices and weights from exact rationals (docs/arithmetic.md, "Resize")."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from compiler_kernels.ir.graph import Op

HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class AxisTable:
    """How one axis is resampled: for output o, ``low[o]`` (and for linear ``high[o]`` with binary32 weights).

    ``outside[o]`` marks outputs that take the extrapolation value.
    """

    axis: int
    low: tuple[int, ...]
    high: tuple[int, ...]
    weight_low: tuple[float, ...]
    weight_high: tuple[float, ...]
    outside: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class TapTable:
    """An axis of cubic or antialiased interpolation: ``index[o]`` and ``weights[o]`` of output o, in the order of the
    chain."""

    axis: int
    index: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[float, ...], ...]
    outside: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class AxisWhere:
    """Coordinates of the outputs of one axis that really moves."""

    axis: int
    size: int
    scale: Fraction
    where: tuple[Fraction, ...]
    outside: tuple[bool, ...]


def is_two_tap(op: Op) -> bool:
    """Whether ``op`` reads one or two elements per axis: nearest, or linear without antialias."""
    return op.str_("mode") != "cubic" and not (op.has("antialias") and op.attr("antialias"))


def moving_axes(op: Op, in_dims: Sequence[int]) -> list[AxisWhere]:
    """The axes that ``op`` does not leave alone, outermost first."""
    out_dims = op.out.dims
    scales, roi = op.floats("scales"), op.floats("roi")
    mode, rank = op.str_("coordinate_mode"), len(in_dims)
    found = []
    for axis, (size, out) in enumerate(zip(in_dims, out_dims, strict=True)):
        scale = Fraction(binary32(scales[axis])) if scales else Fraction(out, size)
        start = Fraction(binary32(roi[axis])) if roi else Fraction(0)
        end = Fraction(binary32(roi[rank + axis])) if roi else Fraction(1)
        where = tuple(coordinate(mode, o, size, out, scale, start, end) for o in range(out))
        # tf_half_pixel_for_nn would shift even the batch axis by half an element; scale 1 leaves an axis alone there.
        unscaled = mode == "tf_half_pixel_for_nn" and scale == 1
        if out == size and (unscaled or all(c == o for o, c in enumerate(where))):
            continue
        outside = tuple(mode == "tf_crop_and_resize" and (c < 0 or c > size - 1) for c in where)
        found.append(AxisWhere(axis, size, scale, where, outside))
    return found


def resize_tables(op: Op, in_dims: Sequence[int]) -> list[AxisTable]:
    """Tables of :func:`is_two_tap` forms, one per axis that really moves, outermost first."""
    tables = []
    for moving in moving_axes(op, in_dims):
        axis, size, where, outside = moving.axis, moving.size, moving.where, moving.outside
        if op.str_("mode") == "nearest":
            low = tuple(min(max(nearest(op.str_("nearest_mode"), c), 0), size - 1) for c in where)
            tables.append(AxisTable(axis, low, low, (), (), outside))
            continue
        inside = [min(max(c, Fraction(0)), Fraction(size - 1)) for c in where]
        floors = [math.floor(c) for c in inside]
        fractions = [c - f for c, f in zip(inside, floors, strict=True)]
        tables.append(
            AxisTable(
                axis,
                tuple(floors),
                tuple(min(f + 1, size - 1) for f in floors),
                tuple(rounded(1 - f, op.out.dtype) for f in fractions),
                tuple(rounded(f, op.out.dtype) for f in fractions),
                outside,
            )
        )
    return tables


def tap_tables(op: Op, in_dims: Sequence[int]) -> list[TapTable]:
    """Tables of the other forms; taps outside the axis read its nearest element, or do not exist."""
    cubic = op.str_("mode") == "cubic"
    antialias = bool(op.has("antialias") and op.attr("antialias"))
    exclude = bool(op.attr("exclude_outside"))
    coefficient = Fraction(binary32(op.float_("cubic_coefficient"))) if cubic else Fraction(0)
    tables = []
    for moving in moving_axes(op, in_dims):
        last, rows = moving.size - 1, []
        for c in moving.where:
            taps = window(c, moving.scale, cubic, antialias, coefficient)
            if exclude:
                taps = [(i, w) for i, w in taps if 0 <= i <= last]
            total = sum((w for _, w in taps), Fraction(0)) if exclude or antialias else Fraction(1)
            rows.append([(min(max(i, 0), last), rounded(w / (total or 1), op.out.dtype)) for i, w in taps])
        tables.append(
            TapTable(
                moving.axis,
                tuple(tuple(i for i, _ in row) for row in rows),
                tuple(tuple(w for _, w in row) for row in rows),
                moving.outside,
            )
        )
    return tables


def window(
    c: Fraction, scale: Fraction, cubic: bool, antialias: bool, coefficient: Fraction
) -> list[tuple[int, Fraction]]:
    """Positions and values of the filter around coordinate ``c``: of the four neighbours or, with antialias, of all
    elements that the filter, stretched by 1 / scale where that shrinks, reaches."""
    if not antialias:
        first = math.floor(c) - 1
        return [(i, cubic_filter(abs(i - c), coefficient)) for i in range(first, first + 4)]
    stretch = min(scale, Fraction(1))
    reach = (2 if cubic else 1) / stretch
    positions = range(math.floor(c - reach) + 1, math.ceil(c + reach))
    distances = [(i, abs(i - c) * stretch) for i in positions]
    return [(i, cubic_filter(t, coefficient) if cubic else 1 - t) for i, t in distances]


def cubic_filter(t: Fraction, a: Fraction) -> Fraction:
    """The cubic convolution of Keys (1981) with coefficient ``a`` at distance ``t`` >= 0."""
    if t <= 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a if t < 2 else Fraction(0)


def coordinate(mode: str, o: int, size: int, out: int, scale: Fraction, start: Fraction, end: Fraction) -> Fraction:
    """Input coordinate of output ``o``, exactly; ONNX operator Resize, attribute coordinate_transformation_mode."""
    if mode == "half_pixel_symmetric":
        adjustment = Fraction(out) / (scale * size)
        return Fraction(size, 2) * (1 - adjustment) + (o + HALF) / scale - HALF
    if mode == "pytorch_half_pixel" and out == 1:
        return Fraction(0)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (o + HALF) / scale - HALF
    if mode == "align_corners":
        return Fraction(o * (size - 1), out - 1) if out > 1 else Fraction(0)
    if mode == "tf_half_pixel_for_nn":
        return (o + HALF) / scale
    if mode == "tf_crop_and_resize":
        if out > 1:
            return start * (size - 1) + o * (end - start) * (size - 1) / (out - 1)
        return HALF * (start + end) * (size - 1)
    if mode != "asymmetric":
        raise ValueError(f"resize coordinate mode {mode!r}")
    return o / scale


def nearest(mode: str, where: Fraction) -> int:
    """Index of ``where`` by the tie rule of ``mode``."""
    if mode == "floor":
        return math.floor(where)
    if mode == "ceil":
        return math.ceil(where)
    if mode == "round_prefer_ceil":
        return math.floor(where + HALF)
    if mode != "round_prefer_floor":
        raise ValueError(f"resize nearest mode {mode!r}")
    return math.ceil(where - HALF)


def binary32(value: float) -> float:
    """``value`` rounded to binary32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def rounded(value: Fraction, dtype: str) -> float:
    """``value`` rounded once, to nearest even, to ``dtype`` (binary64 for float64, binary32 otherwise)."""
    return float(value) if dtype == "float64" else round_binary32(value)


def round_binary32(value: Fraction) -> float:
    """A weight of at least 2^-100 or 0 rounded to binary32, to nearest even at once: by integer arithmetic."""
    if value <= 0:
        return -round_binary32(-value) if value else 0.0
    exponent = 23 + value.denominator.bit_length() - value.numerator.bit_length()
    while value * Fraction(2) ** exponent < 2**23:
        exponent += 1
    while value * Fraction(2) ** exponent >= 2**24:
        exponent -= 1
    scaled = value * Fraction(2) ** exponent
    whole = math.floor(scaled)
    rest = scaled - whole
    if rest > HALF or (rest == HALF and whole % 2 == 1):
        whole += 1
    return float(Fraction(whole) / Fraction(2) ** exponent)
