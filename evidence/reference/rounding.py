"""Correctly rounded binary32 fused multiply-add in NumPy, and chains of it.

A product of two binary32 numbers is exact in binary64. Adding the third operand in binary64 and narrowing to binary32
rounds twice, which differs from one rounding only where the binary64 sum lies on a midpoint between two binary32
numbers (or where the result is subnormal, whose midpoints lie elsewhere). Those elements are found and rounded to odd
first: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd"
(IEEE Trans. Computers 57(4), 2008): with 53 >= 24 + 2 bits the later narrowing is then correct.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

_BELOW_BINARY32 = np.int64((1 << 29) - 1)
_MIDPOINT = np.int64(1 << 28)
_SMALLEST_NORMAL = 2.0**-126
# Elements per inner step: the six scratch arrays of this length together stay inside a second-level cache.
_BLOCK = 1 << 14


def _narrow_rounded_to_odd(product: F64, addend: F64) -> F32:
    """``product + addend`` (finite binary64) rounded once to binary32."""
    total = product + addend
    virtual = total - product
    error = (product - (total - virtual)) + (addend - virtual)  # exact (Knuth's TwoSum)
    even = (total.view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    odd = np.where((error != 0) & even, np.nextafter(total, toward), total)
    return odd.astype(np.float32)


def add_and_narrow(product: F64, addend: F64) -> F32:
    """``product + addend`` rounded once to binary32; both binary64, of one shape, each exactly representable."""
    with np.errstate(all="ignore"):
        total = product + addend
        result: F32 = total.astype(np.float32)
        suspect = (total.view(np.int64) & _BELOW_BINARY32) == _MIDPOINT
        suspect |= np.abs(total) < _SMALLEST_NORMAL
        if suspect.any():
            result[suspect] = _narrow_rounded_to_odd(product[suspect], addend[suspect])
    return result


def fmaf(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F32:
    """IEEE 754-2019 fusedMultiplyAdd of binary32 arrays (broadcast), rounded to nearest even, subnormals kept."""
    with np.errstate(all="ignore"):
        x, y, z = (np.asarray(v, dtype=np.float32).astype(np.float64) for v in (a, b, c))
        product, addend = np.broadcast_arrays(x * y, z)
    # At least one dimension and contiguous, so that the bit view and the masked assignment work on scalars too.
    shape = product.shape
    return add_and_narrow(np.ascontiguousarray(product).reshape(-1), np.ascontiguousarray(addend).reshape(-1)).reshape(
        shape
    )


def _sums_can_be_inexact_subnormals(x: F32, w: F32) -> bool:
    """False when no binary64 sum below 2^-126 can have been rounded, so that the midpoint test alone is enough.

    With |x| >= 2^p and |w| >= 2^q every product is a multiple of 2^(p+q-46); a sum below 2^-126 of such multiples (and
    of binary32 numbers, multiples of 2^-149) fits in 53 bits when p + q - 46 >= -178.
    """
    smallest = 1.0
    for operand in (x, w):
        magnitude = np.abs(operand)
        nonzero = magnitude[magnitude > 0]
        if nonzero.size:
            smallest *= float(nonzero.min())
    return not smallest >= 2.0**-128


def fma_chains(x: F32, w: F32) -> F32:
    """One chain ``acc = +0; acc = fma(x, w, acc)`` per output element.

    ``x`` is ``[R, T, P]``, ``w`` is ``[R, T, M]``, both binary32; the result is ``[R, M, P]`` and element ``(r, m, p)``
    is the chain over ``t`` ascending of ``x[r, t, p] * w[r, t, m]``. Blocks keep the scratch arrays in cache.
    """
    rows, taps, pixels = x.shape
    columns = w.shape[2]
    if columns > pixels:  # the longer axis goes innermost; multiplication commutes
        return np.ascontiguousarray(fma_chains(w, x).transpose(0, 2, 1))
    out = np.zeros((rows, columns, pixels), dtype=np.float32)
    if out.size == 0 or taps == 0:
        return out
    check_subnormals = _sums_can_be_inexact_subnormals(x, w)
    pixel_step = min(pixels, _BLOCK)
    column_step = max(1, min(columns, _BLOCK // pixel_step))
    row_step = max(1, min(rows, _BLOCK // (pixel_step * column_step)))
    with np.errstate(all="ignore"):
        for r in range(0, rows, row_step):
            for p in range(0, pixels, pixel_step):
                xs = x[r : r + row_step, :, p : p + pixel_step].transpose(1, 0, 2).astype(np.float64, order="C")
                for m in range(0, columns, column_step):
                    ws = w[r : r + row_step, :, m : m + column_step].transpose(1, 0, 2).astype(np.float64, order="C")
                    out[r : r + row_step, m : m + column_step, p : p + pixel_step] = _chain_block(
                        xs[:, :, None, :], ws[:, :, :, None], check_subnormals
                    )
    return out


def _chain_block(xs: F64, ws: F64, check_subnormals: bool) -> F32:
    """The chains of one block: ``xs`` is ``[T, r, 1, p]``, ``ws`` is ``[T, r, m, 1]``, both exact binary32 values."""
    shape = (xs.shape[1], ws.shape[2], xs.shape[3])
    acc = np.zeros(shape, dtype=np.float64)
    product = np.empty(shape, dtype=np.float64)
    total = np.empty(shape, dtype=np.float64)
    bits: npt.NDArray[Any] = total.view(np.int64)
    low = np.empty(shape, dtype=np.int64)
    suspect = np.empty(shape, dtype=np.bool_)
    narrow = np.empty(shape, dtype=np.float32)
    for x, w in zip(xs, ws, strict=True):
        np.multiply(x, w, out=product)
        np.add(product, acc, out=total)
        np.copyto(narrow, total, casting="same_kind")
        np.bitwise_and(bits, _BELOW_BINARY32, out=low)
        np.equal(low, _MIDPOINT, out=suspect)
        if check_subnormals:
            suspect |= np.abs(total) < _SMALLEST_NORMAL
        if suspect.any():
            narrow[suspect] = _narrow_rounded_to_odd(product[suspect], acc[suspect])
        np.copyto(acc, narrow)
    return narrow
