"""Recurrent operators, one direction each, step by step (docs/arithmetic.md, section 12)."""

from __future__ import annotations

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.elementwise import ELEMENTWISE
from evidence.reference.graph import RefNode
from evidence.reference.order import first_max, first_min


class _Cell:
    """What the three operators share: sums per gate, biases, clipping."""

    def __init__(self, ar: Arithmetic, node: RefNode, gates: int, w: Array, r: Array, b: Array | None) -> None:
        self.ar, self.node = ar, node
        self.hidden = r.shape[1]
        self.w = w.reshape(gates, self.hidden, -1)
        self.r = r.reshape(gates, self.hidden, self.hidden)
        zero = w.dtype.type(0)
        both = np.zeros((2, gates, self.hidden), dtype=w.dtype) if b is None else b.reshape(2, gates, self.hidden)
        self.b = (both[0] + both[1]) + zero
        self.wb, self.rb = both[0] + zero, both[1] + zero

    def product(self, rows: Array, weights: Array) -> Array:
        """``rows [B, K]`` with ``weights [H, K]`` to ``[B, H]``."""
        return np.asarray(self.ar.product_sum(rows.T[None], weights.T[None], rows.shape[1], 1)[0].T)

    def gate(self, g: int, x: Array, h: Array) -> Array:
        return np.asarray((self.product(x, self.w[g]) + self.product(h, self.r[g])) + self.b[g])

    def clipped(self, a: Array) -> Array:
        if "clip" not in self.node.attrs:
            return a
        limit = a.dtype.type(np.float32(self.node.attrs["clip"]))
        return np.asarray(first_min(first_max(a, -limit), limit))

    def function(self, which: int, x: Array) -> Array:
        """f, g or h as the node names it: an operation of section 8 or 17 on ``x``."""
        name = str(self.node.attrs["activations"]).split()[which] if "activations" in self.node.attrs else ""
        if name in ("", "sigmoid", "tanh"):
            default = which == 0 and self.node.op != "rnn"
            return self.ar.sigmoid(x) if name == "sigmoid" or (not name and default) else self.ar.tanh(x)
        t = x.dtype.type
        alpha, beta = (t(np.float32(self.node.attrs[key][which])) for key in ("alphas", "betas"))
        if name == "affine":
            return np.asarray((alpha * x) + beta)
        if name == "scaled_tanh":
            return np.asarray(alpha * self.ar.tanh(np.asarray(beta * x)))
        if name == "thresholded_relu":
            return np.where(alpha < x, x, t(0))
        if name == "softsign":
            return np.asarray(x / (t(1) + np.abs(x)))
        node = RefNode(name, (), "", x.shape, x.dtype.name, {"alpha": float(alpha), "beta": float(beta)})
        return ELEMENTWISE[name](self.ar, node, x)

    def activated(self, which: int, a: Array) -> Array:
        """f or g of a gate sum, which is clipped before."""
        return self.function(which, self.clipped(a))

    def start(self, given: Array | None, batch: int) -> Array:
        return np.zeros((batch, self.hidden), dtype=self.w.dtype) if given is None else given

    def order(self, time: int) -> list[int]:
        steps = list(range(time))
        return steps[::-1] if self.node.attrs["reverse"] else steps


def rnn(
    ar: Arithmetic, node: RefNode, x: Array, w: Array, r: Array, b: Array | None = None, h0: Array | None = None
) -> Array:
    """``x [T, B, I]`` to the hidden states ``[T, B, H]``."""
    cell = _Cell(ar, node, 1, w, r, b)
    h = cell.start(h0, x.shape[1])
    y = np.empty((*x.shape[:2], cell.hidden), dtype=x.dtype)
    for t in cell.order(x.shape[0]):
        h = y[t] = cell.activated(0, cell.gate(0, x[t], h))
    return y


def lstm(
    ar: Arithmetic,
    node: RefNode,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    p: Array | None = None,
) -> Array:
    """The hidden or, with ``state`` = "c", the cell states of all steps, ``[T, B, H]``."""
    cell = _Cell(ar, node, 4, w, r, b)
    h, c = cell.start(h0, x.shape[1]), cell.start(c0, x.shape[1])
    peep = None if p is None else p.reshape(3, cell.hidden)
    y = np.empty((*x.shape[:2], cell.hidden), dtype=x.dtype)
    for t in cell.order(x.shape[0]):
        a = [cell.gate(g, x[t], h) for g in range(4)]
        if peep is not None:
            a[0] = a[0] + peep[0] * c
            a[2] = a[2] + peep[2] * c
        i = cell.activated(0, a[0])
        f = x.dtype.type(1) - i if node.attrs["input_forget"] else cell.activated(0, a[2])
        c = (f * c) + (i * cell.activated(1, a[3]))
        if peep is not None:
            a[1] = a[1] + peep[1] * c
        h = cell.activated(0, a[1]) * cell.function(2, c)
        y[t] = c if node.attrs["state"] == "c" else h
    return y


def gru(
    ar: Arithmetic, node: RefNode, x: Array, w: Array, r: Array, b: Array | None = None, h0: Array | None = None
) -> Array:
    """``x [T, B, I]`` to the hidden states ``[T, B, H]``."""
    cell = _Cell(ar, node, 3, w, r, b)
    one = x.dtype.type(1)
    h = cell.start(h0, x.shape[1])
    y = np.empty((*x.shape[:2], cell.hidden), dtype=x.dtype)
    for t in cell.order(x.shape[0]):
        z = cell.activated(0, cell.gate(0, x[t], h))
        reset = cell.activated(0, cell.gate(1, x[t], h))
        across = cell.product(x[t], cell.w[2])
        if node.attrs["linear_before_reset"]:
            a = (across + reset * (cell.product(h, cell.r[2]) + cell.rb[2])) + cell.wb[2]
        else:
            a = (across + cell.product(reset * h, cell.r[2])) + cell.b[2]
        h = y[t] = ((one - z) * cell.activated(1, a)) + (z * h)
    return y
