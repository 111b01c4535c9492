"""Balls: a centre in multi-word fixed point and a radius, which together hold the exact real number.

Every operation returns a ball that holds the exact result for *every* choice of real numbers in the operands' balls.
Radii are binary64 and rounded outwards (``raised``); an infinite radius says that nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.certificate import fixed
from evidence.certificate.fixed import Fixed, raised

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Ball:
    """``centre`` of some shape and ``radius``, a binary64 array of the same shape, >= 0 or infinite."""

    centre: Fixed
    radius: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.centre.shape

    @property
    def exact(self) -> bool:
        return not self.radius.any()

    def mapped(self, move: Callable[[Array], Array]) -> Ball:
        """``move``, which only moves elements, applied to every word and to the radius."""
        return Ball(Fixed(np.stack([move(w) for w in self.centre.words]), self.centre.top), move(self.radius))

    def reshape(self, *shape: int) -> Ball:
        return self.mapped(lambda v: v.reshape(shape))

    def take(self, index: Any) -> Ball:
        """NumPy indexing of the elements."""
        return self.mapped(lambda v: v[index])


class BallArithmetic:
    """Operations on balls whose centres keep ``words`` words of 20 bits."""

    def __init__(self, words: int) -> None:
        self.words = words

    # making --------------------------------------------------------------------------------------------------------
    def ball(self, centre: Fixed, *bounds: Array | float) -> Ball:
        """Cut to the working precision; ``bounds`` and what is cut off make the radius."""
        kept, lost = fixed.cut(centre, self.words)
        total: Array = lost
        for bound in bounds:
            total = total + bound
        return Ball(kept, np.broadcast_to(raised(total), kept.shape))

    def number(self, values: Array) -> Ball:
        """Exact values (any integer or floating-point type); what is not finite is unknown."""
        array = np.asarray(values)
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
            low = array & array.dtype.type(0xFFFFFFFF)  # 64-bit integers in two exact halves
            high = (array - low) // array.dtype.type(1 << 32)
            return self.add(
                self.times(self.number(high.astype(np.float64)), 1 << 32), self.number(low.astype(np.float64))
            )
        wide = array.astype(np.float64)
        finite = np.isfinite(wide)
        # A weight may spread over more bits than the working precision: it costs little to keep them all.
        centre, lost = fixed.from_float(np.where(finite, wide, 0.0), self.words + 4)
        return Ball(centre, np.where(finite, lost, np.inf))

    def fraction(self, value: Fraction | int) -> Ball:
        """A scalar."""
        centre, lost = fixed.from_fraction(Fraction(value), self.words + 1)
        return Ball(centre, np.asarray(lost))

    def fractions(self, values: list[Fraction]) -> Ball:
        """A vector."""
        parts = [self.fraction(v) for v in values]
        top, bottom = max(p.centre.top for p in parts), min(p.centre.top - p.centre.count for p in parts)
        words = np.zeros((top - bottom, len(parts)))
        for k, p in enumerate(parts):
            words[top - p.centre.top : top - p.centre.top + p.centre.count, k] = p.centre.words
        return Ball(fixed.carried(words, top), np.array([float(p.radius) for p in parts]))

    # sums and products ---------------------------------------------------------------------------------------------
    def add(self, a: Ball, b: Ball) -> Ball:
        return self.ball(fixed.add(a.centre, b.centre), a.radius + b.radius)

    def sub(self, a: Ball, b: Ball) -> Ball:
        return self.ball(fixed.add(a.centre, b.centre, -1.0), a.radius + b.radius)

    def neg(self, a: Ball) -> Ball:
        return Ball(fixed.carried(-a.centre.words, a.centre.top), a.radius)

    def times(self, a: Ball, factor: int) -> Ball:
        return self.ball(fixed.scaled(a.centre, factor), a.radius * float(abs(factor)))

    def halved(self, a: Ball, bits: int) -> Ball:
        return self.ball(fixed.halved(a.centre, bits), a.radius * 0.5**bits)

    def mul(self, a: Ball, b: Ball) -> Ball:
        centre, lost = fixed.multiply(a.centre, b.centre, self.words)
        if a.exact and b.exact:
            return self.ball(centre, lost)
        x, y = fixed.magnitude(a.centre), fixed.magnitude(b.centre)
        with np.errstate(invalid="ignore"):
            # 0 * infinity: an exact zero times an unknown number is unknown too (the engine may give NaN).
            return self.ball(centre, lost, raised(x * b.radius), raised(y * a.radius), raised(a.radius * b.radius))

    def square(self, a: Ball) -> Ball:
        return self.mul(a, a)

    def sum(self, a: Ball, axis: int) -> Ball:
        """Exact sum of centres along ``axis`` of at most 2 ** 33 elements."""
        words = a.centre.words.sum(axis=axis + 1 if axis >= 0 else axis)
        count = a.shape[axis]
        return self.ball(fixed.carried(words, a.centre.top), raised(a.radius.sum(axis=axis) * (1 + count * 2.0**-52)))

    # quotients and roots ---------------------------------------------------------------------------------------------
    def shifted(self, x: Ball, k: Array) -> Ball:
        """``x * 2 ** k`` elementwise for integers k of at most 1000."""
        k = np.broadcast_to(k, x.shape)
        shift = np.floor(k / fixed.WORD)
        part = k - shift * fixed.WORD
        powers = x.centre.words * np.ldexp(1.0, part.astype(np.int64))  # below 2**39
        base = fixed.carried(powers, x.centre.top)
        highest, lowest = int(np.max(shift, initial=-1000)), int(np.min(shift, initial=1000))
        if k.size == 0:
            return x
        rows = base.count + min(highest - lowest, self.words + 3)
        words = np.zeros((rows, *x.shape))
        lost = np.zeros(x.shape)
        for step in np.unique(shift):
            at = shift == step
            down = highest - int(step)
            room = max(0, min(base.count, rows - down))
            if room:
                words[down : down + room, at] = base.words[:room, at]
            if room < base.count:
                lost[at] = 0.51 * fixed.unit(base.top + int(step) - room + 1)
        radius = x.radius * np.ldexp(1.0, np.maximum(k, -490).astype(np.int64))
        return self.ball(fixed.carried(words, base.top + highest), raised(radius), raised(lost))

    def reciprocal(self, a: Ball) -> Ball:
        """1 / a; unknown where the ball of ``a`` reaches 0."""
        low = np.maximum(fixed.least_magnitude(a.centre) * (1 - 2.0**-50) - a.radius, 0.0)
        ok = low > 0
        wide = BallArithmetic(self.words + 2)
        centre = self.replaced(ok, a.centre, 1.0)
        k = np.frexp(fixed.to_float(centre))[1].astype(np.float64)
        m = wide.shifted(Ball(centre, np.zeros(a.shape)), -k)  # all between 1/2 and 1, so that no words are lost
        one = self.fraction(1).centre
        y, _ = fixed.from_float(1.0 / fixed.to_float(m.centre), wide.words)
        for _ in range(_steps(self.words)):
            product, _ = fixed.multiply(m.centre, y, wide.words)
            step, _ = fixed.multiply(y, fixed.add(one, product, -1.0), wide.words)
            y, _ = fixed.cut(fixed.add(y, step), self.words + 1)
        # However y was found: |1/m - y| = |1 - m y| / |m|, and m lies within m.radius of the number meant.
        product, lost = fixed.multiply(m.centre, y, 2 * wide.words)
        rest = raised(fixed.magnitude(fixed.add(one, product, -1.0)) + lost)
        scaled = self.shifted(Ball(y, raised(2.1 * rest + 5.0 * m.radius)), -k)
        with np.errstate(all="ignore"):
            spread = np.where(a.radius > 0, raised(a.radius / fixed.least_magnitude(centre) / low), 0.0)
        return Ball(scaled.centre, np.where(ok, raised(scaled.radius + spread), np.inf))

    def div(self, a: Ball, b: Ball) -> Ball:
        return self.mul(a, self.reciprocal(b))

    def sqrt(self, a: Ball) -> Ball:
        """Square root; unknown where the ball reaches below 0, but for an exact 0."""
        sign = fixed.signs(a.centre)
        low = np.maximum(fixed.least_magnitude(a.centre) * (1 - 2.0**-50) - a.radius, 0.0)
        ok = (sign > 0) & (low > 0)
        wide = BallArithmetic(self.words + 2)
        centre = self.replaced(ok, a.centre, 1.0)
        j = np.ceil(np.frexp(fixed.to_float(centre))[1] / 2.0)
        m = wide.shifted(Ball(centre, np.zeros(a.shape)), -2.0 * j)  # between 1/4 and 1
        one = self.fraction(1).centre
        y, _ = fixed.from_float(1.0 / np.sqrt(fixed.to_float(m.centre)), wide.words)
        for _ in range(_steps(self.words)):
            square, _ = fixed.multiply(y, y, wide.words)
            product, _ = fixed.multiply(m.centre, square, wide.words)
            step, _ = fixed.multiply(y, fixed.add(one, product, -1.0), wide.words)
            y, _ = fixed.cut(fixed.add(y, fixed.halved(step, 1)), wide.words)
        root, _ = fixed.multiply(m.centre, y, self.words + 1)
        # However s was found: |sqrt(m) - s| = |m - s s| / (sqrt(m) + s) <= 2.1 |m - s s|, as sqrt(m) > 0.49 and s >= 0;
        # and m lies within m.radius of the number meant.
        square, lost = fixed.multiply(root, root, 2 * wide.words)
        rest = raised(fixed.magnitude(fixed.add(m.centre, square, -1.0)) + lost)
        error = np.where(fixed.signs(root) >= 0, raised(2.1 * rest + 1.1 * m.radius), np.inf)
        scaled = self.shifted(Ball(root, error), j)
        # |sqrt(x) - sqrt(c)| = |x - c| / (sqrt(x) + sqrt(c)) <= r / (2 sqrt(low)), as both are at least low.
        with np.errstate(all="ignore"):
            spread = np.where(a.radius > 0, raised(a.radius / (2.0 * np.sqrt(low)) * (1 + 2.0**-50)), 0.0)
        zero = (sign == 0) & (a.radius == 0)
        words = np.where(zero, 0.0, scaled.centre.words)
        radius = np.where(ok, raised(scaled.radius + spread), np.where(zero, 0.0, np.inf))
        return Ball(fixed.carried(words, scaled.centre.top), radius)

    def replaced(self, mask: Array, x: Fixed, other: float) -> Fixed:
        """``x`` where ``mask``, the integer ``other`` elsewhere."""
        y = Fixed(np.full((1, *x.shape), other), 0)
        first, second, top = fixed.aligned(x, y)
        return fixed.carried(np.where(mask, first, second), top)

    def select(self, mask: Array, a: Ball, b: Ball) -> Ball:
        """``a`` where ``mask`` (bool, known), ``b`` elsewhere."""
        x, y, top = fixed.aligned(a.centre, b.centre)
        rank = max(x.ndim, y.ndim, mask.ndim + 1) - 1
        words = np.where(mask, fixed.broadcast(x, rank), fixed.broadcast(y, rank))
        return self.ball(fixed.carried(words, top), np.where(mask, a.radius, b.radius))

    # order ---------------------------------------------------------------------------------------------------------
    def order(self, a: Ball, b: Ball) -> tuple[Array, Array]:
        """Sign of a - b (-1, 0, 1) as the centres have it, and whether every pair in the balls has it."""
        difference = fixed.add(a.centre, b.centre, -1.0)
        sign, radius = fixed.signs(difference), raised(a.radius + b.radius)
        sure = (radius == 0) | (fixed.least_magnitude(difference) > radius)
        return sign, np.broadcast_to(sure, sign.shape)

    def maximum(self, a: Ball, b: Ball) -> Ball:
        """The larger centre; it moves by at most the larger radius, where one operand is surely larger by its own."""
        sign, sure = self.order(a, b)
        larger = np.maximum(a.radius, b.radius)
        radii = [np.where(sure, x.radius, larger) for x in (a, b)]
        return self.select(sign >= 0, Ball(a.centre, radii[0]), Ball(b.centre, radii[1]))

    def minimum(self, a: Ball, b: Ball) -> Ball:
        return self.neg(self.maximum(self.neg(a), self.neg(b)))

    def absolute(self, a: Ball) -> Ball:
        flip = np.where(fixed.signs(a.centre) < 0, -1.0, 1.0)
        return Ball(fixed.carried(a.centre.words * flip, a.centre.top), a.radius)


def joined(parts: Sequence[Ball]) -> Ball:
    """Flat concatenation."""
    top = max(p.centre.top for p in parts)
    bottom = min(p.centre.top - p.centre.count for p in parts)
    words = np.zeros((top - bottom, sum(p.radius.size for p in parts)))
    at = 0
    for p in parts:
        first, size = top - p.centre.top, p.radius.size
        words[first : first + p.centre.count, at : at + size] = p.centre.words.reshape(p.centre.count, -1)
        at += size
    return Ball(fixed.carried(words, top), np.concatenate([np.ravel(p.radius) for p in parts]))


def _steps(words: int) -> int:
    """Newton steps from 40 bits to all of ``words`` and one more; each doubles what is right."""
    return max(0, math.ceil(math.log2(fixed.WORD * (words + 1) / 40)))


def bound_of(a: Ball) -> Array:
    """Upper bound of |x| over the ball."""
    return raised(fixed.magnitude(a.centre) + a.radius)


def distance(ar: BallArithmetic, a: Ball, values: Array) -> Array:
    """Upper bound of |values - x| over the ball, for actual floating-point ``values``; infinite where not finite."""
    return bound_of(ar.sub(ar.number(values), a))
