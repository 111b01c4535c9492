"""Deterministic inputs for the equivalence stage, within the policy's guards, the same on every machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.graph import storage
from evidence.reference.typed import to_bfloat16

F32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]
Range = tuple[float, float] | None
SPECIAL_INPUTS = 3
"""How many of a build's inputs are special rather than random, when there are more than that."""


def uniform24(count: int, seed: Sequence[int]) -> npt.NDArray[np.float64]:
    """``count`` multiples of 2^-24 in [0, 1) from PCG64's raw stream, whose values NumPy guarantees."""
    raw = np.random.PCG64(list(seed)).random_raw(count)
    return np.asarray(raw >> np.uint64(40), dtype=np.float64) * 2.0**-24


def tensor(shape: Sequence[int], bounds: Range, seed: Sequence[int]) -> F32:
    """Uniform over ``bounds``, or roughly normal (sum of 12 uniforms - 6) where the policy gives no range."""
    count = int(np.prod(shape, dtype=np.int64))
    if bounds is None:
        values = sum((uniform24(count, [*seed, k]) for k in range(12)), np.zeros(count)) - 6.0
    else:
        low, high = bounds
        values = low + (high - low) * uniform24(count, seed)
    flat = values.astype(np.float32)
    if bounds is not None:
        flat = np.clip(flat, np.float32(bounds[0]), np.float32(bounds[1]))
    return flat.reshape(shape)


def special(shape: Sequence[int], bounds: Range, number: int) -> F32:
    """Inputs that are not random: 0 the low end, 1 the high end of the range, 2 subnormals and huge cancellation."""
    low, high = bounds if bounds is not None else (0.0, 1.0)
    if number == 0:
        return np.full(shape, low, np.float32)
    if number == 1:
        return np.full(shape, high, np.float32)
    base = tensor(shape, None, [77, number])
    scaled = np.where(
        np.arange(base.size).reshape(base.shape) % 3 == 0, base * np.float32(1e-41), base * np.float32(1e6)
    )
    return scaled if bounds is None else np.clip(np.abs(scaled) % np.float32(1.0), np.float32(low), np.float32(high))


def converted(values: F32, dtype: str, bounds: Range, seed: Sequence[int]) -> Array:
    """``values`` as another element type. Integers are drawn anew: over the range, all of an 8-bit type, else 0 to 3,
    which is a valid index, length or label almost everywhere."""
    kind = storage(dtype).kind
    if kind == "V":
        return to_bfloat16(values.astype(np.float64))
    if kind == "f":
        return values.astype(storage(dtype))
    if kind == "b":
        return np.asarray(values > np.float32(np.median(values)))
    info = np.iinfo(dtype)
    low, high = bounds if bounds is not None else (info.min, info.max) if info.bits == 8 else (0, 3)
    drawn = np.floor(low + (high - low + 1) * uniform24(values.size, seed)).reshape(values.shape)
    return np.clip(drawn, max(low, info.min), min(high, info.max)).astype(dtype)


def make_inputs(
    shapes: Mapping[str, Sequence[int]],
    bounds: Mapping[str, Range],
    count: int,
    seed: int,
    dtypes: Mapping[str, str] | None = None,
) -> list[dict[str, Array]]:
    """``count`` sets of inputs by name, float32 unless ``dtypes`` says otherwise; the first three are the special ones
    when there are more."""
    sets = []
    for index in range(count):
        one: dict[str, Array] = {}
        for position, (name, shape) in enumerate(shapes.items()):
            if count > SPECIAL_INPUTS and index < SPECIAL_INPUTS:
                one[name] = special(shape, bounds.get(name), index)
            else:
                one[name] = tensor(shape, bounds.get(name), [seed, index, position])
            dtype = (dtypes or {}).get(name, "float32")
            if dtype != "float32":
                one[name] = converted(one[name], dtype, bounds.get(name), [seed, index, position, 1])
            one[name] = np.asarray(one[name])  # NumPy makes numbers of arrays without axes
        sets.append(one)
    return sets
