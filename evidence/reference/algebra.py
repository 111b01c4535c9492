"""Determinants by elimination and counts of n-grams (docs/arithmetic.md, section 21)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode


def det(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """``[..., n, n]`` to ``[...]``."""
    with np.errstate(all="ignore"):
        flat = [_determinant(ar, m.copy()) for m in x.reshape(-1, *x.shape[-2:])]
    return np.array(flat, x.dtype).reshape(x.shape[:-2])


def _determinant(ar: Arithmetic, m: Array) -> Array:
    """The product of the pivots, signed; of equal magnitudes the upper row is the pivot's."""
    result = np.asarray(m.dtype.type(1))
    for k in range(len(m)):
        best = k
        for r in range(k + 1, len(m)):
            if abs(m[r, k]) > abs(m[best, k]):
                best = r
        if best != k:
            m[[k, best]] = m[[best, k]]
            result = -result
        pivot = m[k, k]
        result = np.asarray(result * pivot)
        factors = np.zeros_like(m[k + 1 :, k]) if pivot == 0 else m[k + 1 :, k] / pivot
        if k + 1 < len(m):
            m[k + 1 :, k + 1 :] = ar.fma(
                np.broadcast_to(-factors[:, None], (len(factors), len(factors))),
                np.broadcast_to(m[k, k + 1 :], (len(factors), len(factors))),
                m[k + 1 :, k + 1 :],
            )
    return result


def count_ngrams(ar: Arithmetic, node: RefNode, x: Array, grams: Array) -> Array:
    """How often each gram stands in a row, its elements 1 to ``skips`` + 1 places apart, added up per column."""
    skips = int(node.attrs["skips"])
    counts = np.zeros((len(x), int(node.attrs["columns"])), ar.dtype)
    for gram in grams.astype(np.int64):
        n, column, elements = int(gram[0]), int(gram[1]), gram[2 : 2 + int(gram[0])]
        for step in range(1, 2 if n == 1 else skips + 2):
            reach = (n - 1) * step + 1
            for at in range(x.shape[1] - reach + 1):
                counts[:, column] += (x[:, at : at + reach : step] == elements).all(axis=1)
    return counts


ALGEBRA: dict[str, Callable[..., Array]] = {"det": det, "count_ngrams": count_ngrams}
