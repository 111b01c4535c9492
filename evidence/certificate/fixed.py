"""Tensors of multi-word fixed-point numbers, held as binary64 arrays of small integers.

``value = sum_i words[i] * 2 ** (WORD * (top - i))`` with integers ``|words[i]| <= 2 ** 19``. Every operation below only
adds, multiplies by powers of two, rounds to integers and multiplies such integers, and every result stays below
``2 ** 53``: binary64 does all of that without any rounding, in any order, with or without fma. So the arithmetic is
exact, a matrix product of two word arrays may go through whatever matrix product NumPy calls, and only what is cut off
at the low end is an error, returned as a bound. (The splitting of factors
follows Ozaki, Ogita, Oishi and Rump, Numer. Algorithms 59, 2012.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
WORD: Final = 20
BASE: Final = float(1 << WORD)
HALF: Final = float(1 << (WORD - 1))
TERMS: Final = 1 << (53 - 2 * (WORD - 1))
"""Products of two words that may be added without leaving 53 bits: 2 ** 15."""
LEAST: Final = 1e-150
"""Bounds are 0 or at least this, so that a product of two bounds never underflows."""
_BLOCK: Final = 1 << 14
UP: Final = 1.0 + 2.0**-48
"""Outward rounding of a bound after at most eight binary64 operations, each of relative error 2 ** -53."""


def raised(bound: Array | float) -> Array:
    """``bound`` (>= 0) rounded outwards: 0 stays 0, everything else is at least ``LEAST``; NaN becomes infinity."""
    value = np.asarray(bound, dtype=np.float64)
    value = np.where(np.isnan(value), np.inf, value)
    return np.where(value > 0, np.maximum(value * UP, LEAST), 0.0)


@dataclass(frozen=True)
class Fixed:
    """``words`` [n, ...] binary64 integers, most significant first; ``top`` the exponent of ``words[0]`` in words."""

    words: Array
    top: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.words.shape[1:])

    @property
    def count(self) -> int:
        return int(self.words.shape[0])


def unit(exponent: int) -> float:
    """``2 ** (WORD * exponent)``, as a bound: never below ``LEAST``."""
    return float(max(np.ldexp(1.0, WORD * exponent), LEAST))


def carried(words: Array, top: int) -> Fixed:
    """Canonical form of word arrays with ``|words| <= 2 ** 52``: words in [-2**19, 2**19), no zero ends."""
    # 2 ** 52 needs two words above its own; the carries out of the top go there.
    work = np.concatenate([np.zeros((2, *words.shape[1:])), words])
    flat = work.reshape(len(work), -1)
    for start in range(0, flat.shape[1], _BLOCK):  # in blocks that stay in the cache
        part = flat[:, start : start + _BLOCK]
        for i in range(len(work) - 1, 0, -1):
            carry = np.floor((part[i] + HALF) * (1.0 / BASE))
            part[i] -= carry * BASE
            part[i - 1] += carry
    used = [bool(w.any()) for w in work]
    if True not in used:
        return Fixed(work[:1] * 0.0, top)
    first, last = used.index(True), len(used) - used[::-1].index(True)
    return Fixed(work[first:last], top + 2 - first)


def cut(x: Fixed, keep: int) -> tuple[Fixed, Array]:
    """At most ``keep`` words, and a bound of what was cut off, per element."""
    if x.count <= keep:
        return x, np.zeros(x.shape)
    # The words cut off are at most 2**19 * (1 + 2**-20 + ...) units of the first of them: below 0.51 of the last kept.
    lost = np.where(x.words[keep:].any(axis=0), 0.51 * unit(x.top - keep + 1), 0.0)
    return carried(x.words[:keep], x.top), raised(lost)


def from_float(x: Array, keep: int) -> tuple[Fixed, Array]:
    """Finite binary64 values; a bound of what lies below the last word (exactly 0 for what fits)."""
    values = np.asarray(x, dtype=np.float64)
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0.0:
        return Fixed(np.zeros((1, *values.shape)), 0), np.zeros(values.shape)
    top = -(-int(np.frexp(largest)[1]) // WORD)
    # ldexp is exact upwards; downwards it could only round below 2 ** -1022, far under LEAST, which `lost` then covers.
    rest = np.ldexp(values, -WORD * top)
    lost = (rest != 0) & (np.abs(rest) < 2.0**-960)
    rest = np.where(lost, 0.0, rest)
    words: list[Array] = []
    while len(words) <= keep and (not words or rest.any()):  # the first word is -1, 0 or 1
        word = np.rint(rest)
        words.append(word)
        rest = (rest - word) * BASE  # exact: a fraction of the same last place, then a power of two
    bound = np.where((rest != 0) | lost, 0.51 * unit(top - len(words) + 1), 0.0)
    return carried(np.stack(words), top), raised(bound)


def from_fraction(value: Fraction, keep: int) -> tuple[Fixed, float]:
    """A scalar rounded down to a multiple of the last word, and the bound of that."""
    if value == 0:
        return Fixed(np.zeros((1,)), 0), 0.0
    top = -(-(abs(value.numerator).bit_length() - value.denominator.bit_length() + 1) // WORD)
    last = top - keep + 1
    scaled = value / Fraction(2) ** (WORD * last)
    whole = scaled.numerator // scaled.denominator
    error = 0.0 if whole == scaled else float(raised(unit(last)))
    digits = []
    rest = abs(whole)
    while rest:
        digits.append(float(rest % (1 << WORD)))
        rest >>= WORD
    sign = -1.0 if whole < 0 else 1.0
    words = np.array(digits[::-1] or [0.0]) * sign
    return carried(words, last + len(words) - 1), error


def to_fraction(x: Fixed, index: tuple[int, ...]) -> Fraction:
    """One element, exactly."""
    return sum(
        (Fraction(int(w[index])) * Fraction(2) ** (WORD * (x.top - i)) for i, w in enumerate(x.words)), Fraction(0)
    )


def to_float(x: Fixed) -> Array:
    """Nearest binary64 value up to a relative error of ``2.1 n 2 ** -53`` (see :func:`magnitude`)."""
    total = np.zeros(x.shape)
    for i in range(x.count - 1, -1, -1):
        total = total + np.ldexp(x.words[i], WORD * (x.top - i))
    return total


def magnitude(x: Fixed) -> Array:
    """Upper bound of ``|x|``."""
    # Leading nonzero word w: the rest is below 0.51 of its unit, so |value| >= 0.49 |w| units while no partial sum
    # passes 1.51 |w| units: n roundings are at most n * 2**-53 * 1.51 / 0.49 of the value.
    wide = np.abs(to_float(x)) * (1.0 + x.count * 2.0**-51)
    return raised(np.where(x.words.any(axis=0), np.maximum(wide, LEAST), 0.0))


def least_magnitude(x: Fixed) -> Array:
    """Lower bound of ``|x|``."""
    return np.maximum(np.abs(to_float(x)) * (1.0 - (x.count + 4) * 2.0**-50) - LEAST, 0.0)


def signs(x: Fixed) -> Array:
    """-1, 0 or 1: the sign of the leading nonzero word, since what follows is smaller than one unit of it."""
    found = np.zeros(x.shape)
    for word in x.words:
        found = np.where(found == 0, np.sign(word), found)
    return found


def aligned(a: Fixed, b: Fixed) -> tuple[Array, Array, int]:
    """Words of both from one top to one bottom; shapes broadcast later."""
    top, bottom = max(a.top, b.top), min(a.top - a.count, b.top - b.count)

    def spread(x: Fixed) -> Array:
        out = np.zeros((top - bottom, *x.shape))
        out[top - x.top : top - x.top + x.count] = x.words
        return out

    return spread(a), spread(b), top


def broadcast(a: Array, rank: int) -> Array:
    """A word array with its element axes padded in front to ``rank``, as NumPy broadcasts."""
    return a.reshape(a.shape[0], *(1,) * (rank - (a.ndim - 1)), *a.shape[1:])


def add(a: Fixed, b: Fixed, sign: float = 1.0) -> Fixed:
    """``a + sign * b``, exact."""
    x, y, top = aligned(a, b)
    rank = max(x.ndim, y.ndim) - 1
    return carried(broadcast(x, rank) + sign * broadcast(y, rank), top)


def scaled(x: Fixed, factor: int) -> Fixed:
    """``x`` times an integer below ``2 ** 32``, exact."""
    return carried(x.words * float(factor), x.top)


def halved(x: Fixed, bits: int) -> Fixed:
    """``x / 2 ** bits`` for ``0 <= bits``, exact."""
    whole, part = divmod(bits, WORD)
    if part == 0:
        return Fixed(x.words, x.top - whole)
    return carried(x.words * float(1 << (WORD - part)), x.top - whole - 1)


def doubled(x: Fixed, bits: int) -> Fixed:
    """``x * 2 ** bits`` for ``0 <= bits``, exact."""
    whole, part = divmod(bits, WORD)
    return Fixed(x.words, x.top + whole) if part == 0 else carried(x.words * float(1 << part), x.top + whole)


def multiply(a: Fixed, b: Fixed, keep: int) -> tuple[Fixed, Array]:
    """Elementwise product to ``keep`` words, and the bound of what was left out."""
    rank = max(len(a.shape), len(b.shape))
    x, y = broadcast(a.words, rank), broadcast(b.words, rank)
    shape = np.broadcast_shapes(x.shape[1:], y.shape[1:])
    diagonals: list[Array] = []
    first = rows = a.count + b.count - 1
    for d in range(rows):
        # Large factors may meet small ones only: the words to keep are counted from the first that is not 0.
        if d >= first + keep + 2:
            break
        total = np.zeros(shape)
        for i in range(max(0, d - b.count + 1), min(d + 1, a.count)):
            total += x[i] * y[d - i]  # products below 2**38, fewer than 2**14 of them
        diagonals.append(total)
        if first == rows and total.any():
            first = d
    rows = len(diagonals)
    product, lost = cut(carried(np.stack(diagonals), a.top + b.top), keep)
    if rows < a.count + b.count - 1:
        # A diagonal holds at most min(n, m) products of 2**38; those below are 2**-20 of it, and so on.
        left_out = min(a.count, b.count) * 2.0 ** (2 * WORD - 2) * 1.01 * unit(a.top + b.top - rows)
        some = x.any(axis=0) & y.any(axis=0)
        lost = raised(lost + np.where(some, left_out, 0.0))
    return product, lost
