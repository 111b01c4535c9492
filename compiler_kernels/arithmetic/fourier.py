"""Tables of the discrete Fourier transform: cosines and sines of rational parts of a turn, rounded once.

Computed with integers only, so that every machine gets the same table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

BITS = 200
"""Bits behind the point of the fixed-point numbers: an error of some 2^-190 decides no rounding to 53 bits here."""
PRECISION = {"float32": (24, -149), "float64": (53, -1074)}
"""Bits of the significand, exponent of the last place of subnormal numbers."""


@lru_cache(maxsize=1)
def _pi() -> int:
    """pi * 2^BITS by Machin's formula: 16 atan(1/5) - 4 atan(1/239)."""

    def atan(inverse: int) -> int:
        term, total, k = (1 << (BITS + 16)) // inverse, 0, 0
        while term:
            total += (term // (2 * k + 1)) * (-1) ** k
            term, k = term // inverse**2, k + 1
        return total

    return (16 * atan(5) - 4 * atan(239)) >> 16


def _series(angle: int, first: int) -> int:
    """cos (``first`` 0) or sin (1) of a fixed-point angle of at most pi / 4, by Taylor's series."""
    term, total, k = angle if first else 1 << BITS, 0, first
    square = angle * angle >> BITS
    while term:
        total += term
        term = -(term * square >> BITS) // ((k + 1) * (k + 2))
        if term == -1:  # floor division never reaches zero from below
            break
        k += 2
    return total


def cosine(part: int, turn: int) -> int:
    """cos(2 pi part / turn) * 2^BITS; exact at multiples of an eighth of a turn that are 0, 1 or -1."""
    part %= turn
    part = min(part, turn - part)  # cos(-a) = cos(a)
    if 4 * part > turn:
        return -cosine(turn - 2 * part, 2 * turn)  # cos(pi - a) = -cos(a)
    if 8 * part > turn:
        return _series((turn - 4 * part) * _pi() // (2 * turn), 1)  # sin(pi / 2 - a)
    return _series(2 * part * _pi() // turn, 0)


def rounded(number: int, divisor: int, dtype: str) -> float:
    """number / (divisor 2^BITS) to the nearest ``dtype``, ties to even; as a float, which holds it exactly."""
    digits, least = PRECISION[dtype]
    size, below = abs(number), divisor << BITS
    if not size:
        return 0.0
    last = max(size.bit_length() - below.bit_length() - digits, least)
    while True:  # one of two exponents, because the quotient's length is known up to one bit
        above, under = (size, below << last) if last >= 0 else (size << -last, below)
        whole, rest = divmod(above, under)
        if whole < 1 << digits:
            break
        last += 1
    whole += 2 * rest > under or (2 * rest == under and whole & 1)
    return float(np.ldexp(-whole if number < 0 else whole, last))


@lru_cache(maxsize=16)
def circle(turn: int, divisor: int, dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """cos and sin of 2 pi m / ``turn`` divided by ``divisor``, for m = 0 to ``turn`` - 1, each rounded once."""
    whole = [cosine(m, turn) for m in range(turn)]
    turned = [cosine(4 * m - turn, 4 * turn) for m in range(turn)]  # sin(a) = cos(a - pi / 2)
    cos, sin = (np.array([rounded(v, divisor, dtype) for v in part], dtype) for part in (whole, turned))
    return cos, sin


def transform(taps: int, length: int, bins: int, complex_input: bool, inverse: bool, dtype: str) -> NDArray[Any]:
    """The matrix of a transform of ``length`` points: rows (n[, part]) for the first ``taps`` points, columns (k, part)
    for the first ``bins`` results; part 0 is real, 1 imaginary. An inverse is divided by ``length`` before rounding."""
    cos, sin = circle(length, length if inverse else 1, dtype)
    places = np.outer(np.arange(taps), np.arange(bins)) % length
    real, imaginary = cos[places], sin[places] if inverse else -sin[places]
    rows = [np.stack([real, imaginary], axis=-1)]
    if complex_input:
        rows.append(np.stack([-imaginary, real], axis=-1))
    return np.stack(rows, axis=1).reshape(taps * len(rows), 2 * bins) + np.zeros((), dtype)


def real_inverse(taps: int, length: int, dtype: str) -> NDArray[Any]:
    """The matrix from the first ``taps`` of length // 2 + 1 complex results back to ``length`` real points."""
    cos, sin = circle(length, length, dtype)
    places = np.outer(np.arange(taps), np.arange(length)) % length
    twice = np.array([1 if k == 0 or 2 * k == length else 2 for k in range(taps)], dtype)[:, None]
    # The imaginary parts of bin 0 and of the middle one have no meaning and no part in the result.
    alone = np.where(twice == 1, np.zeros((), dtype), -twice * sin[places])
    return np.stack([twice * cos[places], alone], axis=1).reshape(2 * taps, length) + np.zeros((), dtype)
