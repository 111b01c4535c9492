"""Correctly rounded binary64 fused multiply-add in NumPy.

The product is split into two binary64 numbers without error (Dekker's product with Veltkamp's splitting), and the sum
of three numbers is rounded once by rounding its tail to odd first: Boldo and Melquiond, "Emulation of a FMA and
correctly rounded sums: proved algorithms using rounding to odd" (IEEE Trans. Computers 57(4), 2008), algorithm Fmac.
Where an intermediate could leave the normal range, the element is computed with rational numbers.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

_SPLIT = 2.0**27 + 1.0
_LARGE, _SMALL = 2.0**480, 2.0**-400


def _two_sum(a: F64, b: F64) -> tuple[F64, F64]:
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _two_product(a: F64, b: F64) -> tuple[F64, F64]:
    parts = []
    for v in (a, b):
        scaled = _SPLIT * v
        high = scaled - (scaled - v)
        parts.append((high, v - high))
    (ah, al), (bh, bl) = parts
    product = a * b
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _to_odd(a: F64, b: F64) -> F64:
    """``a + b`` rounded to odd."""
    total, error = _two_sum(a, b)
    even = (np.ascontiguousarray(total).view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even, np.nextafter(total, toward), total)


def _by_fractions(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return 0.0  # the product is not zero here, so opposite numbers met
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def fma64(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F64:
    """IEEE 754-2019 fusedMultiplyAdd of binary64 arrays (broadcast), to nearest even, subnormals kept."""
    arrays = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (a, b, c)))
    shape = arrays[0].shape
    x, y, z = (np.ascontiguousarray(v).reshape(-1) for v in arrays)
    with np.errstate(all="ignore"):
        result: F64 = x * y + z  # right wherever the product is zero or an operand is not finite
        open_ = np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (x != 0) & (y != 0)
        fair = open_ & (np.abs(x) < _LARGE) & (np.abs(y) < _LARGE) & (np.abs(x * y) > _SMALL)
        fair &= (np.abs(z) < _LARGE) & ((np.abs(z) > _SMALL) | (z == 0))
        if fair.any():
            product, low = _two_product(x[fair], y[fair])
            upper, lower = _two_sum(z[fair], low)
            total, tail = _two_sum(product, upper)
            result[fair] = total + _to_odd(tail, lower)
    for k in np.flatnonzero(open_ & ~fair):
        result[k] = _by_fractions(float(x[k]), float(y[k]), float(z[k]))
    return result.reshape(shape)


def fma64_chains(x: F64, w: F64) -> F64:
    """``[R, T, P]`` and ``[R, T, M]`` to ``[R, M, P]``: per element one chain ``acc = +0; acc = fma(x, w, acc)``."""
    acc = np.zeros((x.shape[0], w.shape[2], x.shape[2]))
    for t in range(x.shape[1]):
        acc = fma64(x[:, t, None, :], w[:, t, :, None], acc)
    return acc
