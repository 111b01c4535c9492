"""AUC, sensitivity, specificity and paired tests, with 95 % confidence intervals.

Counts are exact. Intervals are rounded outwards to six decimals, so that the last digits of a machine's logarithm do
not enter a signed report. Sources: DeLong, DeLong, Clarke-Pearson 1988 (Biometrics 44:837), in the form of Sun and Xu
2014 (IEEE Signal Processing Letters 21:1389); Clopper and Pearson 1934 (Biometrika 26:404); McNemar 1947, exact form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]
GRID: Final = 1_000_000
"""Bounds are multiples of 1 / GRID."""
Z: Final = 1.959963984540054
"""Quantile 0.975 of the normal distribution."""


@dataclass(frozen=True)
class Estimate:
    """``value`` with the bounds of its interval, in units of 1 / ``GRID``; ``value`` is NaN without any data."""

    value: float
    low: int
    high: int

    def to_json(self) -> dict[str, str]:
        return {"estimate": repr(self.value), "low": _decimal(self.low), "high": _decimal(self.high)}


def _decimal(bound: int) -> str:
    return f"{'-' if bound < 0 else ''}{abs(bound) // GRID}.{abs(bound) % GRID:06d}"


def proportion(hits: int, count: int) -> Estimate:
    """``hits`` of ``count`` with the exact interval of Clopper and Pearson, which covers at least 95 %."""
    if not count:
        return Estimate(math.nan, 0, GRID)
    low = 0 if hits == 0 else _largest(lambda p: tail(hits, count, p) <= 0.025)
    high = GRID if hits == count else GRID - _largest(lambda p: tail(count - hits, count, p) <= 0.025)
    return Estimate(hits / count, low, high)


def tail(hits: int, count: int, p: float) -> float:
    """Probability of at least ``hits`` successes in ``count`` trials of probability ``p``."""
    if p <= 0 or p >= 1:
        return float(p >= 1 or hits <= 0)
    logs = np.cumsum(np.log(np.arange(1, count + 1, dtype=np.float64)))
    logs = np.concatenate([[0.0], logs])  # logarithms of factorials
    i = np.arange(hits, count + 1)
    terms = logs[count] - logs[i] - logs[count - i] + i * math.log(p) + (count - i) * math.log1p(-p)
    return min(1.0, math.fsum(np.exp(terms)))


def _largest(holds: Any) -> int:
    """The largest grid point at which ``holds``, which is monotone and true at 0."""
    low, high = 0, GRID
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle / GRID) else (low, middle)
    return low


@dataclass(frozen=True)
class Roc:
    """How scores order positive before negative items.

    ``wins``: twice the number of pairs (positive, negative) in which the positive has the higher score; a tie counts 1.
    ``of_positive``, ``of_negative``: share of the other class that each item beats, or is beaten by (DeLong's V).
    """

    wins: int
    of_positive: Vector
    of_negative: Vector

    @property
    def pairs(self) -> int:
        return len(self.of_positive) * len(self.of_negative)

    @property
    def area(self) -> float:
        """Area under the ROC curve; NaN where a class is empty."""
        return self.wins / (2 * self.pairs) if self.pairs else math.nan


def roc(scores: Vector, positive: Vector) -> Roc:
    """``scores``: one number an item, infinities allowed, no NaN; ``positive``: whether each item is."""
    ill, well = scores[positive], scores[~positive]
    up, down = np.sort(well), np.sort(ill)
    beats = np.searchsorted(up, ill, "left") + np.searchsorted(up, ill, "right")
    beaten = 2 * len(ill) - np.searchsorted(down, well, "left") - np.searchsorted(down, well, "right")
    return Roc(int(beats.sum()), beats / (2 * max(1, len(well))), beaten / (2 * max(1, len(ill))))


def area(found: Roc) -> Estimate:
    """The area with DeLong's interval; from 0 to 1 where a class has fewer than two items."""
    return _normal(found.area, _variance(found, found), 0)


def difference(before: Roc, after: Roc) -> Estimate:
    """Area after minus area before on the same items, with DeLong's paired interval."""
    variance = _variance(before, before) + _variance(after, after) - 2 * _variance(before, after)
    value = (after.wins - before.wins) / (2 * after.pairs) if after.pairs else math.nan
    return _normal(value, variance, -GRID)


def _variance(a: Roc, b: Roc) -> float:
    """Covariance of two areas; NaN where a class has fewer than two items."""
    total = 0.0
    for one, other in ((a.of_positive, b.of_positive), (a.of_negative, b.of_negative)):
        if len(one) < 2:
            return math.nan
        total += float(np.dot(one - one.mean(), other - other.mean())) / (len(one) - 1) / len(one)
    return total


def _normal(value: float, variance: float, least: int) -> Estimate:
    if math.isnan(value) or math.isnan(variance):
        return Estimate(value, least, GRID)
    half = Z * math.sqrt(max(0.0, variance))
    # one part in 1e12 of slack: a bound that is a multiple of the grid must not move by its last bit
    low, high = math.floor((value - half) * GRID + 1e-6), math.ceil((value + half) * GRID - 1e-6)
    return Estimate(value, max(least, low), min(GRID, high))


def mcnemar(one: int, other: int) -> float:
    """Two-sided exact p of McNemar's test: ``one`` items only the first got right, ``other`` only the second."""
    count, few = one + other, min(one, other)
    term = total = 1
    for i in range(1, few + 1):
        term = term * (count - i + 1) // i
        total += term
    return min(1.0, float(Fraction(2 * total, 1 << count)))
