"""Element types other than binary32: storage, casts, integers, comparisons and selection.

bfloat16 is not a NumPy type: its values are stored as two opaque bytes (``V2``), which is what ``.npy`` files say too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode, storage
from evidence.reference.order import first_max, first_min

BFLOAT16 = storage("bfloat16")


def to_bfloat16(x: Array) -> Array:
    """Floating-point values to bfloat16, to nearest even in one rounding: binary64 goes to binary32 rounded to odd."""
    wide = np.asarray(x, dtype=np.float64)
    single = wide.astype(np.float32)
    bits = single.view(np.uint32).astype(np.int64)
    inexact = np.isfinite(single) & (single.astype(np.float64) != wide)
    away = np.abs(single.astype(np.float64)) > np.abs(wide)
    # Round to odd: the neighbour of smaller magnitude with its last bit set, unless that bit is set already.
    bits = np.where(inexact, np.where(away, bits - 1, bits) | 1, bits)
    # An overflow of the narrowing is undone: the largest binary32 value, odd, still rounds to the right side.
    overflow = np.isinf(single) & np.isfinite(wide)
    bits = np.where(overflow, (bits & 0x80000000) | 0x7F7FFFFF, bits)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    rounded = np.where(np.isnan(wide), 0x7FC0, rounded)
    return rounded.astype("<u2").view(BFLOAT16)


def from_bfloat16(x: Array) -> Array:
    """Exact value in binary32."""
    return (np.ascontiguousarray(x).view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(x.shape)


def to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncate and saturate; NaN becomes 0."""
    info = np.iinfo(dtype)
    wide = np.trunc(np.asarray(x, dtype=np.float64))
    low, high = wide <= float(info.min), wide >= float(info.max)
    inside = np.where(np.isnan(wide) | low | high, 0.0, wide).astype(dtype)
    return np.where(low, dtype.type(info.min), np.where(high, dtype.type(info.max), inside))


def to_storage(x: Array, dtype: str) -> Array:
    """Binary64 numbers rounded once to a floating-point type, truncated and saturated to an integer one."""
    target = storage(dtype)
    if target.kind in "iu":
        return to_integer(x, target)
    with np.errstate(over="ignore"):
        return to_bfloat16(x) if target == BFLOAT16 else x.astype(target)


def cast(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """To ``node.attrs["to"]``; in the binary64 yardstick every floating-point type is binary64."""
    name = str(node.attrs["to"])
    target = storage(name)
    if x.dtype == BFLOAT16:
        x = from_bfloat16(x)
    if target.kind in "fV":
        if ar.dtype == np.float64:
            return x.astype(np.float64)
        if target == BFLOAT16:
            return to_bfloat16(x.astype(np.float64))
        if target == np.float16:
            return x.astype(np.float64).astype(np.float16)
        return x.astype(target)
    if target.kind == "b":
        return np.asarray(x != 0)
    return to_integer(x, target) if x.dtype.kind == "f" else x.astype(target)


def divide(a: Array, b: Array) -> Array:
    """Integers truncate towards zero, wrap at the lowest value, and give 0 for a division by zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    if a.dtype.kind == "u":
        return np.asarray(np.where(b == 0, a.dtype.type(0), a // np.where(b == 0, a.dtype.type(1), b)))
    safe = np.where((b == 0) | (b == -1), a.dtype.type(1), b)
    quotient = a // safe
    quotient = np.where((a % safe != 0) & ((a < 0) != (safe < 0)), quotient + a.dtype.type(1), quotient)
    return np.asarray(np.where(b == 0, a.dtype.type(0), np.where(b == -1, np.negative(a), quotient)))


def where(ar: Arithmetic, node: RefNode, condition: Array, x: Array, y: Array) -> Array:
    return np.asarray(np.where(condition, x, y)) if x.dtype.kind != "V" else _opaque_where(condition, x, y)


def _opaque_where(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition, x.view("<u2"), y.view("<u2")).astype("<u2").view(BFLOAT16)


def _plain(function: Callable[..., Any]) -> Callable[..., Array]:
    def operator(ar: Arithmetic, node: RefNode, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands))

    return operator


def clip(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """min(max(x, lo), hi) of integers or binary64 values."""
    lo, hi = node.attrs.get("lo"), node.attrs.get("hi")
    y = x if lo is None else first_max(x, x.dtype.type(lo))
    return y if hi is None else first_min(y, x.dtype.type(hi))


TYPED: dict[str, Callable[..., Array]] = {
    "cast": cast,
    "where": where,
    "equal": _plain(np.equal),
    "less": _plain(np.less),
    "less_or_equal": _plain(np.less_equal),
    "greater": _plain(np.greater),
    "greater_or_equal": _plain(np.greater_equal),
    "logical_and": _plain(np.logical_and),
    "logical_or": _plain(np.logical_or),
    "logical_xor": _plain(np.logical_xor),
    "logical_not": _plain(np.logical_not),
}
"""Operations of any element type."""

INTEGER: dict[str, Callable[..., Array]] = {
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "div": _plain(divide),
    "min": _plain(first_min),
    "max": _plain(first_max),
    "neg": _plain(np.negative),
    "abs": _plain(np.abs),
    "relu": _plain(lambda x: np.where(x > 0, x, x.dtype.type(0))),
    "clip": clip,
    "matmul": _plain(np.matmul),
}
"""What arithmetic means on integers; binary64 takes the operators of binary32 in its own type."""
