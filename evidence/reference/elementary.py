"""The elementary functions of docs/arithmetic-elementary.md, step by step as written there, over binary32 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.rounding import F32, F64, fmaf

U32 = npt.NDArray[np.uint32]


def _from_bits(pattern: int) -> np.float32:
    value: np.float32 = np.array([pattern], dtype=np.uint32).view(np.float32)[0]
    return value


def _table(*patterns: int) -> tuple[np.float32, ...]:
    return tuple(_from_bits(p) for p in patterns)


_F = np.float32
_MAGIC = _from_bits(0x4B400000)
_LOG2E, _LN2HI, _LN2LO = _table(0x3FB8AA3B, 0x3F317200, 0x35BFBE8E)
_EXP = (*_table(0x3AB5628C, 0x3C091EE6, 0x3D2AAC2C, 0x3E2AAA46, 0x3EFFFFFE), _F(1), _F(1))
_LN2 = _from_bits(0x3F317218)
_LOG = _table(
    0xBDFFDEF8, 0x3E0FF7E0, 0xBDFB58FF, 0x3E0F4170, 0xBE2ABF1A, 0x3E4CEAC4, 0xBE7FFFCA, 0x3EAAAA7D, 0xBF000000
)
_ERF_SMALL = _table(0xBA29A067, 0x3BA65839, 0xBCDBAF6F, 0x3DE713BD, 0xBEC09397, 0x3E0375D4)
_ERF_LARGE = _table(0x36E1BEB0, 0xB992330F, 0x3B63506B, 0xBCBFBB48, 0x3DD8BFD5, 0x3F22A8B4, 0x3E03ADC0)
_TANH = _table(0xBBBE4B7B, 0x3CA9EBE8, 0xBD5C44A2, 0x3E0884F8, 0xBEAAAAA2)


def _bits(x: Any) -> U32:
    """Patterns of a binary32 array; scalars become arrays of no dimension."""
    return np.asarray(x, dtype=np.float32).reshape(-1).view(np.uint32).reshape(np.shape(x))


def _float(pattern: Any) -> F32:
    return np.asarray(pattern, dtype=np.uint32).reshape(-1).view(np.float32).reshape(np.shape(pattern))


def _horner(v: F32, coefficients: tuple[np.float32, ...]) -> F32:
    r: Any = coefficients[0]
    for c in coefficients[1:]:
        r = fmaf(r, v, c)
    return np.asarray(r)


def _with_sign(a: F32, b: F32) -> F32:
    return _float((_bits(a) & np.uint32(0x7FFFFFFF)) | (_bits(b) & np.uint32(0x80000000)))


def exp(x: F32) -> F32:
    """Section 2."""
    with np.errstate(all="ignore"):
        a = np.where(_F(-104) > x, _F(-104), x)
        b = np.where(a > _F(89), _F(89), a)
        t = fmaf(b, _LOG2E, _MAGIC)
        n = t - _MAGIC
        r = fmaf(n, -_LN2LO, fmaf(n, -_LN2HI, b))
        p = _horner(r, _EXP)
        c = np.where(x > 0, _F(2.0**24), _F(2.0**-24))
        s = _float((_bits(t) << np.uint32(23)) + np.uint32(0x7F000000) - _bits(c))
        return np.asarray((p * s) * c)


def log(x: F32) -> F32:
    """Section 3."""
    with np.errstate(all="ignore"):
        tiny = _F(2.0**-126) > x
        a = np.where(tiny, x * _F(2.0**23), x)
        m = np.where(tiny, _MAGIC + _F(23), _MAGIC)
        k = np.asarray(_bits(a) - np.uint32(0x3F2AAAAB)).astype(np.int32) >> np.int32(23)
        unsigned = np.asarray(k).astype(np.uint32)
        f = _float(_bits(a) - (unsigned << np.uint32(23))) - _F(1)
        e = _float(unsigned + np.uint32(0x4B400000)) - m
        s = f * f
        r = fmaf(e, _LN2, fmaf(_horner(f, _LOG), s, f))
        r = np.where(_F(np.inf) > x, r, x)
        z = np.where(x < 0, _F(np.nan), x - _F(np.inf))
        return np.where(x > 0, r, z)


def erf(x: F32) -> F32:
    """Section 4."""
    with np.errstate(all="ignore"):
        t = np.abs(x)
        small = fmaf(_horner(t * t, _ERF_SMALL), t, t)
        u = np.where(t > 4, _F(4), t)
        g = fmaf(_horner(u, _ERF_LARGE), u, u)
        large = _F(1) - exp(-g)
        return _with_sign(np.where(t > _from_bits(0x3F520000), large, small), x)


def tanh(x: F32) -> F32:
    """Section 5."""
    with np.errstate(all="ignore"):
        t = np.abs(x)
        s = t * t
        small = fmaf(_horner(s, _TANH) * s, t, t)
        u = np.where(t > _F(9.125), _F(9.125), t)
        e = exp(np.asarray(u + u))
        large = fmaf(_F(-2), _F(1) / (e + _F(1)), _F(1))
        return _with_sign(np.where(t > _F(0.625), large, small), x)


def sigmoid(x: F32) -> F32:
    """Section 6."""
    with np.errstate(all="ignore"):
        e = exp(-np.abs(x))
        return np.asarray(np.where(x < 0, e, _F(1)) / (_F(1) + e))


def pow(x: F32, y: F32) -> F32:
    """Section 7; operands of one shape."""
    with np.errstate(all="ignore"):
        a, b = np.abs(x), np.abs(y)
        whole = _whole(b)
        odd = whole & ~_whole(b * _F(0.5))
        wide = np.where(a == 0, -np.inf, np.where(a == _F(np.inf), np.inf, _log2(a)))
        r = np.where(a == 1, _F(1), _exp2(y.astype(np.float64) * wide))
        result = np.where(odd & (_bits(x) >> np.uint32(31) != 0), -r, r)
        # The rules in reverse order, so that the first that applies has the last word.
        result = np.where((x < 0) & (a < _F(np.inf)) & ~whole, _F(np.nan), result)
        result = np.where(np.isnan(x) | np.isnan(y), _F(np.nan), result)
        result = np.where((y == 0) | (x == 1), _F(1), result)
        result = np.where(y == 3, (x * x) * x, result)
        return np.where(y == 2, x * x, result)


def _whole(v: F32) -> npt.NDArray[np.bool_]:
    shift = _F(2.0**23)
    return np.asarray((v >= shift) | ((v + shift) - shift == v))


_LOG2_TERMS = tuple(1 / k for k in (19, 17, 15, 13, 11, 9, 7, 5, 3))
_EXP2_TERMS = (
    *(1 / k for k in (39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6)), 0.5, 1.0, 1.0,
)  # fmt: skip


def _horner64(v: F64, coefficients: tuple[float, ...]) -> F64:
    r: Any = np.float64(coefficients[0])
    for c in coefficients[1:]:
        r = (r * v) + c
    return np.asarray(r)


def _log2(a: F32) -> F64:
    pattern = a.astype(np.float64).reshape(-1).view(np.int64)
    k = (pattern - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
    m = (pattern - (k << np.int64(52))).view(np.float64)
    f = (m + -1.0) / (m + 1.0)
    s = f * f
    q = ((_horner64(s, _LOG2_TERMS) * s) * f) + f
    return np.asarray((q * float.fromhex("0x1.71547652b82fep+1")) + k.astype(np.float64)).reshape(a.shape)


def _exp2(z: F64) -> F32:
    c = np.where(z > 160, 160.0, z)
    c = np.where(c < -160, -160.0, c)
    n = (c + 1.5 * 2.0**52) + -1.5 * 2.0**52
    r = (c + -n) * float.fromhex("0x1.62e42fefa39efp-1")
    whole = np.where(np.isnan(n), 0, n).astype(np.int32)
    return np.asarray(np.ldexp(_horner64(r, _EXP2_TERMS), whole)).astype(np.float32)
