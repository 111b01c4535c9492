"""Sizes in floating point, as exporters scale them: exact numbers ``top / bottom``, never rounded ones.

binary32 holds every integer below 2^24, and a multiplication by a power of two or a small number stays exact there.
What would round for some size is refused, so that the sizes an engine computes are the model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from compiler_kernels.ir.dims import Expr, Size, ceildiv, floordiv, maximum, minimum
from compiler_kernels.ir.symbols import Unproved, magnitude, prover

EXACT: Final = 1 << 24


@dataclass(frozen=True, eq=False)
class Ratio:
    """``top / bottom``; ``bottom`` is a power of two."""

    top: Size
    bottom: int = 1

    @property
    def symbols(self) -> frozenset[str]:
        return self.top.symbols if isinstance(self.top, Expr) else frozenset()

    def plus(self, other: Ratio, sign: int = 1) -> Ratio:
        a, b, bottom = _common(self, other)
        return ratio(a + sign * b, bottom)

    def times(self, other: Ratio) -> Ratio:
        return ratio(self.top * other.top, self.bottom * other.bottom)

    def over(self, other: Ratio) -> Ratio:
        """Only by numbers whose inverse is exact."""
        if isinstance(other.top, Expr) or other.top == 0:
            raise Unproved(f"dividing by {other.top} / {other.bottom} is not exact in binary32", {})
        inverse = Fraction(other.bottom, other.top)
        if inverse.denominator & (inverse.denominator - 1):
            raise Unproved(f"dividing by {1 / inverse} is not exact in binary32 for all sizes", {})
        return self.times(Ratio(inverse.numerator, inverse.denominator))

    def floor(self) -> Ratio:
        return ratio(floordiv(self.top, self.bottom), 1)

    def ceil(self) -> Ratio:
        return ratio(ceildiv(self.top, self.bottom), 1)

    def integer(self) -> Size:
        """As a cast to an integer gives it: towards zero."""
        return floordiv(self.top, self.bottom) if self.top >= 0 else -floordiv(-self.top, self.bottom)


def ratio(top: Size, bottom: int) -> Ratio:
    """Reduced; ``Unproved`` where binary32 would round it for some size."""
    while bottom > 1 and not isinstance(top, Expr) and top % 2 == 0:
        top, bottom = top // 2, bottom // 2
    if isinstance(top, Expr) and all(factor % 2 == 0 for _, factor in top.terms) and bottom > 1:
        return ratio(floordiv(top, 2), bottom // 2)
    if magnitude(top, prover().symbols) >= EXACT:
        raise Unproved(f"{top} / {bottom} is not exact in binary32 for all sizes", {})
    return Ratio(top, bottom)


def of(value: object) -> Ratio:
    """A number of a constant, or a size."""
    if isinstance(value, Ratio):
        return value
    if isinstance(value, Expr | int):
        return ratio(value, 1)
    if not isinstance(value, float) or value - value != 0:
        raise Unproved(f"{value} is no finite number to compute sizes with", {})
    exact = Fraction(value)
    return Ratio(exact.numerator, exact.denominator)


def _common(a: Ratio, b: Ratio) -> tuple[Size, Size, int]:
    bottom = max(a.bottom, b.bottom)
    return a.top * (bottom // a.bottom), b.top * (bottom // b.bottom), bottom


def extreme(op: str, *values: object) -> Ratio:
    """``min`` or ``max`` of numbers and ratios."""
    found = of(values[0])
    for value in values[1:]:
        a, b, bottom = _common(found, of(value))
        found = ratio(minimum(a, b) if op == "min" else maximum(a, b), bottom)
    return found
