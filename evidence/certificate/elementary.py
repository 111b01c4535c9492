"""Elementary functions of balls, built from ball operations and series with a proved remainder: no library is trusted.

A point is evaluated as a ball of radius 0; the operand's radius comes in by a bound of the derivative over its ball.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache, wraps
from typing import Final

import numpy as np

from evidence.certificate import fixed
from evidence.certificate.ball import Ball, BallArithmetic, bound_of, joined
from evidence.certificate.fixed import WORD, raised

_SQUARINGS: Final = 9
LARGEST_EXP: Final = 250.0
"""exp is evaluated up to here; beyond it the result is unknown (binary32 ends at 88.7)."""


@lru_cache(maxsize=64)
def constant(name: str, words: int) -> Fraction:
    """ln 2, pi or sqrt 2 with a relative error below ``2 ** (-20 (words + 3))``."""
    with localcontext() as context:
        context.prec = int(WORD * (words + 4) * 0.302) + 20  # decimal rounds ln and sqrt correctly
        if name == "ln2":
            return Fraction(Decimal(2).ln())
        if name == "sqrt2":
            return Fraction(Decimal(2).sqrt())
    bits = WORD * (words + 4) + 40  # Machin: pi = 16 atan(1/5) - 4 atan(1/239)

    def atan_inverse(n: int) -> int:
        total, term, k = 0, (1 << bits) // n, 0
        while term:
            total += (-term if k % 2 else term) // (2 * k + 1)
            term //= n * n
            k += 1
        return total

    return Fraction(16 * atan_inverse(5) - 4 * atan_inverse(239), 1 << bits)


def known(ar: BallArithmetic, name: str) -> Ball:
    """The constant as a ball."""
    value = ar.fraction(constant(name, ar.words))
    return Ball(value.centre, raised(value.radius + 4 * fixed.unit(-(ar.words + 3))))


Function = Callable[[BallArithmetic, Ball], Ball]
_BLOCK: Final = 4096
"""Elements treated at a time, so that a block's words stay in the cache."""


def in_blocks(function: Function) -> Function:
    """An elementwise function, block by block."""

    @wraps(function)
    def blocks(ar: BallArithmetic, x: Ball) -> Ball:
        if x.radius.size <= _BLOCK:
            return function(ar, x)
        flat = x.reshape(-1)
        parts = [function(ar, flat.take(slice(k, k + _BLOCK))) for k in range(0, x.radius.size, _BLOCK)]
        whole = joined(parts)
        return ar.ball(whole.centre, whole.radius).reshape(*x.shape)

    return blocks


def _point(x: Ball) -> Ball:
    return Ball(x.centre, np.zeros(x.shape))


@in_blocks
def exp(ar: BallArithmetic, x: Ball) -> Ball:
    """e ** x; unknown where x may pass ``LARGEST_EXP``."""
    approximate = fixed.to_float(x.centre)
    ok = np.isfinite(x.radius) & (approximate + x.radius < LARGEST_EXP)
    inside = ok & (approximate > -LARGEST_EXP)
    centre = Ball(ar.replaced(inside, x.centre, 0.0), np.zeros(x.shape))
    k = np.rint(fixed.to_float(centre.centre) / math.log(2.0))
    rest = ar.sub(centre, ar.mul(ar.number(k), known(ar, "ln2")))
    small = ar.halved(rest, _SQUARINGS)
    # |small| < 0.36 / 512; the remainder after term n is below 2 |small| ** (n + 1) / (n + 1)!.
    largest = float(np.max(bound_of(small), initial=0.0))
    terms, remainder = 1, 2.0 * largest
    while remainder > 2.0 ** (-WORD * (ar.words + 1)) and terms < 200:
        terms += 1
        remainder *= max(largest, 1e-300) / terms * (1 + 2.0**-50)
    total = ar.fraction(1)
    for n in range(terms, 0, -1):
        total = ar.add(ar.mul(ar.mul(small, total), ar.fraction(Fraction(1, n))), ar.fraction(1))
    total = Ball(total.centre, raised(total.radius + (remainder if largest else 0.0)))
    for _ in range(_SQUARINGS):
        total = ar.mul(total, total)
    value = ar.shifted(total, k)
    # Below -LARGEST_EXP: between 0 and e ** -250.
    with np.errstate(over="ignore", invalid="ignore"):
        high = np.exp(np.minimum(approximate, LARGEST_EXP)) * (1 + 2.0**-20)  # a factor no libm exp misses
        near = high * np.expm1(np.minimum(x.radius, 1.0))
        far = np.exp(np.minimum(approximate + x.radius, LARGEST_EXP))
        spread = np.where(x.radius > 0, raised(np.where(x.radius > 1.0, far, near) * (1 + 2.0**-20)), 0.0)
        # e ** -250 is 2.7e-109, far above LEAST and above whatever underflowed in `near`.
        outside = raised(np.exp(-LARGEST_EXP) * (1 + 2.0**-20) + spread)
    words = np.where(inside, value.centre.words, 0.0)
    radius = np.where(inside, raised(value.radius + spread), outside)
    return Ball(fixed.carried(words, value.centre.top), np.where(ok, radius, np.inf))


