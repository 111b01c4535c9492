"""Other summation orders, so that a vector's expected bits are known to tell CA-1 from them."""

from __future__ import annotations

import numpy as np

from evidence.reference.arithmetic import Array, CanonicalArithmetic1
from evidence.reference.order import FEW_CHANNELS, SUM_LEAF, product_leaves, sum_lanes, sum_positions, tree
from evidence.reference.rounding import fma_chains
from evidence.reference.rounding64 import fma64_chains

PRODUCT_ORDERS = ("single-chain", "bias-first", "leaf-8", "leaf+8", "no-tree", "channel-outermost")
SUM_ORDERS = ("single-chain", "leaf-8", "leaf+8", "no-tree", "other-rule", "squares-without-fma")


def applicable_to_product(channels: int, positions: int, has_bias: bool, leaf: int = SUM_LEAF) -> set[str]:
    """The orders that group or order the taps of such a sum differently, so that some operands tell them apart."""
    leaves = product_leaves(channels, positions, leaf)
    count = channels * positions
    orders = {"bias-first"} if has_bias and count else set()
    if len(leaves) > 1:
        orders |= {"single-chain", "leaf+8"}
    if leaves and len(leaves[0]) > 8 and count > len(leaves[0]) - 8:
        orders.add("leaf-8")
    if len(leaves) > 9:  # with nine, the second node is one leaf and the tree is a row
        orders.add("no-tree")
    if channels >= FEW_CHANNELS and positions > 1:
        orders.add("channel-outermost")
    return orders


def applicable_to_sum(count: int, lanes: bool) -> set[str]:
    """The same for a plain sum of ``count`` elements."""
    orders = {"other-rule"} if count > 2 else set()
    chain = -(-count // 16) if lanes else count
    if chain > 57:  # a last leaf of one element is the next step of the chain
        orders.add("leaf-8")
    if chain > 65:
        orders |= {"single-chain", "leaf+8"}
    if chain > 9 * 64:
        orders.add("no-tree")
    return orders


class Reordered(CanonicalArithmetic1):
    """CA-1 with one deliberate difference, named as in ``PRODUCT_ORDERS`` or ``SUM_ORDERS``."""

    def __init__(self, order: str, bias: Array | None = None) -> None:
        self.name = order
        self.bias = bias

    def product_sum(self, x: Array, w: Array, channels: int, positions: int, leaf: int = SUM_LEAF) -> Array:
        leaves = self._recut(channels, positions, leaf)
        if not leaves:
            return super().product_sum(x, w, channels, positions, leaf)
        if self.name == "bias-first" and self.bias is not None:
            rows, count = w.shape[:2]
            x = np.concatenate([x, np.ones_like(x[:, :1])], axis=1)
            w = np.concatenate([w, self.bias.reshape(rows, 1, -1).astype(x.dtype)], axis=1)
            leaves = [[count, *leaves[0]], *leaves[1:]]
        chains = fma64_chains if x.dtype == np.float64 else fma_chains
        values = np.stack([chains(x[:, taps], w[:, taps]) for taps in leaves])
        return _in_a_row(values) if self.name == "no-tree" else tree(values)

    def _recut(self, channels: int, positions: int, target: int) -> list[list[int]]:
        canonical = product_leaves(channels, positions, target)
        leaves = [[c * positions + p for c, p in leaf] for leaf in canonical]
        taps = [tap for leaf in leaves for tap in leaf]
        if self.name == "channel-outermost":
            taps, lengths = sorted(taps), [len(leaf) for leaf in leaves]
            ends = np.cumsum(lengths)
            return [taps[e - n : e] for e, n in zip(ends, lengths, strict=True)]
        if not leaves:
            return []
        length = {"single-chain": len(taps), "leaf-8": max(1, len(leaves[0]) - 8), "leaf+8": len(leaves[0]) + 8}.get(
            self.name
        )
        if length is None:
            return leaves
        return [taps[i : i + length] for i in range(0, len(taps), length)]

    def sum_positions(self, values: Array, squares: bool = False) -> Array:
        if self.name == "other-rule":
            return sum_lanes(np.moveaxis(values, 0, -1), squares)
        return self._chains(values, squares)

    def sum_lanes(self, values: Array, squares: bool = False) -> Array:
        if self.name == "other-rule":
            return sum_positions(np.moveaxis(values, -1, 0), squares)
        lanes = [self._chains(np.moveaxis(values[..., j::16], -1, 0), squares) for j in range(16)]
        width = 16
        while width > 1:
            width //= 2
            lanes = [lanes[j] + lanes[j + width] for j in range(width)]
        return lanes[0]

    def _chains(self, values: Array, squares: bool) -> Array:
        count = values.shape[0]
        length = {"single-chain": max(1, count), "leaf-8": 56, "leaf+8": 72}.get(self.name, 64)
        leaves = [self._chain(values[i : i + length], squares) for i in range(0, count, length)]
        if not leaves:
            return np.zeros(values.shape[1:], dtype=values.dtype)
        stacked = np.stack(leaves)
        return _in_a_row(stacked) if self.name == "no-tree" else tree(stacked)

    def _chain(self, values: Array, squares: bool) -> Array:
        acc: Array = np.zeros(values.shape[1:], dtype=values.dtype)
        for v in values:
            if not squares:
                acc = np.asarray(acc + v)
            elif self.name == "squares-without-fma":
                acc = np.asarray(acc + v * v)
            else:
                acc = self.fma(v, v, acc)
        return acc


def _in_a_row(values: Array) -> Array:
    total: Array = values[0]
    for v in values[1:]:
        total = np.asarray(total + v)
    return total
