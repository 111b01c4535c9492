"""The binary64 functions of docs/arithmetic-binary64.md, step by step as written there, over binary64 arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evidence.reference import binary64_constants as c
from evidence.reference.rounding import F64

_SHIFT = 1.5 * 2.0**52
_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)


def horner(v: F64, coefficients: Sequence[float]) -> Any:
    """``r = r * v + c``, two roundings a step."""
    r: Any = np.float64(coefficients[0])
    for coefficient in coefficients[1:]:
        r = (r * v) + coefficient
    return r


def _bits(x: F64) -> Any:
    return np.ascontiguousarray(x).reshape(-1).view(np.int64).reshape(np.shape(x))


def _number(bits: Any) -> F64:
    return np.ascontiguousarray(bits).reshape(-1).view(np.float64).reshape(np.shape(bits))


def _scale(p: F64, n: Any) -> F64:
    """``p * 2^n`` with one rounding; NaN has no n."""
    whole = np.where(np.isnan(n), 0, n).astype(np.int64)
    half = whole >> 1
    return np.asarray((p * np.ldexp(1.0, half)) * np.ldexp(1.0, whole - half))


def _exp_small(r: F64, low: F64) -> F64:
    q = horner(r, c.inverse_factorials(13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2))
    return np.asarray(1.0 + (r + ((r * r) * q + low)))


def exp_sum(x: F64, t: Any) -> F64:
    """Section 2: e^(x + t)."""
    b = np.where(x > 710.0, 710.0, x)
    b = np.where(b < -746.0, -746.0, b)
    n = (b * c.LOG2_E + _SHIFT) - _SHIFT
    high, low = b - n * c.LN2_HI, n * c.LN2_LO - t
    r = high - low
    return _scale(_exp_small(r, (high - r) - low), n)


def exp(x: F64) -> F64:
    return exp_sum(x, 0.0)


def _split(x: F64) -> tuple[F64, F64]:
    """Exponent e and m with x = 2^e m, sqrt(1/2) <= m < sqrt(2), of positive finite numbers."""
    tiny = x < 2.0**-1022
    bits = _bits(np.where(tiny, x * 2.0**54, x))
    k = (bits - _ROOT_HALF) >> np.int64(52)
    return k - np.where(tiny, 54.0, 0.0), _number(bits - (k << np.int64(52)))


def log(x: F64) -> F64:
    """Section 3."""
    ordinary = (x > 0) & (x < np.inf)
    e, m = _split(np.where(ordinary, x, 1.0))
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    q = horner(z, [2 / k for k in range(21, 1, -2)])
    h = 0.5 * (f * f)
    tail = s * (h + q * z) + e * c.LN2_LO
    result = e * c.LN2_HI - ((h - tail) - f)
    special = np.where(x == 0, -np.inf, np.where(x > 0, x, np.nan))
    return np.where(ordinary, result, special)


def _log1p(y: F64) -> F64:
    u = np.asarray(1.0 + y)
    return np.where(u < np.inf, log(u) + (y - (u - 1.0)) / u, u)


def _remainder(t: float) -> tuple[int, float, float]:
    """Section 4.1 for one finite t > pi / 4: quadrant, remainder and its low part."""
    fraction, exponent = np.frexp(t)
    m, e = int(fraction * 2.0**53), int(exponent) - 53
    # 192 bits of 2 / pi, from the bit of weight 2^-(e - 1) on; those before contribute multiples of 4.
    window = (c.TWO_OVER_PI >> (c.TWO_OVER_PI_BITS - (e - 2) - 192)) % (1 << 192)
    turns = m * window % (1 << 192)
    quadrant = (turns + (1 << 189)) >> 190
    rest = turns - (quadrant << 190)
    magnitude = abs(rest)
    lead = magnitude.bit_length() - 64
    product = (magnitude >> lead if lead >= 0 else magnitude << -lead) * c.HALF_PI_63 >> 64
    unit = 2.0 ** (lead - 189) * (-1.0 if rest < 0 else 1.0)
    return quadrant % 4, float(product >> 11 << 11) * unit, float(product & 2047) * unit


def _sin_small(r: F64, low: F64) -> F64:
    z = r * r
    v = z * r
    q = horner(z, c.inverse_factorials(17, -15, 13, -11, 9, -7, 5))
    tail = z * (0.5 * low - v * q) - low
    return np.asarray(r - (tail + v * c.inverse_factorials(3)[0]))


def _cos_small(r: F64, low: F64) -> F64:
    z = r * r
    h = 0.5 * z
    w = 1.0 - h
    q = horner(z, c.inverse_factorials(-18, 16, -14, 12, -10, 8, -6, 4))
    return np.asarray(w + (((1.0 - w) - h) + ((z * z) * q - r * low)))


def _wave(t: F64, turn: int) -> F64:
    """Section 4.2 of t >= 0."""
    flat = np.asarray(t).reshape(-1)
    quadrant, r, low = np.zeros(flat.shape, dtype=np.int64), flat.copy(), np.zeros_like(flat)
    for i in np.flatnonzero((flat > float.fromhex("0x1.921fb54442d18p-1")) & (flat < np.inf)):
        quadrant[i], r[i], low[i] = _remainder(float(flat[i]))
    quadrant = (quadrant + turn) % 4
    y = np.where(quadrant % 2 == 1, _cos_small(r, low), _sin_small(r, low))
    y = np.where(quadrant >= 2, -y, y)
    found: F64 = np.where(flat < np.inf, y, np.nan).reshape(np.shape(t))
    return found


def sin(x: F64) -> F64:
    y = _wave(np.abs(x), 0)
    return np.where(x == 0, x, np.where(x < 0, -y, y))


def cos(x: F64) -> F64:
    return _wave(np.abs(x), 1)


def tan(x: F64) -> F64:
    return np.asarray(sin(x) / cos(x))


def atan(x: F64) -> F64:
    """Section 5."""
    t = np.abs(x)
    beyond = t > 1
    u = np.where(beyond, 1.0 / t, t)
    j = np.where(np.isnan(u), 0, u * 8.0 + 0.5).astype(np.int64)
    near = j * 0.125
    d = (u - near) / (1.0 + u * near)
    z = d * d
    q = horner(z, [1 / 13, -1 / 11, 1 / 9, -1 / 7, 1 / 5, -1 / 3])
    part = d + (d * z) * q
    arcs, complements = np.array(c.ARCS), np.array(c.ARC_COMPLEMENTS)
    inside = arcs[j, 0] + (arcs[j, 1] + part)
    outside = complements[j, 0] + (complements[j, 1] - part)
    return np.asarray(np.copysign(np.where(beyond, outside, inside), x))


def asin(x: F64) -> F64:
    return atan(np.asarray(x / np.sqrt((1.0 - x) * (1.0 + x))))


def acos(x: F64) -> F64:
    return np.asarray(2.0 * atan(np.sqrt((1.0 - x) / (1.0 + x))))


def _sinh_small(t: F64) -> F64:
    z = t * t
    return np.asarray(t + (t * z) * horner(z, c.inverse_factorials(19, 17, 15, 13, 11, 9, 7, 5, 3)))


def _half_exp(t: F64, side: float) -> F64:
    root, e = exp(np.asarray(0.5 * t)), exp(t)
    return np.where(t > 709, (0.5 * root) * root, 0.5 * e + side / e)


def sinh(x: F64) -> F64:
    """Section 6."""
    t = np.abs(x)
    return np.copysign(np.where(t < 1, _sinh_small(t), _half_exp(t, -0.5)), x)


def cosh(x: F64) -> F64:
    return _half_exp(np.abs(x), 0.5)


def tanh(x: F64) -> F64:
    t = np.abs(x)
    s = _sinh_small(t)
    large = 1.0 - 2.0 / (exp(np.asarray(t + t)) + 1.0)
    return np.copysign(np.where(t < 1, s / np.sqrt(1.0 + s * s), large), x)


def asinh(x: F64) -> F64:
    t = np.abs(x)
    s = t * t
    small = _log1p(np.asarray(t + s / (1.0 + np.sqrt(1.0 + s))))
    return np.copysign(np.where(t > 2.0**28, log(t) + c.LN2, small), x)


def acosh(x: F64) -> F64:
    d = np.where(x >= 1, x - 1.0, 0.0)
    small = _log1p(np.asarray(d + np.sqrt(2.0 * d + d * d)))
    return np.where(x >= 1, np.where(x > 2.0**28, log(x) + c.LN2, small), np.nan)


def atanh(x: F64) -> F64:
    t = np.abs(x)
    u = t + t
    y = np.where(t < 0.5, u + (u * t) / (1.0 - t), u / (1.0 - t))
    inside = t <= 1
    return np.where(inside, np.copysign(0.5 * _log1p(np.where(inside, y, 0.0)), x), np.nan)


def erf(x: F64) -> F64:
    """Section 7."""
    t = np.abs(x)
    z = t * t
    small = t + t * horner(z, c.ERF_TERMS)
    f: Any = t
    for k in range(80, 0, -1):
        f = t + (0.5 * k) / f
    high = _number(_bits(t) & ~np.int64(0x7FFFFFF))
    e = exp_sum(np.asarray(-(high * high)), -((t - high) * (t + high)))
    large = 1.0 - (e * c.ONE_OVER_SQRT_PI) / f
    return np.copysign(np.where(t < 1.5, small, np.where(t < 6, large, np.where(np.isnan(t), t, 1.0))), x)


def sigmoid(x: F64) -> F64:
    e = exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, 1.0) / (1.0 + e))


def _product(a: F64, b: Any) -> tuple[F64, F64]:
    """a * b exactly: the rounded product and what is missing."""

    def halves(v: Any) -> tuple[Any, Any]:
        wide = v * 134217729.0
        high = wide - (wide - v)
        return high, v - high

    ah, al = halves(a)
    bh, bl = halves(b)
    p = a * b
    return p, (((ah * bh - p) + ah * bl) + al * bh) + al * bl


def _log2_pair(a: F64) -> tuple[F64, F64]:
    e, m = _split(a)
    f, n = m - 1.0, m + 1.0
    n_low = m - (n - 1.0)
    s = f / n
    p, p_low = _product(s, n)
    s_low = (((f - p) - p_low) - s * n_low) / n
    z, z_low = _product(s, s)
    z_low = z_low + (2.0 * s) * s_low
    q = horner(z, [1 / k for k in range(23, 3, -2)]) * z
    t = c.THIRD[0] + q
    t_low = (q - (t - c.THIRD[0])) + c.THIRD[1]
    w, w_low = _product(z, t)
    w_low = w_low + (z * t_low + z_low * t)
    u = 1.0 + w
    u_low = (w - (u - 1.0)) + w_low
    arc, arc_low = _product(s, u)
    arc_low = arc_low + (s * u_low + s_low * u)
    part, part_low = _product(arc, c.TWO_OVER_LN2[0])
    part_low = part_low + (arc * c.TWO_OVER_LN2[1] + arc_low * c.TWO_OVER_LN2[0])
    r = e + part
    return r, (part - (r - e)) + part_low


def _exp2_pair(z: F64, low: F64) -> F64:
    b = np.where(z > 1100, 1100.0, np.where(z < -1100, -1100.0, z))
    n = (b + _SHIFT) - _SHIFT
    main, tail = (b - n) * c.LN2, np.where(b == z, low * c.LN2, 0.0)
    r = main + tail
    return _scale(_exp_small(r, (main - r) + tail), n)


def _whole(v: F64) -> Any:
    return (v >= 2.0**52) | ((v + 2.0**52) - 2.0**52 == v)


def pow(x: F64, y: F64) -> F64:
    """Section 8; operands of one shape."""
    a, b = np.abs(x), np.abs(y)
    odd = _whole(b) & ~_whole(b * 0.5)
    ordinary = (a > 0) & (a < np.inf) & ~np.isnan(y)
    exponent = np.copysign(np.minimum(np.where(np.isnan(b), 1.0, b), 2.0**64), y)
    log2, log2_low = _log2_pair(np.where(ordinary, a, 1.0))
    z, low = _product(np.where(ordinary, exponent, 1.0), log2)
    r = _exp2_pair(z, low + np.where(ordinary, exponent, 1.0) * log2_low)
    r = np.where(a == 1, 1.0, np.where(ordinary, r, np.where((a == 0) == (y < 0), np.inf, 0.0)))
    r = np.where(odd & np.signbit(x), -r, r)
    # The rules in reverse order, so that the first that applies has the last word.
    r = np.where((x < 0) & (a < np.inf) & ~_whole(b), np.nan, r)
    r = np.where(np.isnan(x) | np.isnan(y), np.nan, r)
    r = np.where((y == 0) | (x == 1), 1.0, r)
    r = np.where(y == 3, (x * x) * x, r)
    return np.where(y == 2, x * x, r)