@in_blocks
def log(ar: BallArithmetic, x: Ball) -> Ball:
    """Natural logarithm of m 2 ** k with m in [1/2, 1]; unknown where the ball reaches 0."""
    least = fixed.least_magnitude(x.centre)
    low = np.maximum(least * (1 - 2.0**-50) - x.radius, 0.0)
    ok = (fixed.signs(x.centre) > 0) & (low > 0)
    centre = Ball(ar.replaced(ok, x.centre, 1.0), np.zeros(x.shape))
    k = np.frexp(fixed.to_float(centre.centre))[1].astype(np.float64)
    m = ar.shifted(centre, -k)
    point = _point(m)
    value = ar.number(np.log(fixed.to_float(point.centre)))
    bits = 0
    while bits < WORD * (ar.words + 1):
        # m = e**y (1 + t), so log m = y + log(1 + t), and |log(1 + t) - t + t**2/2| <= |t|**3 for |t| <= 1/2.
        t = ar.sub(ar.mul(point, exp(ar, ar.neg(_point(value)))), ar.fraction(1))
        wide = bound_of(t)
        cubed = np.where(wide < 0.5, raised(wide * wide * wide), np.inf)
        step = ar.sub(t, ar.halved(ar.square(t), 1))
        value = ar.add(_point(value), Ball(step.centre, raised(step.radius + cubed)))
        bits = 150 if bits == 0 else 3 * bits
    value = ar.add(value, ar.mul(ar.number(k), known(ar, "ln2")))
    with np.errstate(all="ignore"):
        spread = np.where(x.radius > 0, raised(x.radius / low), 0.0)
    # m may have lost its last words: a derivative below 3 on [0.4, 2].
    return ar.ball(value.centre, np.where(ok, raised(value.radius + 3.0 * m.radius + spread), np.inf))


@in_blocks
def sigmoid(ar: BallArithmetic, x: Ball) -> Ball:
    """1 / (1 + e ** -x), by the branch whose exponential is at most 1; the derivative is at most 1/4."""
    negative = fixed.signs(x.centre) < 0
    one = ar.fraction(1)
    e = exp(ar, ar.neg(ar.absolute(_point(x))))
    small = ar.reciprocal(ar.add(one, e))
    value = ar.select(negative, ar.sub(one, small), small)
    return Ball(value.centre, np.minimum(raised(value.radius + 0.25 * x.radius), 1.01))


@in_blocks
def tanh(ar: BallArithmetic, x: Ball) -> Ball:
    """2 sigmoid(2x) - 1; the derivative is at most 1."""
    value = ar.sub(ar.times(sigmoid(ar, ar.times(_point(x), 2)), 2), ar.fraction(1))
    return Ball(value.centre, np.minimum(raised(value.radius + x.radius), 2.01))


