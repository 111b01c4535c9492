"""The two arithmetics an operator can be evaluated in: Canonical Arithmetic 1, and plain binary64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from evidence.reference import binary64, elementary
from evidence.reference.order import SUM_LEAF, gather_table, sum_lanes, sum_positions, tree
from evidence.reference.rounding import fma_chains, fmaf
from evidence.reference.rounding64 import fma64, fma64_chains

Array = npt.NDArray[Any]
# Gathered operands of one block of outputs; bounds memory, never changes a bit.
_GATHER_BYTES = 32 << 20


class Arithmetic(Protocol):
    """What the operators need beyond +, -, *, / and sqrt, which are IEEE in ``dtype`` in both arithmetics."""

    name: str
    dtype: type[np.floating]

    def product_sum(self, x: Array, w: Array, channels: int, positions: int, leaf: int = SUM_LEAF) -> Array:
        """``[R, K, P]`` and ``[R, K, M]`` to ``[R, M, P]``: sums of products over K = channels x positions, no bias.

        ``leaf`` is the 64 of section 3.2, or the number in the name of a Winograd form.
        """

    def sum_positions(self, values: Array, squares: bool = False) -> Array:
        """Sum (of squares) over axis 0."""

    def sum_lanes(self, values: Array, squares: bool = False) -> Array:
        """Sum (of squares) over the last axis."""

    def fma(self, a: Any, b: Any, c: Any) -> Array: ...
    def exp(self, x: Array) -> Array: ...
    def log(self, x: Array) -> Array: ...
    def erf(self, x: Array) -> Array: ...
    def tanh(self, x: Array) -> Array: ...
    def sigmoid(self, x: Array) -> Array: ...
    def pow(self, x: Array, y: Array) -> Array: ...
    def function(self, name: str, x: Array) -> Array:
        """One of the functions of docs/arithmetic-binary64.md, rounded once to the type of x."""


class CanonicalArithmetic1:
    """Bit-exact CA-1 (docs/arithmetic.md)."""

    name = "ca1"
    dtype: type[np.floating] = np.float32

    def product_sum(self, x: Array, w: Array, channels: int, positions: int, leaf: int = SUM_LEAF) -> Array:
        table = gather_table(channels, positions, leaf)
        leaves, longest = table.shape
        rows, _, pixels = x.shape
        columns = w.shape[2]
        result = np.zeros((rows, columns, pixels), dtype=x.dtype)
        if result.size == 0 or leaves == 0:
            return result
        chains = fma64_chains if x.dtype == np.float64 else fma_chains
        ws = self._gather(w, table).reshape(rows * leaves, longest, columns)
        step = max(64, _GATHER_BYTES // (4 * rows * leaves * (longest + columns)))
        for p in range(0, pixels, step):
            xs = self._gather(x[:, :, p : p + step], table)
            values = chains(xs.reshape(rows * leaves, longest, -1), ws)
            result[:, :, p : p + step] = tree(np.moveaxis(values.reshape(rows, leaves, columns, -1), 1, 0))
        return result

    @staticmethod
    def _gather(operand: Array, table: npt.NDArray[np.int64]) -> Array:
        """``[R, K, P]`` to ``[R, leaves, taps, P]``; an absent tap is +0."""
        with_absent = np.concatenate([operand, np.zeros_like(operand[:, :1])], axis=1)
        return with_absent[:, table]

    def sum_positions(self, values: Array, squares: bool = False) -> Array:
        return sum_positions(values, squares)

    def sum_lanes(self, values: Array, squares: bool = False) -> Array:
        return sum_lanes(values, squares)

    def fma(self, a: Any, b: Any, c: Any) -> Array:
        return fma64(a, b, c) if np.asarray(a).dtype == np.float64 else fmaf(a, b, c)

    def exp(self, x: Array) -> Array:
        return binary64.exp(x) if x.dtype == np.float64 else elementary.exp(x)

    def log(self, x: Array) -> Array:
        return binary64.log(x) if x.dtype == np.float64 else elementary.log(x)

    def erf(self, x: Array) -> Array:
        return binary64.erf(x) if x.dtype == np.float64 else elementary.erf(x)

    def tanh(self, x: Array) -> Array:
        return binary64.tanh(x) if x.dtype == np.float64 else elementary.tanh(x)

    def sigmoid(self, x: Array) -> Array:
        return binary64.sigmoid(x) if x.dtype == np.float64 else elementary.sigmoid(x)

    def pow(self, x: Array, y: Array) -> Array:
        return binary64.pow(x, y) if x.dtype == np.float64 else elementary.pow(x, y)

    def function(self, name: str, x: Array) -> Array:
        call: Callable[[Array], Array] = getattr(binary64, name)
        with np.errstate(all="ignore"):
            return call(x.astype(np.float64)).astype(x.dtype)


class Binary64:
    """The yardstick of every error measurement: the same graph in binary64, sums in whatever order NumPy takes."""

    name = "float64"
    dtype: type[np.floating] = np.float64

    def product_sum(self, x: Array, w: Array, channels: int, positions: int, leaf: int = SUM_LEAF) -> Array:
        product: Array = np.matmul(w.transpose(0, 2, 1), x)
        return product

    def sum_positions(self, values: Array, squares: bool = False) -> Array:
        total: Array = np.sum(values * values if squares else values, axis=0)
        return total

    def sum_lanes(self, values: Array, squares: bool = False) -> Array:
        total: Array = np.sum(values * values if squares else values, axis=-1)
        return total

    def fma(self, a: Any, b: Any, c: Any) -> Array:
        return np.asarray(np.asarray(a) * b + c)

    def exp(self, x: Array) -> Array:
        return np.asarray(np.exp(x))

    def log(self, x: Array) -> Array:
        return np.asarray(np.log(x))

    def erf(self, x: Array) -> Array:
        return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64)

    def tanh(self, x: Array) -> Array:
        return np.asarray(np.tanh(x))

    def sigmoid(self, x: Array) -> Array:
        e = np.exp(-np.abs(x))  # the form that cannot overflow
        return np.asarray(np.where(x >= 0, 1.0, e) / (1.0 + e))

    def pow(self, x: Array, y: Array) -> Array:
        return np.asarray(np.power(x, y))

    def function(self, name: str, x: Array) -> Array:
        call: Callable[[Array], Array] = getattr(np, {"a": "arc"}.get(name[0], name[0]) + name[1:])
        return np.asarray(call(x))


ARITHMETICS: dict[str, Arithmetic] = {"ca1": CanonicalArithmetic1(), "float64": Binary64()}
