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


def resize_tables(op: Op, in_dims: Sequence[int]) -> list[AxisTable]:
    """One table per axis that really moves, outermost first; an axis whose coordinates are the identity is left out."""
    out_dims = op.out.dims
    scales, roi = op.floats("scales"), op.floats("roi")
    mode, rank = op.str_("coordinate_mode"), len(in_dims)
    tables = []
    for axis, (size, out) in enumerate(zip(in_dims, out_dims, strict=True)):
        scale = Fraction(binary32(scales[axis])) if scales else Fraction(out, size)
        start = Fraction(binary32(roi[axis])) if roi else Fraction(0)
        end = Fraction(binary32(roi[rank + axis])) if roi else Fraction(1)
        where = [coordinate(mode, o, size, out, scale, start, end) for o in range(out)]
        # tf_half_pixel_for_nn would shift even the batch axis by half an element; scale 1 leaves an axis alone there.
        unscaled = mode == "tf_half_pixel_for_nn" and scale == 1
        if out == size and (unscaled or all(c == o for o, c in enumerate(where))):
            continue
        outside = tuple(mode == "tf_crop_and_resize" and (c < 0 or c > size - 1) for c in where)
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
                tuple(round_binary32(1 - f) for f in fractions),
                tuple(round_binary32(f) for f in fractions),
                outside,
            )
        )
    return tables


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


def round_binary32(value: Fraction) -> float:
    """A weight in [0, 1] rounded to binary64 and then to binary32, to nearest even at once: by integer arithmetic."""
    if value == 0:
        return 0.0
    exponent = 23
    while value * 2**exponent < 2**23:
        exponent += 1
    scaled = value * Fraction(2) ** exponent
    whole = math.floor(scaled)
    rest = scaled - whole
    if rest > HALF or (rest == HALF and whole % 2 == 1):
        whole += 1
    return float(Fraction(whole) / Fraction(2) ** exponent)
