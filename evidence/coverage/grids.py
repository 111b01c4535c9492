"""Which values a tensor's elements and their reductions can have, so that a comparison with a constant is exact.

A number such as ``max(mask)`` lies on the grid of the tensor's element type: ``max(mask) > 0.3`` is the same as
``max(mask) >= 0.3000000119...``, the next binary32 number. Written so, a solution over the reals keeps every comparison
when it is rounded to the grid, and a proof over the reals speaks about the grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler_kernels.ir.dtypes import DTYPES, numpy_dtype
from compiler_kernels.policy.logic_tree import Tensor
from compiler_kernels.policy.schema import Policy


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the policy's guard lets a tensor hold; infinite where there is no bound. ``finite``: no NaN, no infinity."""

    finite: bool
    low: float = -math.inf
    high: float = math.inf

    @property
    def any(self) -> bool:
        return self.finite or self.low > -math.inf or self.high < math.inf


class Grid:
    """The finite numbers of an element type, as the binary64 numbers they convert to."""

    def __init__(self, dtype: str) -> None:
        row = DTYPES[dtype]
        self.integer = row.kind != "float"
        self.type = numpy_dtype(dtype).type
        if self.integer:
            self.low, self.high = float(row.lowest), float(row.highest)
        else:
            largest = _LARGEST_BFLOAT16 if dtype == "bfloat16" else float(np.finfo(numpy_dtype(dtype)).max)
            self.low, self.high = -largest, largest

    def ceil(self, value: float) -> float:
        """The least number of the grid that is not below ``value``; infinity where there is none."""
        if value > self.high:
            return math.inf
        if value <= self.low:
            return self.low
        if self.integer:
            return float(math.ceil(value))
        near = self.nearest(value)
        return near if near >= value else self._step(near, 1)

    def floor(self, value: float) -> float:
        """The largest number of the grid that is not above ``value``; -infinity where there is none."""
        if not self.integer:
            return -self.ceil(-value)
        if value < self.low:
            return -math.inf
        return self.high if value >= self.high else float(math.floor(value))

    def above(self, value: float) -> float:
        """The least number of the grid above ``value``."""
        found = self.ceil(value)
        return found if found > value else self._step(found, 1)

    def below(self, value: float) -> float:
        """The largest number of the grid below ``value``."""
        found = self.floor(value)
        return found if found < value else self._step(found, -1)

    def nearest(self, value: float) -> float:
        """The number of the grid nearest to ``value``, never -0."""
        inside = min(max(value, self.low), self.high)
        return float(round(inside)) if self.integer else float(self.type(inside)) + 0.0

    def _step(self, value: float, way: int) -> float:
        if value == (self.high if way > 0 else self.low):
            return math.inf * way
        if self.integer:  # from 2**53 on, integers convert to every binary64 number
            return value + way if abs(value) < 2.0**53 else math.nextafter(value, math.inf * way)
        return float(np.nextafter(self.type(value), self.type(math.inf * way)))


_LARGEST_BFLOAT16: Final = float(np.uint32(0x7F7F0000).view(np.float32))


def policy_bounds(policy: Policy) -> dict[str, Bounds]:
    """The guards of inputs and outputs by name."""
    return {
        name: Bounds(guard.finite, *(guard.range or (-math.inf, math.inf)))
        for name, guard in [*policy.inputs.items(), *policy.outputs.items()]
    }


def element_bounds(tensor: Tensor, guards: Mapping[str, Bounds]) -> tuple[float, float]:
    """Least and largest finite value, on the grid, that ``tensor`` may hold within its guard."""
    grid = Grid(tensor.dtype)
    guard = guards.get(tensor.name, Bounds(False))
    low, high = guard.low, guard.high
    if tensor.dtype == "float32":  # as the engine has them
        low, high = float(np.float32(low)), float(np.float32(high))
    return grid.ceil(low), grid.floor(high)
