"""Tensors cut into cells whose elements no expression of the logic tells apart, and worlds built from a few numbers.

A cell is a set of elements that lie in the same regions. The elements of small regions are cells of their own; a large
cell is divided into groups of fixed sizes, one number each, in ascending order. The sizes are chosen around the ranks
and counts that the logic speaks of, so that "the 95th percentile is 0.2 and 120 elements are above 0.5" has a solution
in a few numbers, and every reduction is a linear function of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler_kernels.ir.dtypes import numpy_dtype
from compiler_kernels.policy.logic_tree import (
    And,
    Arithmetic,
    AtLeast,
    Compare,
    Condition,
    Constant,
    Count,
    Logic,
    Minus,
    Not,
    Numeric,
    Or,
    Percentile,
    QuantityRef,
    Region,
    Tensor,
    ThresholdRef,
    regions,
)
from evidence.coverage.evaluate import rank_of
from evidence.coverage.grids import Bounds, Grid, element_bounds

SMALL = 8
"""Regions of at most so many elements have one number for each."""
MOST_CUTS = 24

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Group:
    """``count`` elements with one value, number ``index`` of those of its tensor, in the cell ``cell``.

    ``single``: the cell is this one element.
    """

    tensor: Tensor
    index: int
    count: int
    cell: int
    single: bool


@dataclass(frozen=True, slots=True)
class Member:
    """A group within a region: the region's first element of it, in row-major order, is ``first``."""

    group: Group
    first: int


class Cells:
    """The cells of every tensor that ``logic`` reads."""

    def __init__(self, logic: Logic) -> None:
        self.logic = logic
        self.regions = list(dict.fromkeys(r for value in numbers_of(logic) for r in regions(value)))
        self.groups: dict[Tensor, list[Group]] = {t: [] for t in logic.tensors}
        self.places: dict[Group, Array] = {}
        self.members: dict[Region, list[Member]] = {r: [] for r in self.regions}
        self.wanted = _wanted_counts(logic)
        for tensor in logic.tensors:
            mine = [r for r in self.regions if r.tensor == tensor]
            if mine:
                self._cut(tensor, mine)

    def _cut(self, tensor: Tensor, mine: list[Region]) -> None:
        flat = np.arange(math.prod(tensor.shape)).reshape(tensor.shape)
        inside = [box(flat, r).reshape(-1) for r in mine]
        label = np.zeros(flat.size, dtype=np.int64)
        for places in inside:
            label *= 2
            label[places] += 1
            label = np.unique(label, return_inverse=True)[1].reshape(-1)
        label = np.where(np.isin(np.arange(flat.size), np.concatenate(inside)), label, -1)
        single = [p for p in inside if p.size <= SMALL]
        alone = np.unique(np.concatenate(single)) if single else np.empty(0, dtype=np.int64)
        label[alone] = label.max(initial=0) + 1 + np.arange(alone.size)
        order = np.argsort(label, kind="stable")
        bounds = np.flatnonzero(np.diff(label[order], prepend=-2))
        for number, places in enumerate(np.split(order, bounds[1:])):
            if label[places[0]] < 0:
                continue
            around = [r for r, p in zip(mine, inside, strict=True) if np.isin(places[0], p)]
            sizes = _sizes(places.size, [self.wanted.get(r, []) for r in around])
            start = 0
            for size in sizes:
                group = Group(tensor, len(self.groups[tensor]), size, number, places.size == 1)
                self.groups[tensor].append(group)
                self.places[group] = places[start : start + size]
                start += size
        for region, places in zip(mine, inside, strict=True):
            position = np.full(flat.size, -1, dtype=np.int64)
            position[places] = np.arange(places.size)
            found = [Member(g, int(position[self.places[g]].min())) for g in self.groups[tensor]]
            self.members[region] = sorted((m for m in found if m.first >= 0), key=lambda m: m.first)

    def world(self, values: Mapping[Group, float], guards: Mapping[str, Bounds]) -> dict[tuple[str, int], Array]:
        """Tensors in which each group has its value and everything else a plain value within the guards."""
        made: dict[tuple[str, int], Array] = {}
        for tensor in self.logic.tensors:
            low, high = element_bounds(tensor, guards)
            dtype = numpy_dtype(tensor.dtype)
            array = np.full(math.prod(tensor.shape), min(max(0.0, low), high)).astype(dtype)
            for group in self.groups[tensor]:
                array[self.places[group]] = dtype.type(Grid(tensor.dtype).nearest(values[group]))
            made[tensor.space, tensor.index] = array.reshape(tensor.shape)
        return made


def box(array: Array, region: Region) -> Array:
    """The elements of ``region`` at the largest sizes."""
    found: Array = array[tuple(slice(a, b) for a, b in zip(region.start, region.stop, strict=True))]
    return found


def _sizes(count: int, wanted: list[list[int]]) -> list[int]:
    """Sizes of the groups of a cell of ``count`` elements, the counts ``wanted`` of its regions first."""
    cuts: list[int] = []
    for offset in (0, -1, 1):
        for counts in wanted:
            cuts += [c + offset for c in counts]
            cuts += [count - c - offset for c in counts]
        cuts += [(1, count - 1, count // 2)[offset]]
    inside = sorted(list(dict.fromkeys(c for c in cuts if 0 < c < count))[:MOST_CUTS])
    edges = [0, *inside, count]
    return [b - a for a, b in pairwise(edges)]


def _wanted_counts(logic: Logic) -> dict[Region, list[int]]:
    """Ranks and counts that the logic asks of each region."""
    found: dict[Region, list[int]] = {}
    quantities = {q.name: q.value for q in logic.quantities}
    thresholds = {t.name: t.value for t in logic.thresholds}

    def visit(value: Numeric, limit: float | None) -> None:
        match value:
            case QuantityRef(name):
                visit(quantities[name], limit)
            case Percentile(percent, region):
                found.setdefault(region, []).append(rank_of(percent, region.count()))
            case Count(region, _, bound, fraction):
                if limit is not None:
                    found.setdefault(region, []).append(math.ceil(limit * region.count() if fraction else limit))
                visit(bound, None)
            case Arithmetic(_, left, right):
                visit(left, None)
                visit(right, None)
            case Minus(operand):
                visit(operand, None)

    for condition in (*(d.when for d in logic.decisions), *(g.require for g in logic.guards)):
        for part in compares(condition):
            for side, other in ((part.left, part.right), (part.right, part.left)):
                visit(side, _limit(other, thresholds))
    return {region: list(dict.fromkeys(counts)) for region, counts in found.items()}


def _limit(value: Numeric, thresholds: Mapping[str, float]) -> float | None:
    match value:
        case Constant(number, _):
            return number
        case ThresholdRef(name):
            return thresholds[name]
    return None


def numbers_of(logic: Logic) -> Iterator[Numeric]:
    """Every number the logic names or compares."""
    for quantity in logic.quantities:
        yield quantity.value
    for condition in (*(d.when for d in logic.decisions), *(g.require for g in logic.guards)):
        for part in compares(condition):
            yield part.left
            yield part.right


def compares(condition: Condition) -> Iterator[Compare]:
    """The comparisons of a condition, also within at_least."""
    match condition:
        case And(operands) | Or(operands) | AtLeast(_, operands):
            for operand in operands:
                yield from compares(operand)
        case Not(operand):
            yield from compares(operand)
        case Compare():
            yield condition
