"""Between which binary64 numbers a quantity lies for every tensor within the guards: a proof that it is finite."""

from __future__ import annotations

import math
from collections.abc import Mapping

from compiler_kernels.policy.logic_tree import (
    Arithmetic,
    Constant,
    Count,
    Element,
    Logic,
    Minus,
    Numeric,
    Percentile,
    QuantityRef,
    Reduction,
    Region,
    ThresholdRef,
)
from evidence.coverage.grids import Bounds, Grid, element_bounds

Interval = tuple[float, float]
WHOLE: Interval = (-math.inf, math.inf)


class Intervals:
    """``proved`` quantities (by name) are known to be finite, as all are once decisions are evaluated."""

    def __init__(self, logic: Logic, guards: Mapping[str, Bounds], proved: bool = False) -> None:
        self.guards, self.proved = guards, proved
        self.thresholds = {t.name: t.value for t in logic.thresholds}
        self.quantities = {q.name: q.value for q in logic.quantities}

    def finite(self, value: Numeric) -> bool:
        """Whether ``value`` is proved to be finite."""
        return all(math.isfinite(b) for b in self.of(value))

    def of(self, value: Numeric) -> Interval:
        """Bounds of ``value``; infinite where it may be infinite or NaN."""
        match value:
            case Constant(number, _):
                return number, number
            case ThresholdRef(name):
                return self.thresholds[name], self.thresholds[name]
            case QuantityRef(name):
                low, high = self.of(self.quantities[name])
                largest = math.nextafter(math.inf, 0)
                return (max(low, -largest), min(high, largest)) if self.proved else (low, high)
            case Minus(operand):
                low, high = self.of(operand)
                return -high, -low
            case Arithmetic(sign, left, right):
                return _wide(_combine(sign, self.of(left), self.of(right)))
            case Element(region) | Percentile(_, region):
                return self.elements(region)
            case Count(region, _, bound, fraction):
                clean = self.finite(bound) and self.elements(region) != WHOLE
                return (0.0, 1.0 if fraction else float(region.count())) if clean else WHOLE
            case Reduction(kind, region):
                low, high = self.elements(region)
                if (low, high) == WHOLE:
                    return WHOLE
                if kind == "argmax":
                    return 0.0, float(region.count() - 1)
                if kind in ("max", "min"):
                    return low, high
                # a chain of n additions errs by less than n * 2**-52 of the sum of the absolute values
                n = float(region.count())
                reach = n * max(abs(low), abs(high)) * (1 + n * 2.0**-51)
                if kind == "sum":
                    return _wide((-reach if low < 0 else 0.0, reach if high > 0 else 0.0))
                return _wide((-reach / n if low < 0 else 0.0, reach / n if high > 0 else 0.0))

    def elements(self, region: Region) -> Interval:
        """Bounds of the elements of a region; ``WHOLE`` where the guard lets a NaN or an infinity pass."""
        tensor = region.tensor
        if not Grid(tensor.dtype).integer and not guarded(tensor.name, self.guards):
            return WHOLE
        return element_bounds(tensor, self.guards)


def guarded(name: str, guards: Mapping[str, Bounds]) -> bool:
    """Whether the guard of tensor ``name`` refuses NaN and both infinities."""
    guard = guards.get(name)
    return guard is not None and (guard.finite or (guard.low > -math.inf and guard.high < math.inf))


def _combine(sign: str, left: Interval, right: Interval) -> Interval:
    if not all(math.isfinite(b) for b in (*left, *right)):
        return WHOLE
    match sign:
        case "+":
            return left[0] + right[0], left[1] + right[1]
        case "-":
            return left[0] - right[1], left[1] - right[0]
        case "*":
            found = [a * b for a in left for b in right]
        case _:
            if right[0] <= 0 <= right[1]:
                return WHOLE
            found = [a / b for a in left for b in right]
    return min(found), max(found)


def _wide(interval: Interval) -> Interval:
    """One binary64 number wider on each side, for the rounding of the bounds themselves."""
    return math.nextafter(interval[0], -math.inf), math.nextafter(interval[1], math.inf)
