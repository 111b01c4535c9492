"""The numbers of the logic as Z3 terms that every possible tensor satisfies: what is unsatisfiable here is infeasible.

Regions of at most ``SMALL`` elements are exact. Of larger ones only what holds of any numbers is said: the order of
their ranks, the bounds those put on the sum, and on counts. Every binary64 operation may err by half a unit in the last
place. Both sides of a comparison are finite wherever one is evaluated: a number that is not ends the inference before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np
import z3

from compiler_kernels.policy.logic_tree import (
    Arithmetic,
    Count,
    Logic,
    Numeric,
    Reduction,
    Region,
    Sign,
    Tensor,
)
from evidence.coverage.cells import SMALL, Array, Cells, box
from evidence.coverage.grids import Bounds, Grid, element_bounds
from evidence.coverage.intervals import WHOLE, Intervals
from evidence.coverage.numbers import Numbers, Term, rational

HALF_UNIT: Final = Fraction(1, 2**53)
NARROW: Final = ("float32", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "bool")
"""Element types of at most 24 bits."""
SMALLEST: Final = Fraction(1, 2**1074)


class Relaxed(Numbers):
    """As ``Numbers``, for proofs."""

    def __init__(self, logic: Logic, guards: Mapping[str, Bounds], cells: Cells) -> None:
        self.ranks: dict[Region, dict[int, Term]] = {}
        self.areas: dict[Region, list[tuple[Term, Term, Term]]] = {}
        self.sums: dict[Region, tuple[Term, Term]] = {}
        self._places: dict[Region, Array] = {}
        self.bounded = Intervals(logic, guards, proved=True)
        super().__init__(logic, guards, cells)

    def extent(self, tensor: Tensor, largest: float) -> tuple[float, float]:
        return element_bounds(tensor, self.guards)

    def made(self, value: Numeric) -> Term:
        match value:
            case Arithmetic("/", left, right) if left == right:
                return rational(1)  # what is not finite is never compared
            case Arithmetic("/", _, right) if not self.bounded.finite(value) and self.bounded.of(right) == WHOLE:
                return self.variable("quotient")  # by what may be infinite
            case Reduction("mean", region):
                made = self.rounded(self.number(Reduction("sum", region)) / region.count())
                if self.large(region) and region.tensor.dtype in NARROW and region.count() <= 2**26:
                    self.facts += [made >= self.ranked(region, 1), made <= self.ranked(region, region.count())]
                return made
            case Count(_, _, bound, False) if not self.bounded.finite(bound):
                return self.variable("count", integer=True)
        found = super().made(value)
        return self.rounded(found, tiny=False) if isinstance(value, Count) and value.fraction else found

    def arithmetic(self, sign: str, left: Term, right: Term) -> Term:
        return self.rounded(super().arithmetic(sign, left, right), tiny=sign in "*/")

    def rounded(self, exact: Term, tiny: bool = True) -> Term:
        """``exact`` rounded to binary64; ``tiny``: it may be subnormal and not on that grid."""
        made = self.variable("rounded")
        slack = rational(HALF_UNIT) * _absolute(exact) + (rational(SMALLEST) if tiny else 0)
        self.facts += [made - exact <= slack, exact - made <= slack]
        if tiny:
            self.facts += [z3.Implies(exact >= 0, made >= 0), z3.Implies(exact <= 0, made <= 0)]
        return made

    # ---- reductions of large regions

    def large(self, region: Region) -> bool:
        return region.count() > SMALL

    def total(self, region: Region) -> Term:
        made, n = self.variable("sum"), region.count()
        if self.large(region):
            self.ranked(region, 1), self.ranked(region, n)
            ranks = sorted(self.ranks[region].items())
            lower, upper = ranks[-1][1], ranks[0][1]
            for (rank, low), (after, high) in pairwise(ranks):
                lower, upper = lower + (after - rank) * low, upper + (after - rank) * high
            extremes = [ranks[0][1], ranks[-1][1]]
            size = n * _largest([_absolute(e) for e in extremes])
        else:
            values = self.of(region)
            lower = upper = z3.Sum([m.group.count * v for m, v in values])
            size = z3.Sum([m.group.count * _absolute(v) for m, v in values])
        if self.large(region) and region.tensor.dtype in NARROW and n <= 2**26:
            # n times a number of at most 24 bits is exact, and rounding keeps the order
            self.facts += [made >= n * extremes[0], made <= n * extremes[1]]
        slack = rational(HALF_UNIT * n * 2) * size + rational(SMALLEST * n)
        self.facts += [made >= lower - slack, made <= upper + slack]
        self.sums[region] = made, slack
        for other, areas in self.areas.items():
            for area in areas:
                self.weighed(region, other, area)
        for other, known in self.ranks.items():
            for rank, value in list(known.items()):
                self.shared_sum(region, other, rank, value)
        return made

    def shared_sum(self, region: Region, other: Region, rank: int, value: Term) -> None:
        """An element of ``rank`` of a region that shares some bounds the sum of ``region``."""
        if region == other or region.tensor != other.tensor or not self.large(region):
            return
        (made, slack), n = self.sums[region], region.count()
        least, most = self.ranked(region, 1), self.ranked(region, n)
        shared = self.shared(region, other)
        below, above = shared - other.count() + rank, shared - (rank - 1)
        if below > 0:
            self.facts.append(made <= below * value + (n - below) * most + slack)
        if above > 0:
            self.facts.append(made >= above * value + (n - above) * least - slack)

    def shared(self, region: Region, other: Region) -> int:
        """How many elements the two regions share."""
        return int(np.intersect1d(self.places(region), self.places(other), assume_unique=True).size)

    def weighed(self, region: Region, other: Region, area: tuple[Term, Term, Term]) -> None:
        """How many elements of a region are beyond a constant border bounds the sum of one it shares elements with."""
        border, above, from_ = area
        (made, slack), n = self.sums[region], region.count()
        low, high = self.extent(region.tensor, 0)
        limit = border.as_fraction() if z3.is_rational_value(border) else None
        if region.tensor != other.tensor or limit is None or not low <= limit <= high:
            return
        shared = self.shared(region, other)
        low, high = rational(low), rational(high)
        for beyond in (above, from_):
            least = beyond - (other.count() - shared)
            most = shared - beyond
            self.facts += [
                made >= low * n + (border - low) * least - slack,
                made <= high * n - (high - border) * most + slack,
            ]

    def ranked(self, region: Region, rank: int) -> Term:
        if not self.large(region):
            return super().ranked(region, rank)
        known = self.ranks.setdefault(region, {})
        if rank not in known:
            made = known[rank] = self.variable("rank", integer=Grid(region.tensor.dtype).integer)
            low, high = self.extent(region.tensor, 0)
            self.facts += [made >= rational(low), made <= rational(high)]
            self.overlaps(region, rank, made)
            for other in self.sums:
                self.shared_sum(other, region, rank, made)
            for other, areas in self.areas.items():
                for area in areas:
                    self.linked(region, rank, made, other, area)
        return known[rank]

    def overlaps(self, region: Region, rank: int, made: Term) -> None:
        """The ranks of two regions that share elements are in order as far as the shared ones decide it."""
        ours = self.places(region)
        others: list[tuple[int, int, int, Term]] = [
            (1, 1, 1, value)
            for group, value in self.groups.items()
            if group.tensor == region.tensor and group.single and np.isin(self.cells.places[group][0], ours)
        ]
        for other, known in self.ranks.items():
            if other.tensor == region.tensor:
                shared = self.shared(region, other)
                others += [(other.count(), shared, r, v) for r, v in known.items() if v is not made]
        for size, shared, other_rank, value in others:
            # shared - (s - 1) of the shared elements at least are not below rank s of one region, so rank
            # n - shared + s of the other, of n elements, is not either
            if rank >= region.count() - shared + other_rank:
                self.facts.append(made >= value)
            if other_rank >= size - shared + rank:
                self.facts.append(value >= made)

    def places(self, region: Region) -> Array:
        if region not in self._places:
            shape = region.tensor.shape
            self._places[region] = box(np.arange(math.prod(shape)).reshape(shape), region).reshape(-1)
        return self._places[region]

    def counted(self, region: Region, sign: Sign, bound: Numeric) -> Term:
        if not self.large(region):
            return super().counted(region, sign, bound)
        limit, n = self.constant(bound), region.count()
        border = self.number(bound)
        above, from_ = self.variable("above", integer=True), self.variable("from", integer=True)
        self.facts += [above >= 0, above <= from_, from_ <= n]
        grid = Grid(region.tensor.dtype)
        if limit is not None and grid.ceil(limit) != grid.floor(limit):
            self.facts.append(above == from_)
        self.areas.setdefault(region, [])
        for other_region, areas in self.areas.items():
            if other_region.tensor == region.tensor:
                shared = self.shared(region, other_region)
                for other in areas:
                    self.nested((border, above, from_), other, other_region.count() - shared)
                    self.nested(other, (border, above, from_), n - shared)
        self.areas[region].append((border, above, from_))
        for other_region in self.sums:
            self.weighed(other_region, region, (border, above, from_))
        self.ranked(region, 1), self.ranked(region, n)
        for other_region, ranks in self.ranks.items():
            for rank, value in ranks.items():
                self.linked(other_region, rank, value, region, (border, above, from_))
        match sign:
            case ">":
                return above
            case ">=":
                return from_
            case "<":
                return n - from_
            case "<=":
                return n - above
            case "==":
                return from_ - above
        return n - from_ + above

    def nested(self, lower: tuple[Term, Term, Term], upper: tuple[Term, Term, Term], outside: int) -> None:
        """What is beyond a border is beyond every lower one, but for ``outside`` elements of the upper's region."""
        (border, above, from_), (other, other_above, other_from) = lower, upper
        self.facts += [
            z3.Implies(border <= other, z3.And(other_above <= above + outside, other_from <= from_ + outside)),
            z3.Implies(border < other, other_from <= above + outside),
        ]

    def linked(self, ranked: Region, rank: int, value: Term, counted: Region, area: tuple[Term, Term, Term]) -> None:
        """An element of ``rank`` beyond a border says how many elements are, also of a region that shares some."""
        border, above, from_ = area
        n, size = ranked.count(), counted.count()
        if ranked == counted:
            enough = n - rank + 1
            self.facts += [(value > border) == (above >= enough), (value >= border) == (from_ >= enough)]
        elif ranked.tensor == counted.tensor:
            shared = self.shared(ranked, counted)
            high, low = shared - (rank - 1), shared - n + rank
            if high > 0:
                self.facts += [z3.Implies(value > border, above >= high), z3.Implies(value >= border, from_ >= high)]
            if low > 0:
                self.facts += [
                    z3.Implies(value < border, size - from_ >= low),
                    z3.Implies(value <= border, size - above >= low),
                ]

    def position(self, region: Region) -> Term:
        if not self.large(region):
            return super().position(region)
        made, most = self.variable("argmax", integer=True), self.ranked(region, region.count())
        self.facts += [made >= 0, made <= region.count() - 1]
        for member in self.cells.members[region]:
            if member.group.single:
                value = self.groups[member.group]
                self.facts.append(z3.Implies(made == member.first, value == most))
                self.facts.append(z3.Implies(value == most, made <= member.first))
        return made


def _absolute(value: Term) -> Term:
    return z3.If(value < 0, -value, value)


def _largest(values: list[Term]) -> Term:
    first, second = values
    return z3.If(first < second, second, first)