_GRID: Final = 64
"""Points of the table of erf per unit; between them Taylor's series runs over at most 1/128."""


@in_blocks
def erf(ar: BallArithmetic, x: Ball) -> Ball:
    """Error function; the derivative is below 1.1284.

    Taylor's series around the nearest point of a table: the derivatives are Hermite polynomials times e ** (-c**2).
    """
    limit = _erf_limit(ar.words)
    negative = fixed.signs(x.centre) < 0
    point = ar.absolute(_point(x))
    approximate = fixed.to_float(point.centre)
    inside = approximate < limit
    point = Ball(ar.replaced(inside, point.centre, 0.0), np.zeros(x.shape))
    place = np.rint(fixed.to_float(point.centre) * _GRID)
    d = ar.sub(point, ar.halved(ar.number(place), 6))
    table, remainder = _erf_table(ar.words)
    index = place.astype(np.int64)
    total = table[-1].take(index)
    for row in reversed(table[:-1]):
        total = ar.add(row.take(index), ar.mul(total, d))
    # Outside: 1 - erf(x) < e ** (-x**2).
    tail = Ball(ar.number(np.ones(x.shape)).centre, np.full(x.shape, math.exp(-((limit - 0.5) ** 2))))
    value = ar.select(inside, Ball(total.centre, raised(total.radius + remainder)), tail)
    value = ar.select(negative, ar.neg(value), value)
    return Ball(value.centre, np.minimum(raised(value.radius + 1.1284 * x.radius), 2.01))


def _erf_limit(words: int) -> int:
    return 1 + math.ceil(math.sqrt(WORD * words * 0.7))


@lru_cache(maxsize=4)
def _erf_table(words: int) -> tuple[list[Ball], float]:
    """Taylor coefficients of erf at k / 64 up to the limit, and the bound of what the series leaves out."""
    ar = BallArithmetic(words + 1)
    # Cramer: |H_n(x)| e ** (-x**2 / 2) <= 1.09 * 2 ** (n/2) * sqrt(n!), so that after order n the rest is at most
    # 1.1284 * 1.09 * 2 ** (n/2) sqrt(n!) / (n+1)! * (1/128) ** (n+1).
    order, rest = 0, 1.24 / (2 * _GRID)
    while rest > 2.0 ** (-WORD * (words + 1)):
        order += 1
        rest *= math.sqrt(2.0 * order) / (order + 1) / (2 * _GRID) * (1 + 2.0**-48)
    count = _erf_limit(words) * _GRID + 2
    c = ar.halved(ar.number(np.arange(count, dtype=np.float64)), 6)
    scale = ar.mul(ar.div(ar.fraction(2), ar.sqrt(known(ar, "pi"))), exp(ar, ar.neg(ar.square(c))))
    rows = [_erf_points(ar, c)]
    before, now = ar.number(np.zeros(count)), ar.number(np.ones(count))  # H_-1, H_0
    factor = Fraction(1)
    for k in range(1, order + 1):
        factor /= k if k == 1 else -k
        rows.append(ar.mul(ar.mul(scale, now), ar.fraction(factor)))
        before, now = now, ar.sub(ar.times(ar.mul(c, now), 2), ar.times(before, 2 * (k - 1)))
    return rows, rest


def _erf_points(ar: BallArithmetic, x: Ball) -> Ball:
    """erf of a vector of known numbers >= 0, in groups of like magnitude: the words of a group reach from its largest
    to its least, and the series of a large x needs many."""
    approximate = fixed.to_float(x.centre)
    words = np.zeros((2 * ar.words + 6, approximate.size))
    radius = np.zeros(approximate.size)
    edges = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 30.0, 40.0]
    for low, high in itertools.pairwise(edges):
        chosen = np.flatnonzero((approximate >= low) & (approximate < high))
        if not chosen.size:
            continue
        part = _erf_series(ar, x.take(chosen), high)
        first = -part.centre.top  # results are below 2**20: their first word is at exponent 0 at most
        kept, lost = fixed.cut(part.centre, len(words) - first)
        words[first : first + kept.count, chosen] = kept.words
        radius[chosen] = part.radius + lost
    return ar.ball(fixed.carried(words, 0), radius)


