"""The constants of docs/arithmetic-binary64.md, computed here from their definitions in decimal arithmetic.

"Nearest" below is the binary64 number nearest to a real number; a pair is (nearest(v), nearest(v - nearest(v))).
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

_DIGITS = 120


def nearest(value: Decimal) -> float:
    return float(value)


def pair(value: Decimal) -> tuple[float, float]:
    high = float(value)
    with localcontext() as context:
        context.prec = _DIGITS
        return high, float(value - Decimal(high))


def _arctangent(value: Fraction) -> Decimal:
    """The power series; |value| < 1."""
    with localcontext() as context:
        context.prec = _DIGITS
        x = Decimal(value.numerator) / Decimal(value.denominator)
        total, power, k = Decimal(0), x, 0
        while abs(power) > Decimal(10) ** -_DIGITS:
            total += (-1) ** k * power / (2 * k + 1)
            power, k = power * x * x, k + 1
        return total


def _pi(digits: int) -> Decimal:
    """Machin: pi / 4 = 4 atan(1/5) - atan(1/239)."""

    def inverse(n: int, one: int) -> int:
        total, power, k = 0, one // n, 0
        while power:
            total += (-1) ** k * (power // (2 * k + 1))
            power, k = power // (n * n), k + 1
        return total

    one = 10 ** (digits + 20)
    with localcontext() as context:
        context.prec = digits + 20
        return Decimal(4 * (4 * inverse(5, one) - inverse(239, one))) / Decimal(one)


with localcontext() as _context:
    _context.prec = _DIGITS
    PI = _pi(_DIGITS)
    _LN2 = Decimal(2).ln()
    LN2 = nearest(_LN2)
    LN2_HI = float.fromhex("0x1.62e42feep-1")
    LN2_LO = nearest(_LN2 - Decimal(LN2_HI))
    LOG2_E = nearest(1 / _LN2)
    TWO_OVER_LN2 = pair(2 / _LN2)
    THIRD = pair(Decimal(1) / 3)
    ONE_OVER_SQRT_PI = nearest(1 / PI.sqrt())
    _FACTORIALS = [Decimal(1)]
    for _k in range(1, 40):
        _FACTORIALS.append(_FACTORIALS[-1] * _k)
    _ERF = [2 / PI.sqrt() * (-1) ** k / (_FACTORIALS[k] * (2 * k + 1)) for k in range(28)]
    ERF_TERMS = [nearest(v) for v in _ERF[:0:-1]] + [nearest(_ERF[0] - 1)]
    """From k = 27 down to 0, the last less 1."""
    _ARCS = [PI / 4 if j == 8 else _arctangent(Fraction(j, 8)) for j in range(9)]
    ARCS = [pair(a) for a in _ARCS]
    ARC_COMPLEMENTS = [pair(PI / 2 - a) for a in _ARCS]
    HALF_PI_63 = int((PI / 2 * 2**63).to_integral_value())
    """pi / 2 in units of 2^-63, to the nearest integer."""


def inverse_factorials(*numbers: int) -> list[float]:
    """nearest(1 / n!) of each, negative for a negative n."""
    with localcontext() as context:
        context.prec = _DIGITS
        return [nearest((1 if n > 0 else -1) / _FACTORIALS[abs(n)]) for n in numbers]


def _two_over_pi(bits: int) -> int:
    with localcontext() as context:
        context.prec = bits
        return int(2 / _pi(bits) * Decimal(2) ** bits)


TWO_OVER_PI_BITS = 1184
TWO_OVER_PI = _two_over_pi(TWO_OVER_PI_BITS)
"""floor(2 / pi * 2^TWO_OVER_PI_BITS)."""
