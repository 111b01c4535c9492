"""Worlds in which an inference fails: a guard of a tensor broken, a quantity that is no number, a refusal, lockstep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from compiler_kernels.ir.dtypes import numpy_dtype
from compiler_kernels.policy.logic_tree import Logic, regions
from evidence.coverage.cells import Array, numbers_of
from evidence.coverage.grids import Bounds, Grid, element_bounds
from evidence.coverage.intervals import guarded

PRETENDED = {1: "a refusal", 2: "a difference in lockstep", 4: "a broken input guard", 8: "a broken output guard"}
"""Flags of a vector, as `--decide --vectors` takes them, and what they pretend."""
Made = tuple[dict[tuple[str, int], Array], int, str]


def failing_worlds(logic: Logic, guards: Mapping[str, Bounds], base: Mapping[tuple[str, int], Array]) -> Iterator[Made]:
    """``(world, flags, purpose)`` made from the world ``base``."""
    for flag, words in PRETENDED.items():
        yield dict(base), flag, words
    for tensor in logic.tensors:
        grid, guard = Grid(tensor.dtype), guards.get(tensor.name)
        low, high = element_bounds(tensor, guards)
        odd: list[tuple[str, float]] = []
        if not grid.integer:
            odd += [("NaN", math.nan), ("infinity", math.inf), ("-infinity", -math.inf)]
        if guard is not None and guard.any:
            odd += [("below its range", grid.below(low)), ("above its range", grid.above(high))]
            odd += [("at the low end of its range", low), ("at the high end of its range", high)]
        for words, value in odd:
            if grid.integer and not math.isfinite(value):
                continue
            for place, index in (("first", 0), ("last", -1)):
                yield (
                    with_element(base, (tensor.space, tensor.index), index, value),
                    0,
                    (f"{place} element of {tensor.name} {words}"),
                )
    for region in dict.fromkeys(r for number in numbers_of(logic) for r in regions(number)):
        tensor = region.tensor
        if not Grid(tensor.dtype).integer and not guarded(tensor.name, guards):
            flat = np.ravel_multi_index(region.start, tensor.shape) if tensor.shape else 0
            made = with_element(base, (tensor.space, tensor.index), int(flat), math.nan)
            yield made, 0, f"NaN in {tensor.name} where a number reads"


def with_element(
    base: Mapping[tuple[str, int], Array], key: tuple[str, int], index: int, value: float
) -> dict[tuple[str, int], Array]:
    """``base`` with one element of one tensor replaced."""
    made = dict(base)
    array = made[key].copy()
    array.reshape(-1)[index] = numpy_dtype(str(array.dtype)).type(value)
    made[key] = array
    return made
