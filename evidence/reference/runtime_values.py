"""Operations that compare a run-time value with what the graph was compiled for; any other value is a refusal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.errors import Refusal
from evidence.reference.graph import RefNode


def checked(ar: Arithmetic, node: RefNode, y: Array, s: Array) -> Array:
    """y, where every element of s is among its alternatives; one element at most may be the wildcard instead."""
    allowed = np.asarray(node.attrs["expected"], np.float64 if s.dtype.kind == "f" else np.int64).reshape(s.size, -1)
    wrong = ~(s.reshape(-1, 1) == allowed).any(axis=1)
    if "wildcard" in node.attrs:
        open_ = wrong & (s.reshape(-1) == node.attrs["wildcard"])
        if open_.sum() <= 1:
            wrong &= ~open_
    if wrong.any():
        raise Refusal(str(node.attrs["message"]))
    return y


def by_axes(ar: Arithmetic, node: RefNode, s: Array, *values: Array) -> Array:
    """The value that belongs to the set of axes in s; negative axes count from the end."""
    rank, axes = int(node.attrs["rank"]), [int(a) for a in s.reshape(-1)]
    named = {a + rank if a < 0 else a for a in axes}
    for mask, pick in zip(node.attrs["masks"], node.attrs["picks"], strict=True):
        if named == {a for a in range(rank) if mask >> a & 1}:
            return values[int(pick)]
    raise Refusal(str(node.attrs["message"]))


RUNTIME: dict[str, Callable[..., Array]] = {"checked": checked, "by_axes": by_axes}
"""Operators of any element type."""
