"""CA-1's sums written out one output at a time from docs/arithmetic.md, with exact rationals for every rounding.

Slow on purpose: no NumPy arithmetic takes part. Values are Python floats that are binary32 numbers.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

LARGEST = Fraction(2) ** 128 - Fraction(2) ** 104


def bits_to_float(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


def float_to_bits(value: float) -> int:
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits


def round_to_binary32(exact: Fraction, zero_sign_negative: bool) -> int:
    """Bits of ``exact`` rounded to nearest even, computed with integers only."""
    if exact == 0:
        return 0x80000000 if zero_sign_negative else 0
    sign = 0x80000000 if exact < 0 else 0
    magnitude = abs(exact)
    exponent = max(-126, magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1)
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - 23)
    quotient, rest = divmod(magnitude, unit)
    if rest * 2 > unit or (rest * 2 == unit and quotient % 2):
        quotient += 1
    if quotient * unit > LARGEST:
        return sign | 0x7F800000
    if quotient < 1 << 23:
        return sign | int(quotient)
    if quotient == 1 << 24:
        quotient, exponent = 1 << 23, exponent + 1
    return sign | ((exponent + 127) << 23) | (int(quotient) - (1 << 23))


def fma(x: float, y: float, z: float) -> float:
    """One rounding of x * y + z for finite operands."""
    product_negative = math.copysign(1, x) * math.copysign(1, y) < 0
    negative_zero = x * y == 0 and z == 0 and product_negative and math.copysign(1, z) < 0
    underflowed = x * y == 0 and x != 0 and y != 0  # cannot happen for binary32 operands in binary64
    assert not underflowed
    return bits_to_float(round_to_binary32(Fraction(x) * Fraction(y) + Fraction(z), negative_zero))


def add(x: float, y: float) -> float:
    return fma(x, 1.0, y)


def tree(values: list[float]) -> float:
    """Section 3.3."""
    if not values:
        return 0.0
    while len(values) > 1:
        nodes = []
        for start in range(0, len(values), 8):
            node = values[start]
            for value in values[start + 1 : start + 8]:
                node = add(node, value)
            nodes.append(node)
        values = nodes
    return values[0]


def sum_of_products(
    channels: int, positions: int, read: Callable[[int, int], tuple[float, float]], bias: float
) -> float:
    """Sections 3.1 to 3.4; ``read(channel, position)`` gives (x, w)."""
    cb, target = (8, 64) if channels >= 16 else (1, 16)
    q = 72 // cb
    blocks = []
    start = 0
    while start < channels:
        blocks.append(list(range(start, min(start + cb, channels))))
        start += cb
    leaves: list[list[tuple[int, int]]] = []
    if positions <= q:
        n = max(1, target // (cb * positions)) if positions else 1
        while blocks and positions:
            taken, blocks = blocks[:n], blocks[n:]
            leaves.append([(c, p) for block in taken for p in range(positions) for c in block])
    else:
        for block in blocks:
            remaining = list(range(positions))
            while remaining:
                leaves.append([(c, p) for p in remaining[:q] for c in block])
                remaining = remaining[q:]
    values = []
    for leaf in leaves:
        acc = 0.0
        for c, p in leaf:
            x, w = read(c, p)
            acc = fma(x, w, acc)
        values.append(acc)
    return add(tree(values), 0.0 if bias == 0 else bias)


def sum_by_positions(values: Sequence[float], squares: bool = False) -> float:
    """Section 4.1."""
    leaves = []
    for start in range(0, len(values), 64):
        acc = 0.0
        for v in values[start : start + 64]:
            acc = fma(v, v, acc) if squares else add(acc, v)
        leaves.append(acc)
    return tree(leaves)


def sum_in_lanes(values: Sequence[float], squares: bool = False) -> float:
    """Section 4.2."""
    lanes = [sum_by_positions(values[j::16], squares) for j in range(16)]
    for half in (8, 4, 2, 1):
        lanes = [add(lanes[j], lanes[j + half]) for j in range(half)]
    return lanes[0]


def conv(x: Any, w: Any, b: Any, attrs: dict[str, Any], out: Sequence[int]) -> Any:
    """Section 3, conv: every output by itself."""
    kernel, rank = w.shape[2:], w.ndim - 2
    per_group, columns = w.shape[1], w.shape[0] // attrs["group"]
    taps = list(itertools.product(*(range(k) for k in kernel)))
    result = np.zeros((x.shape[0], w.shape[0], *out), dtype=np.float32)
    for index in np.ndindex(*result.shape):
        n, m, *o = index
        first = (m // columns) * per_group

        def read(c: int, p: int, n: int = n, m: int = m, o: list[int] = o, first: int = first) -> tuple[float, float]:
            at = [
                o[i] * attrs["strides"][i] - attrs["pads"][i] + taps[p][i] * attrs["dilations"][i] for i in range(rank)
            ]
            inside = all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True))
            return (float(x[(n, first + c, *at)]) if inside else 0.0), float(w[(m, c, *taps[p])])

        result[index] = sum_of_products(per_group, len(taps), read, 0.0 if b is None else float(b[m]))
    return result


def conv_transpose(x: Any, w: Any, b: Any, attrs: dict[str, Any], out: Sequence[int]) -> Any:
    """Section 3, conv_transpose: the taps of every output by itself."""
    kernel, rank = w.shape[2:], w.ndim - 2
    group, columns = attrs["group"], w.shape[1]
    per_group = x.shape[1] // group
    result = np.zeros((x.shape[0], columns * group, *out), dtype=np.float32)
    for index in np.ndindex(*result.shape):
        n, m, *o = index
        g = m // columns
        taps = []
        for k in itertools.product(*(range(size) for size in kernel)):
            reach = [o[i] + attrs["pads"][i] - k[i] * attrs["dilations"][i] for i in range(rank)]
            if all(r % s == 0 for r, s in zip(reach, attrs["strides"], strict=True)):
                taps.append((k, [r // s for r, s in zip(reach, attrs["strides"], strict=True)]))

        def read(c: int, p: int, n: int = n, m: int = m, g: int = g, taps: list[Any] = taps) -> tuple[float, float]:
            k, at = taps[p]
            inside = all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True))
            channel = g * per_group + c
            return (float(x[(n, channel, *at)]) if inside else 0.0), float(w[(channel, m - g * columns, *k)])

        result[index] = sum_of_products(per_group, len(taps), read, 0.0 if b is None else float(b[m]))
    return result
