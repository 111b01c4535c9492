"""Numbers of the clinical logic from tensors (docs/clinical.md), in binary64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.typed import BFLOAT16, from_bfloat16

Array = npt.NDArray[Any]
NAN = np.float64(np.nan)


def wide(values: Array) -> npt.NDArray[np.float64]:
    """Every element as binary64; integers past 2^53 round to nearest even."""
    return (from_bfloat16(values) if values.dtype == BFLOAT16 else values).astype(np.float64)


def part(values: Array, axes: Sequence[slice] | None) -> npt.NDArray[np.float64]:
    """The positions ``axes`` of a tensor (all of it for ``None``), flat in row-major order."""
    chosen = values if axes is None else values[tuple(axes)]
    return wide(np.ascontiguousarray(chosen)).reshape(-1)


def holds(values: Array, guard: Mapping[str, Any]) -> bool:
    """Whether every element is finite and in range, as a policy's ``inputs.NAME`` asks. The bounds are included,
    rounded to binary32 where the values are that, and NaN is in no range."""
    flat = wide(values).reshape(-1)
    if guard.get("finite") and not np.all(np.isfinite(flat)):
        return False
    if guard.get("range") is None:
        return True
    low, high = (float(np.float32(b)) if values.dtype == np.float32 else float(b) for b in guard["range"])
    return bool(np.all((flat >= low) & (flat <= high)))


def measure(
    function: str, flat: npt.NDArray[np.float64], sign: str = "", bound: np.float64 = NAN, percent: float = 0.0
) -> np.float64:
    """``function`` of the elements ``flat``; NaN where one of them, or ``bound`` of a count, is NaN."""
    counts = function in ("area", "fraction")
    if np.any(np.isnan(flat)) or (counts and np.isnan(bound)):
        return NAN
    if function == "element":
        return np.float64(flat[0]) if flat.size == 1 else NAN
    if function in ("sum", "mean"):
        # accumulate adds one after the other; a reduction would add in pairs
        total = np.add.accumulate(np.concatenate([np.zeros(1), flat]))[-1]
        return np.float64(total) if function == "sum" else np.float64(total / np.float64(flat.size))
    if counts:
        number = np.float64(np.count_nonzero(compared(sign, flat, bound)))
        return number if function == "area" else np.float64(number / np.float64(flat.size))
    if flat.size == 0:
        return NAN
    match function:
        case "max":
            return np.float64(flat[np.argmax(flat)])
        case "min":
            return np.float64(flat[np.argmin(flat)])
        case "argmax":
            return np.float64(np.argmax(flat))
    rank = max(1, math.ceil(percent * flat.size / 100.0))
    order = np.lexsort((~np.signbit(flat), flat))  # -0 before +0
    return np.float64(flat[order[rank - 1]])


def compared(sign: str, left: Any, right: np.float64) -> npt.NDArray[np.bool_]:
    """``left SIGN right`` as IEEE 754 says, element by element."""
    operation = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}
    return np.asarray(operation.get(sign, np.not_equal)(left, right))