def _erf_series(ar: BallArithmetic, x: Ball, limit: float) -> Ball:
    """2/sqrt(pi) e**(-x**2) sum 2**n x**(2n+1) / (2n+1)!! for |x| < limit; all terms have one sign."""
    # The sum grows like e ** (x**2) and needs as many more words as the product then loses.
    wide = BallArithmetic(ar.words + 1 + math.ceil(limit * limit * 1.45 / WORD))
    square = wide.square(x)
    largest = limit * limit
    twice = wide.times(square, 2)
    # Term n is term n - 1 times 2 x**2 / (2n + 1); once that ratio stays below 1/2 the rest is at most the last term.
    terms, size = 0, limit
    while not (2 * largest / (2 * terms + 3) < 0.5 and size < 2.0 ** (-WORD * (ar.words + 1) - 4)):
        terms += 1
        size = size * 2 * largest / (2 * terms + 1) * (1 + 2.0**-50)
    total = wide.fraction(1)
    for n in range(terms, 0, -1):
        total = wide.add(wide.fraction(1), wide.mul(wide.mul(twice, total), wide.fraction(Fraction(1, 2 * n + 1))))
    scale = wide.div(wide.fraction(2), wide.sqrt(known(wide, "pi")))
    series = wide.mul(wide.mul(wide.mul(x, total), exp(wide, wide.neg(square))), scale)
    return ar.ball(series.centre, raised(series.radius + 2.3 * size))


def _turned(ar: BallArithmetic, x: Ball, quarter: int) -> Ball:
    """sin(x + quarter * pi/2) by Taylor's series after reduction by multiples of pi/2; the derivative is at most 1."""
    approximate = fixed.to_float(x.centre)
    ok = np.abs(approximate) < 1e6
    point = Ball(ar.replaced(ok, x.centre, 0.0), np.zeros(x.shape))
    k = np.rint(fixed.to_float(point.centre) / (math.pi / 2))
    rest = ar.sub(point, ar.mul(ar.number(k), ar.halved(known(ar, "pi"), 1)))
    square = ar.square(rest)
    largest = float(np.max(bound_of(rest), initial=0.0))
    terms, size = 1, 1.0
    while size > 2.0 ** (-WORD * (ar.words + 1)) and terms < 400:
        size *= max(largest, 1.0) / terms * (1 + 2.0**-50)
        terms += 1
    odd, even = ar.fraction(1), ar.fraction(1)
    for n in range(terms - terms % 2, 0, -2):
        even = ar.sub(ar.fraction(1), ar.mul(ar.mul(square, even), ar.fraction(Fraction(1, n * (n - 1)))))
        odd = ar.sub(ar.fraction(1), ar.mul(ar.mul(square, odd), ar.fraction(Fraction(1, n * (n + 1)))))
    odd = ar.mul(rest, odd)
    turn = (k.astype(np.int64) + quarter) % 4
    value = ar.select(turn % 2 == 0, odd, even)
    value = ar.select(turn >= 2, ar.neg(value), value)
    radius = np.minimum(raised(value.radius + 2 * size + x.radius), 2.01)
    return Ball(value.centre, np.where(ok, radius, 2.01))


@in_blocks
def sine(ar: BallArithmetic, x: Ball) -> Ball:
    return _turned(ar, x, 0)


@in_blocks
def cosine(ar: BallArithmetic, x: Ball) -> Ball:
    return _turned(ar, x, 1)


ELEMENTARY: dict[str, Function] = {
    "exp": exp,
    "log": log,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "erf": erf,
    "sin": sine,
    "cos": cosine,
    "sqrt": lambda ar, x: ar.sqrt(x),
    "reciprocal": lambda ar, x: ar.reciprocal(x),
}
