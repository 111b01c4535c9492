"""The decisions and safety guards of a policy, held against what rounding may have done (docs/clinical.md).

Each condition is judged twice: as the engine judges its own numbers, and over every real number in the balls, where it
may be true, false or in doubt. A decision is certified when it is not in doubt and both agree; what cannot change it
does not matter, so ``a or b`` with a surely true is certified whatever b is.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np

from compiler_kernels.policy import logic_tree as tree
from compiler_kernels.stage import Json
from evidence.certificate.ball import Ball, BallArithmetic, bound_of
from evidence.certificate.decisions import CERTIFIED, CHANGED, DOUBTFUL
from evidence.certificate.fixed import Array
from evidence.certificate.selection import Value, largest, unknown
from evidence.reference.typed import from_bfloat16

_SIGNS: Final[dict[str, tuple[int, ...]]] = {
    "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1), "==": (0,), "!=": (-1, 1),
}  # fmt: skip
_OPERATORS: Final = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


@dataclass
class Judge:
    """One inference: ``engine`` and ``exact`` hold tensors by (space, name), as the engine wrote them and as balls."""

    ar: BallArithmetic
    logic: tree.Logic
    engine: Mapping[tuple[str, str], Array]
    exact: Mapping[tuple[str, str], Value]
    comparisons: list[dict[str, Json]] = field(default_factory=list)
    finite: bool = True

    def entries(self) -> list[dict[str, Json]]:
        """A row for every decision and guard, in the policy's order, with the comparisons it was read from."""
        found = []
        named: list[tuple[str, Any, Any]] = [("decision", d, d.when) for d in self.logic.decisions]
        named += [("guard", g, g.require) for g in self.logic.guards]
        for kind, item, condition in named:
            self.comparisons, self.finite = [], True
            decided, sure = self.condition(condition)
            if not self.finite:
                decided = None  # a number that is none ends in the fallback, whichever half of an `or` it stands in
            status = DOUBTFUL if sure is None or decided is None else CERTIFIED if sure == decided else CHANGED
            # The comparison with the least room; of those in doubt the first.
            rows = self.comparisons
            doubtful = [r for r in rows if not r["certified"]]
            closest = next(iter(doubtful if status != CERTIFIED and doubtful else sorted(rows, key=_room)), None)
            found.append(
                {
                    "kind": kind,
                    "name": item.name,
                    "text": item.text,
                    "elements": 1,
                    "certified": int(status == CERTIFIED),
                    "status": status,
                    "decision": decided,
                    **({} if closest is None else {"margin": closest["margin"], "bound": closest["bound"]}),
                    "comparisons": list(rows),
                }
            )
        return found

    # conditions: the engine's verdict (None: a NaN, so the fallback decides) and the exact one (None: in doubt)

    def condition(self, c: tree.Condition) -> tuple[bool | None, bool | None]:
        match c:
            case tree.Compare(sign, left, right):
                return self.compare(sign, left, right)
            case tree.DecisionRef(name):
                return self.condition(next(d.when for d in self.logic.decisions if d.name == name))
            case tree.Not(operand):
                a, b = self.condition(operand)
                return None if a is None else not a, None if b is None else not b
            case tree.And(operands):
                pairs = [self.condition(o) for o in operands]
                return _at_least([p[0] for p in pairs], len(pairs)), _at_least([p[1] for p in pairs], len(pairs))
            case tree.Or(operands):
                pairs = [self.condition(o) for o in operands]
                return _at_least([p[0] for p in pairs], 1), _at_least([p[1] for p in pairs], 1)
            case tree.AtLeast(count, operands):
                pairs = [self.condition(o) for o in operands]
                return _at_least([p[0] for p in pairs], count), _at_least([p[1] for p in pairs], count)
        raise AssertionError(f"a condition of an unknown kind: {c!r}")

    def compare(self, sign: str, left: tree.Numeric, right: tree.Numeric) -> tuple[bool | None, bool | None]:
        a, b = self.number(left), self.number(right)
        x, y = self.ball(left), self.ball(right)
        decided = bool(_OPERATORS[sign](a, b)) if np.isfinite(a) and np.isfinite(b) else None
        self.finite &= decided is not None
        difference, sure = self.ar.order(x, y)
        exact: bool | None = None
        if sure.all():
            exact = int(difference) in _SIGNS[sign]
        with np.errstate(all="ignore"):
            margin = abs(a - b)
        apart = self.ar.sub(
            self.ar.sub(x, self.ar.number(np.asarray(a))), self.ar.sub(y, self.ar.number(np.asarray(b)))
        )
        self.comparisons.append(
            {
                "comparison": sign,
                "left": a,
                "right": b,
                "margin": float(margin),
                "bound": float(bound_of(apart)),
                "certified": exact is not None and exact == decided,
            }
        )
        return decided, exact

    # numbers as the engine computes them, in binary64

    def number(self, n: tree.Numeric) -> float:
        with np.errstate(all="ignore"):
            return float(self._number(n))

    def _number(self, n: tree.Numeric) -> Any:
        match n:
            case tree.Constant(value, _):
                return np.float64(value)
            case tree.ThresholdRef(name):
                return np.float64(next(t.value for t in self.logic.thresholds if t.name == name))
            case tree.QuantityRef(name):
                return self._number(next(q.value for q in self.logic.quantities if q.name == name))
            case tree.Minus(operand):
                return -self._number(operand)
            case tree.Arithmetic(sign, left, right):
                a, b = self._number(left), self._number(right)
                return {"+": a + b, "-": a - b, "*": a * b, "/": np.divide(a, b)}[sign]
            case tree.Element(region):
                return self.region(region)[0]
            case tree.Reduction(kind, region):
                values = self.region(region)
                if np.isnan(values).any() or not values.size:
                    return 0.0 if kind == "sum" and not values.size else np.nan
                if kind in ("sum", "mean"):
                    total = np.add.accumulate(values)[-1] + 0.0  # one chain, as the policy says
                    return total if kind == "sum" else total / values.size
                return getattr(np, kind)(values)
            case tree.Percentile(percent, region):
                values = self.region(region)
                return (
                    np.nan
                    if np.isnan(values).any() or not values.size
                    else np.sort(values)[_rank(percent, values.size)]
                )
            case tree.Count(region, sign, bound, fraction):
                values = self.region(region)
                limit = self._number(bound)
                if np.isnan(values).any() or np.isnan(limit) or (fraction and not values.size):
                    return np.nan
                count = np.float64(np.count_nonzero(_OPERATORS[sign](values, limit)))
                return count / values.size if fraction else count
        raise AssertionError(f"a number of an unknown kind: {n!r}")

    def region(self, region: tree.Region) -> Array:
        t = region.tensor
        values = self.engine[t.space, t.name]
        values = from_bfloat16(values) if values.dtype.kind == "V" else values
        return values[_box(region)].reshape(-1).astype(np.float64)

    # numbers as balls, in exact arithmetic

    def ball(self, n: tree.Numeric) -> Ball:
        ar = self.ar
        match n:
            case tree.Constant(value, _):
                return ar.fraction(Fraction(value))
            case tree.ThresholdRef(name):
                return ar.fraction(Fraction(next(t.value for t in self.logic.thresholds if t.name == name)))
            case tree.QuantityRef(name):
                return self.ball(next(q.value for q in self.logic.quantities if q.name == name))
            case tree.Minus(operand):
                return ar.neg(self.ball(operand))
            case tree.Arithmetic(sign, left, right):
                function = {"+": ar.add, "-": ar.sub, "*": ar.mul, "/": ar.div}[sign]
                return function(self.ball(left), self.ball(right))
            case tree.Reduction("sum", region) if not self.balls(region).radius.size:
                return ar.fraction(0)
            case tree.Reduction(_, region) | tree.Percentile(_, region) if not self.balls(region).radius.size:
                return unknown(())
            case tree.Element(region):
                return self.balls(region).take(0)
            case tree.Reduction(kind, region):
                return self.reduction(kind, self.balls(region))
            case tree.Percentile(percent, region):
                # An order statistic moves by at most the largest radius.
                x = self.balls(region)
                place = _sorted(x)[_rank(percent, x.radius.size)]
                return Ball(x.take(place).centre, np.asarray(np.max(x.radius)))
            case tree.Count(region, sign, bound, fraction):
                x = self.balls(region)
                if fraction and not x.radius.size:
                    return unknown(())
                order, sure = ar.order(x, self.ball(bound))
                holds = np.isin(order, _SIGNS[sign])
                low = int(np.count_nonzero(holds & sure))
                doubtful = int(np.count_nonzero(~sure))
                middle = ar.fraction(Fraction(2 * low + doubtful, 2))
                count = Ball(middle.centre, np.asarray(doubtful / 2))
                return ar.mul(count, ar.fraction(Fraction(1, x.radius.size))) if fraction else count
        raise AssertionError(f"a number of an unknown kind: {n!r}")

    def reduction(self, kind: str, x: Ball) -> Ball:
        ar = self.ar
        if kind in ("sum", "mean"):
            total = ar.sum(x, 0)
            return total if kind == "sum" else ar.mul(total, ar.fraction(Fraction(1, x.radius.size)))
        if kind == "max":
            return largest(ar, x)
        if kind == "min":
            return ar.neg(largest(ar, ar.neg(x)))
        top = _sorted(x)[-1]
        order, sure = ar.order(x, x.take(top))
        first = int(np.flatnonzero(order == 0)[0])  # of equals the first, which is exact where both radii are 0
        others = np.arange(order.size) != first
        return ar.fraction(first) if sure[others].all() else unknown(())

    def balls(self, region: tree.Region) -> Ball:
        t = region.tensor
        value = self.exact[t.space, t.name]
        ball = value if isinstance(value, Ball) else self.ar.number(value)
        return ball.take(_box(region)).reshape(-1)


def _room(row: Mapping[str, Json]) -> float:
    margin, bound = float(row["margin"]), float(row["bound"])  # type: ignore[arg-type]
    return margin / bound if bound else np.inf


def _box(region: tree.Region) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in zip(region.start, region.stop, strict=True))


def _rank(percent: float, count: int) -> int:
    """Nearest rank from 0, in exact arithmetic on the binary64 percentage."""
    wanted = Fraction(percent) * count / 100
    return max(1, -(-wanted.numerator // wanted.denominator)) - 1


def _sorted(x: Ball) -> Array:
    """Positions in ascending order of the centres, exactly: words compared from the last to the first."""
    return np.lexsort([*reversed(list(x.centre.words))])


def _at_least(verdicts: list[bool | None], count: int) -> bool | None:
    """Whether at least ``count`` are true; ``None`` where it hangs on one that is not known."""
    yes, open_ = verdicts.count(True), verdicts.count(None)
    return True if yes >= count else False if yes + open_ < count else None
