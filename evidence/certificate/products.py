"""Sums of products of balls: conv, conv_transpose, gemm, matmul and their integer forms.

A pair of word arrays goes through the reference's own operators in binary64, where every partial sum is an integer
below 2 ** 53 and so exact in any order (fixed.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from compiler_kernels.errors import UnsupportedError
from evidence.certificate import fixed
from evidence.certificate.ball import Ball, BallArithmetic
from evidence.certificate.fixed import Array, raised
from evidence.reference import products
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefNode

_BINARY64 = ARITHMETICS["float64"]
Product = Callable[[Array, Array], Array]
"""Two binary64 arrays to their sums of products; any order of summation."""


def bilinear(
    ar: BallArithmetic, x: Ball, w: Ball, product: Product, terms: int, stacked: Product | None = None
) -> Ball:
    """``product`` of balls, each result the sum of at most ``terms`` products.

    ``stacked(x_word, w_words [n, ...])`` does all words of w at once. ``UnsupportedError`` past 2 ** 15 terms.
    """
    if terms > fixed.TERMS:
        raise UnsupportedError(
            f"a certificate of a sum of {terms} products cannot be made, at most of {fixed.TERMS}; use a smaller layer"
        )
    a, b = x.centre, w.centre
    # Products below the last word kept, `terms` of them, must stay below it: three more diagonals are 2**60 smaller.
    rows = min(ar.words + 3, a.count + b.count - 1)
    diagonals: list[Any] = [0.0] * (rows + 1)  # one more in front takes the carries
    for i in range(min(rows, a.count)):
        used = min(rows - i, b.count)
        if stacked is not None:
            found = stacked(a.words[i], b.words[:used])
        else:
            found = np.stack([product(a.words[i], b.words[j]) for j in range(used)])
        for j in range(used):
            carry = np.floor(found[j] * (1.0 / fixed.BASE))
            diagonals[i + j] = diagonals[i + j] + carry  # at most 2**33 each
            diagonals[i + j + 1] = diagonals[i + j + 1] + (found[j] - carry * fixed.BASE)
    words = np.stack(np.broadcast_arrays(*[np.asarray(d, dtype=np.float64) for d in diagonals]))
    total, lost = fixed.cut(fixed.carried(words, a.top + b.top + 1), ar.words)
    bounds: list[Array | float] = [lost]
    if rows < a.count + b.count - 1:
        bounds.append(
            terms * min(a.count, b.count) * 2.0 ** (2 * fixed.WORD - 2) * 1.01 * fixed.unit(a.top + b.top - rows)
        )
    if not (x.exact and w.exact):
        # Sums of non-negative terms: relative error at most (terms + 2) 2**-53 in any order.
        outward = 1.0 + (terms + 8) * 2.0**-51
        wide_x, wide_w = fixed.magnitude(a), fixed.magnitude(b)
        with np.errstate(invalid="ignore"):
            if not x.exact:
                bounds.append(raised(product(x.radius, raised(wide_w + w.radius)) * outward))
            if not w.exact:
                bounds.append(raised(product(wide_x, w.radius) * outward))
    return ar.ball(total, *bounds)


def conv(ar: BallArithmetic, node: RefNode, x: Ball, w: Ball, b: Ball | None = None) -> Ball:
    """Convolution of ``x [N, C, ...]`` with ``w [M, C/group, ...]``; every named form is the same exact convolution."""
    group = int(node.attrs.get("group", 1))
    columns, tail = w.shape[0] // group, w.shape[1:]

    def product(xs: Array, ws: Array) -> Array:
        return products.conv(_BINARY64, node, xs, ws)

    def stacked(xs: Array, ws: Array) -> Array:
        n = len(ws)
        every = ws.reshape(n, group, columns, *tail).swapaxes(0, 1).reshape(n * group * columns, *tail)
        out = products.conv(_BINARY64, node, xs, every)
        parts = out.reshape(out.shape[0], group, n, columns, *out.shape[2:])
        return np.moveaxis(parts, 2, 0).reshape(n, out.shape[0], group * columns, *out.shape[2:])

    return _biased(ar, bilinear(ar, x, w, product, int(np.prod(tail)), stacked), b)


def conv_transpose(ar: BallArithmetic, node: RefNode, x: Ball, w: Ball, b: Ball | None = None) -> Ball:
    """Transposed convolution with ``w [C, M/group, ...]``."""
    group = int(node.attrs.get("group", 1))
    columns, tail = w.shape[1], w.shape[2:]

    def product(xs: Array, ws: Array) -> Array:
        return products.conv_transpose(_BINARY64, node, xs, ws)

    def stacked(xs: Array, ws: Array) -> Array:
        n = len(ws)
        out = products.conv_transpose(
            _BINARY64, node, xs, np.moveaxis(ws, 0, 1).reshape(w.shape[0], n * columns, *tail)
        )
        parts = out.reshape(out.shape[0], group, n, columns, *out.shape[2:])
        return np.moveaxis(parts, 2, 0).reshape(n, out.shape[0], group * columns, *out.shape[2:])

    terms = w.shape[0] // group * int(np.prod(tail))
    return _biased(ar, bilinear(ar, x, w, product, terms, stacked), b)


def _biased(ar: BallArithmetic, total: Ball, b: Ball | None) -> Ball:
    return total if b is None else ar.add(total, b.reshape(-1, *(1,) * (len(total.shape) - 2)))


def matmul(ar: BallArithmetic, node: RefNode, a: Ball, b: Ball) -> Ball:
    """NumPy's matmul."""

    def product(xs: Array, ws: Array) -> Array:
        return np.asarray(np.matmul(xs, ws)).reshape(node.shape)

    return bilinear(ar, a, b, product, a.shape[-1])


def times(ar: BallArithmetic, a: Ball, b: Ball) -> Ball:
    """``a [M, K]`` times ``b [K, N]``."""
    return bilinear(ar, a, b, lambda x, w: np.asarray(np.matmul(x, w)), a.shape[-1])


def gemm(ar: BallArithmetic, node: RefNode, a: Ball, b: Ball, c: Ball | None = None) -> Ball:
    """``alpha * a b + beta * c``; alpha and beta are binary32 numbers."""
    x = a.mapped(np.transpose) if node.attrs.get("trans_a", 0) else a
    w = b.mapped(np.transpose) if node.attrs.get("trans_b", 0) else b
    total = times(ar, x, w)
    alpha, beta = (Fraction(float(np.float32(node.attrs.get(key, 1.0)))) for key in ("alpha", "beta"))
    if alpha != 1:
        total = ar.mul(total, ar.fraction(alpha))
    if c is None or beta == 0:
        return total
    return ar.add(total, c if beta == 1 else ar.mul(c, ar.fraction(beta)))


def conv_integer(ar: BallArithmetic, node: RefNode, x: Ball, w: Ball) -> Ball:
    """Exact sums; that they fit 32 bits the compiler has proved (docs/arithmetic.md)."""
    return conv(ar, replace(node, attrs={**node.attrs, "arithmetic": "direct"}), x, w)


PRODUCTS: dict[str, Callable[..., Ball]] = {
    "conv": conv,
    "conv_integer": conv_integer,
    "conv_transpose": conv_transpose,
    "gemm": gemm,
    "matmul": matmul,
    "matmul_integer": matmul,
}
