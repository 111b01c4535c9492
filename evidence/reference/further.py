"""Signs, rounding, remainders, bits, functions computed in binary64, and generators (docs/arithmetic.md, 8 and 15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode, storage
from evidence.reference.order import first_max

Operator = Callable[..., Array]
FUNCTIONS = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")


def _plain(function: Callable[..., Any]) -> Operator:
    def operator(ar: Arithmetic, node: RefNode, *operands: Array) -> Array:
        return np.asarray(function(*operands))

    return operator


def _function(name: str) -> Operator:
    return lambda ar, node, x: ar.function(name, x)


def sign(x: Array) -> Array:
    """-1, +0 or 1; NaN gives itself."""
    one = x.dtype.type(1)
    signs = (x > 0).astype(np.int8) - (x < 0).astype(np.int8)
    found = signs.astype(x.dtype) * one
    return np.where(x != x, x, found) if x.dtype.kind == "f" else found


def mod(ar: Arithmetic, node: RefNode, a: Array, b: Array) -> Array:
    """With ``fmod`` the sign of the dividend, otherwise that of the divisor; integers modulo 0 are 0."""
    a, b = np.broadcast_arrays(a, b)
    if a.dtype.kind == "f":
        rest = np.fmod(a, b)
        moved = np.where((rest < 0) != (b < 0), rest + b, rest)
        return np.asarray(rest if node.attrs["fmod"] else np.where(rest == 0, np.copysign(rest, b), moved))
    safe = np.where(b == 0, a.dtype.type(1), b)
    if a.dtype.kind == "i":
        safe = np.where(safe == -1, a.dtype.type(1), safe)
    rest = np.fmod(a, safe) if node.attrs["fmod"] else np.mod(a, safe)
    return np.asarray(np.where(b == 0, a.dtype.type(0), rest))


def integer_power(a: Array, b: Array) -> Array:
    """Wraps; a negative exponent gives the exact value cut to an integer, 0 where there is none."""
    a, b = np.broadcast_arrays(a, b)
    out = np.empty(a.shape, dtype=a.dtype)
    bits = 8 * a.dtype.itemsize
    for index in np.ndindex(a.shape):
        base, exponent = int(a[index]), int(b[index])
        if exponent < 0:
            value = {1: 1, -1: 1 if exponent % 2 == 0 else -1}.get(base, 0)
        else:
            value = pow(base, exponent, 1 << bits)
        value %= 1 << bits
        out[index] = value - (1 << bits) if a.dtype.kind == "i" and value >> (bits - 1) else value
    return out


def shift_left(a: Array, b: Array) -> Array:
    """Zeros come in; a shift by a negative number or the width leaves nothing."""
    inside = (b >= 0) & (b < 8 * a.dtype.itemsize)
    return np.where(inside, np.left_shift(a, np.where(inside, b, b.dtype.type(0))), a.dtype.type(0))


def shift_right(a: Array, b: Array) -> Array:
    """Copies of the sign come in; a shift by a negative number or the width leaves only them."""
    inside = (b >= 0) & (b < 8 * a.dtype.itemsize)
    signs = np.where(a < 0, ~a.dtype.type(0), a.dtype.type(0))
    return np.where(inside, np.right_shift(a, np.where(inside, b, b.dtype.type(0))), signs)


def bit_cast(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """The same bits in another type; what is binary64 only in the yardstick is rounded first."""
    target = storage(str(node.attrs["to"]))
    if ar.dtype == np.float64 and x.dtype == np.float64 and target.itemsize == 4:
        x = x.astype(np.float32)
    if target.kind == "b":
        return np.asarray(np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape) != 0)
    return np.ascontiguousarray(x).view(target).reshape(x.shape)


def is_inf(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    positive, negative = bool(node.attrs["positive"]), bool(node.attrs["negative"])
    return np.asarray(((x == np.inf) & positive) | ((x == -np.inf) & negative))


def hardmax(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """1 at the first NaN or else the first maximum along the axis, 0 elsewhere."""
    axis = int(node.attrs["axis"])
    if x.size == 0:
        return x
    place = np.argmax(x, axis=axis, keepdims=True)  # NumPy takes the first NaN, else the first of equals
    counts = np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.asarray(counts == place).astype(x.dtype)


def random_words(seed: int, stream: int, count: int) -> Array:
    """``[count, 4]`` words of Philox 4x32-10 with counters (i, 0, stream, 0)."""
    mask = np.uint64(0xFFFFFFFF)
    c = [np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64), np.full(count, stream, np.uint64),
         np.zeros(count, np.uint64)]  # fmt: skip
    for i in range(10):
        k0 = np.uint64(((seed & 0xFFFFFFFF) + i * 0x9E3779B9) & 0xFFFFFFFF)
        k1 = np.uint64(((seed >> 32) + i * 0xBB67AE85) & 0xFFFFFFFF)
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(q >> np.uint64(32)) ^ c[1] ^ k0, q & mask, (p >> np.uint64(32)) ^ c[3] ^ k1, p & mask]
    return np.stack(c, axis=-1).astype(np.uint32)


def random_bits(ar: Arithmetic, node: RefNode) -> Array:
    seed, stream, word = (int(node.attrs[key]) for key in ("seed", "stream", "word"))
    words = random_words(seed, stream, int(np.prod(node.shape, dtype=np.int64)))
    found: Array = np.asarray(words[:, word]).reshape(node.shape)
    return found


def multinomial(ar: Arithmetic, node: RefNode, x: Array, u: Array) -> Array:
    """The first class whose running sum of exp(x - maximum) exceeds u times the whole sum, else the last."""
    top = x[:, :1]
    for k in range(1, x.shape[1]):
        top = first_max(top, x[:, k : k + 1])
    running = [ar.exp(np.asarray(x[:, k : k + 1] - top)) for k in range(x.shape[1])]
    for k in range(1, len(running)):
        running[k] = running[k - 1] + running[k]
    beyond = np.stack([r > u * running[-1] for r in running], axis=-1)
    return np.where(beyond.any(axis=-1), np.argmax(beyond, axis=-1), len(running) - 1).astype(np.int32)


FURTHER: dict[str, Operator] = {
    **{name: _function(name) for name in FUNCTIONS},
    "round": _plain(np.rint),
    "sign": _plain(sign),
    "mod": mod,
    "is_nan": _plain(np.isnan),
    "is_inf": is_inf,
    "bit_and": _plain(np.bitwise_and),
    "bit_or": _plain(np.bitwise_or),
    "bit_xor": _plain(np.bitwise_xor),
    "bit_not": _plain(np.bitwise_not),
    "bit_cast": bit_cast,
    "shift_left": _plain(shift_left),
    "shift_right": _plain(shift_right),
    "hardmax": hardmax,
    "random_bits": random_bits,
    "multinomial": multinomial,
}
