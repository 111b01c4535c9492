"""The numbers of the logic as Z3 terms over the numbers of the cells: what concrete tensors can realise.

Sums and quotients are those of the reals; binary64 rounding is left to the evaluation of the world that comes out. A
solution is therefore a proposal. Proofs of infeasibility need the other direction: ``relaxed``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

import z3

from compiler_kernels.policy.logic_tree import (
    Arithmetic,
    Compare,
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
    Sign,
    Tensor,
    ThresholdRef,
)
from evidence.coverage.cells import Cells, Group, Member
from evidence.coverage.evaluate import rank_of
from evidence.coverage.grids import Bounds, Grid, element_bounds

Term = Any
"""A Z3 term; Z3's own annotations are not used."""
MIRROR: Mapping[Sign, Sign] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
PLAIN = 2.0**20
"""Elements of unguarded tensors are sought within plus and minus this, or further where a constant is."""


def rational(value: float | Fraction | int) -> Term:
    """The exact real number of a finite binary64 number."""
    exact = Fraction(value)
    return z3.Q(exact.numerator, exact.denominator)


def compared(sign: Sign, left: Term, right: Term) -> Term:
    """``left SIGN right`` over the reals."""
    match sign:
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "==":
            return left == right
    return left != right


class Numbers:
    """Terms for numbers and comparisons; ``facts`` are what holds of the variables in them."""

    def __init__(self, logic: Logic, guards: Mapping[str, Bounds], cells: Cells) -> None:
        self.logic, self.guards, self.cells = logic, guards, cells
        self.thresholds = {t.name: t.value for t in logic.thresholds}
        self.quantities = {q.name: q.value for q in logic.quantities}
        self.facts: list[Term] = []
        self.margins: dict[Compare, list[Term]] = {}
        """By comparison of rounded numbers: that its sides are a margin apart, a wide and a narrow one."""
        self.memo: dict[Numeric | Compare, Term] = {}
        self.groups: dict[Group, Term] = {}
        self.gaps: dict[int, Term] = {}
        self.serial = 0
        largest = max([PLAIN, *(1000 * abs(t.value) for t in logic.thresholds)])
        for tensor, groups in cells.groups.items():
            low, high = self.extent(tensor, largest)
            for group in groups:
                made = self.variable(f"{tensor.space}{tensor.index}_{group.index}", integer=Grid(tensor.dtype).integer)
                self.groups[group] = made
                self.facts += [made >= rational(low), made <= rational(high)]
            for a, b in pairwise(groups):
                if a.cell == b.cell:
                    self.facts.append(self.groups[a] <= self.groups[b])

    def extent(self, tensor: Tensor, largest: float) -> tuple[float, float]:
        low, high = element_bounds(tensor, self.guards)
        largest = min(largest, 2.0**53) if Grid(tensor.dtype).integer else largest
        return (low if low > -largest or high < -largest else -largest), (
            high if high < largest or low > largest else largest
        )

    def variable(self, name: str, *, integer: bool = False) -> Term:
        self.serial += 1
        return z3.ToReal(z3.Int(f"{name}.{self.serial}")) if integer else z3.Real(f"{name}.{self.serial}")

    # ---- numbers

    def number(self, value: Numeric) -> Term:
        """The real number ``value`` is."""
        if value not in self.memo:
            self.memo[value] = self.made(value)
        return self.memo[value]

    def made(self, value: Numeric) -> Term:
        match value:
            case Constant(number, _):
                return rational(number)
            case ThresholdRef(name):
                return rational(self.thresholds[name])
            case QuantityRef(name):
                return self.number(self.quantities[name])
            case Minus(operand):
                return -self.number(operand)
            case Arithmetic(sign, left, right):
                return self.arithmetic(sign, self.number(left), self.number(right))
            case Element(region):
                return self.groups[self.cells.members[region][0].group]
            case Percentile(percent, region):
                return self.ranked(region, rank_of(percent, region.count()))
            case Count(region, sign, bound, fraction):
                counted = (
                    self.number(Count(region, sign, bound, False)) if fraction else self.counted(region, sign, bound)
                )
                return counted / region.count() if fraction else counted
            case Reduction(kind, region):
                match kind:
                    case "max":
                        return self.ranked(region, region.count())
                    case "min":
                        return self.ranked(region, 1)
                    case "argmax":
                        return self.position(region)
                    case "mean":
                        return self.number(Reduction("sum", region)) / region.count()
                return self.total(region)

    def arithmetic(self, sign: str, left: Term, right: Term) -> Term:
        match sign:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
        self.facts.append(right != 0)
        return left / right

    def of(self, region: Region) -> list[tuple[Member, Term]]:
        return [(m, self.groups[m.group]) for m in self.cells.members[region]]

    def total(self, region: Region) -> Term:
        return z3.Sum([m.group.count * v for m, v in self.of(region)])

    def counted(self, region: Region, sign: Sign, bound: Numeric) -> Term:
        holds = self.comparison(sign, Grid(region.tensor.dtype), bound)
        return z3.Sum([z3.If(holds(v), z3.RealVal(m.group.count), z3.RealVal(0)) for m, v in self.of(region)])

    def ranked(self, region: Region, rank: int) -> Term:
        """The element of ``rank`` (from 1) in ascending order."""
        found = self.of(region)
        if len({m.group.cell for m, _ in found}) == 1:  # in ascending order already
            for member, value in sorted(found, key=lambda f: f[0].group.index):
                rank -= member.group.count
                if rank <= 0:
                    return value
        made = self.variable("ranked")
        at_most = z3.Sum([z3.If(v <= made, z3.RealVal(m.group.count), z3.RealVal(0)) for m, v in found])
        below = z3.Sum([z3.If(v < made, z3.RealVal(m.group.count), z3.RealVal(0)) for m, v in found])
        self.facts += [z3.Or([made == v for _, v in found]), at_most >= rank, below <= rank - 1]
        return made

    def position(self, region: Region) -> Term:
        """The position of the first largest element."""
        found = self.of(region)
        made = self.variable("argmax")
        choices = []
        for at, (member, value) in enumerate(found):
            largest = [value >= v for _, v in found[at + 1 :]] + [value > v for _, v in found[:at]]
            choices.append(z3.And(made == member.first, *largest))
        self.facts.append(z3.Or(choices))
        return made

    # ---- comparisons

    def compare(self, condition: Compare) -> Term:
        """The comparison as a Boolean term."""
        if condition not in self.memo:
            self.memo[condition] = self.compare_made(condition)
        return self.memo[condition]

    def compare_made(self, condition: Compare) -> Term:
        sign, left, right = condition.sign, condition.left, condition.right
        if self.constant(left) is not None:
            sign, left, right = MIRROR[sign], right, left
        limit, grid = self.constant(right), self.grid(left)
        if limit is not None and grid is not None:
            scaled = self.counts(left)
            if scaled is not None:  # a fraction: its count is what is compared
                return self.on_grid(sign, _Fractions(scaled.region.count()), limit)(
                    self.number(Count(scaled.region, scaled.sign, scaled.bound, False))
                )
            return self.on_grid(sign, grid, limit)(self.number(left))
        a, b = self.number(left), self.number(right)
        if left != right:
            scale = Fraction(max(1.0, abs(limit or 0.0)))
            same = grid is not None and self.grid(right) is not None  # two elements that are equal stay so
            self.margins[condition] = [self.apart(sign, a - b, scale / 2**bits, same) for bits in (12, 20)]
        return compared(sign, a, b)

    def apart(self, sign: Sign, difference: Term, margin: Fraction, same: bool) -> Term:
        """The two sides of a comparison at least ``margin`` apart, or equal where that is wanted or ``same``."""
        wanted = [difference >= rational(margin), difference <= rational(-margin)]
        return z3.Or(*wanted, difference == 0) if same or sign in ("==", "!=") else z3.Or(wanted)

    def comparison(self, sign: Sign, grid: Grid, bound: Numeric) -> Callable[[Term], Term]:
        """``element SIGN bound`` for elements on ``grid``."""
        limit = self.constant(bound)
        if limit is not None:
            return self.on_grid(sign, grid, limit)
        other = self.number(bound)
        return lambda value: compared(sign, value, other)

    def on_grid(self, sign: Sign, grid: Grid | _Fractions, limit: float) -> Callable[[Term], Term]:
        """``x SIGN limit`` for x on ``grid``; nothing lies between two neighbours of the grid."""
        if sign in ("==", "!="):
            on = grid.ceil(limit) == grid.floor(limit)

            def equal(x: Term) -> Term:
                not_above, below = self.split(x, grid, "<=", limit), self.split(x, grid, "<", limit)
                found = z3.And(not_above, z3.Not(below)) if on else z3.BoolVal(False)
                return found if sign == "==" else z3.Not(found)

            return equal
        if sign in ("<", "<="):
            return lambda x: self.split(x, grid, sign, limit)
        other: Sign = "<" if sign == ">=" else "<="
        return lambda x: z3.Not(self.split(x, grid, other, limit))

    def split(self, x: Term, grid: Grid | _Fractions, sign: Sign, limit: float) -> Term:
        """``x SIGN limit`` for "<" or "<="."""
        low, high = (grid.below, grid.ceil) if sign == "<" else (grid.floor, grid.above)
        if low(limit) == -math.inf or high(limit) == math.inf:
            return z3.BoolVal(high(limit) == math.inf)
        found = x <= rational(low(limit))
        gap = z3.Or(found, x >= rational(high(limit)))
        if not (isinstance(grid, _Fractions) or grid.integer) and gap.get_id() not in self.gaps:
            self.gaps[gap.get_id()] = gap
            self.facts.append(gap)
        return found

    def constant(self, value: Numeric) -> float | None:
        match value:
            case Constant(number, _):
                return number
            case ThresholdRef(name):
                return self.thresholds[name]
            case Minus(operand):
                inner = self.constant(operand)
                return None if inner is None else -inner
        return None

    def grid(self, value: Numeric) -> Grid | None:
        """The grid ``value`` lies on, ``None`` if it is rounded in binary64."""
        match value:
            case QuantityRef(name):
                return self.grid(self.quantities[name])
            case Element(region) | Percentile(_, region):
                return Grid(region.tensor.dtype)
            case Reduction("argmax", _) | Count():
                return Grid("uint64")
            case Reduction("max" | "min", region):
                return Grid(region.tensor.dtype)
        return None

    def counts(self, value: Numeric) -> Count | None:
        """``value`` if it is a fraction."""
        match value:
            case QuantityRef(name):
                return self.counts(self.quantities[name])
            case Count(_, _, _, True):
                return value
        return None


class Divided(Numbers):
    """Numbers whose quotients may be anything: ``divisors`` are the divisors, to be made zero."""

    def __init__(self, logic: Logic, guards: Mapping[str, Bounds], cells: Cells) -> None:
        self.divisors: list[Term] = []
        super().__init__(logic, guards, cells)

    def arithmetic(self, sign: str, left: Term, right: Term) -> Term:
        if sign != "/":
            return super().arithmetic(sign, left, right)
        self.divisors.append(right)
        return self.variable("quotient")


class _Fractions:
    """The numbers k / n as binary64 has them, by k."""

    def __init__(self, count: int) -> None:
        self.count = count

    def ceil(self, limit: float) -> float:
        return self.first(lambda x: x >= limit)

    def above(self, limit: float) -> float:
        return self.first(lambda x: x > limit)

    def floor(self, limit: float) -> float:
        return self.first(lambda x: x > limit) - 1

    def below(self, limit: float) -> float:
        return self.first(lambda x: x >= limit) - 1

    def first(self, holds: Callable[[float], bool]) -> float:
        low, high = 0, self.count + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle / self.count) else (middle + 1, high)
        return float(low)
