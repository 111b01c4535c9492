"""Recurrent operators on balls, one direction each, with ONNX's gate order (docs/ir.md)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler_kernels.errors import UnsupportedError
from evidence.certificate.ball import Ball, BallArithmetic, joined
from evidence.certificate.elementary import sigmoid, tanh
from evidence.certificate.products import times
from evidence.certificate.selection import relu, scalar
from evidence.reference.graph import RefNode

_FUNCTIONS: dict[str, Callable[[BallArithmetic, Ball], Ball]] = {"sigmoid": sigmoid, "tanh": tanh, "relu": relu}


class _Cell:
    def __init__(self, ar: BallArithmetic, node: RefNode, gates: int, w: Ball, r: Ball, b: Ball | None) -> None:
        self.ar, self.node, self.gates = ar, node, gates
        self.hidden = r.shape[1]
        self.w, self.r = w.mapped(np.transpose), r.mapped(np.transpose)
        self.b = ar.number(np.zeros(2 * gates * self.hidden)) if b is None else b
        default = ["sigmoid", "tanh", "tanh"] if gates > 1 else ["tanh"]
        self.functions = str(node.attrs["activations"]).split() if "activations" in node.attrs else default
        unknown = [f for f in self.functions if f not in _FUNCTIONS]
        if unknown:
            raise UnsupportedError(f"node {node.node!r}: no certificate is made of the activation {unknown[0]!r}")

    def part(self, x: Ball, gate: int) -> Ball:
        """Columns of one gate."""
        return x.take((..., slice(gate * self.hidden, (gate + 1) * self.hidden)))

    def bias(self, gate: int) -> Ball:
        return self.part(self.b, gate)

    def activated(self, which: int, x: Ball, clipped: bool = True) -> Ball:
        ar = self.ar
        if clipped and "clip" in self.node.attrs:
            limit = scalar(ar, self.node.attrs["clip"])
            x = ar.minimum(ar.maximum(x, ar.neg(limit)), limit)
        return _FUNCTIONS[self.functions[which]](ar, x)

    def start(self, given: Ball | None, batch: int) -> Ball:
        return self.ar.number(np.zeros((batch, self.hidden))) if given is None else given

    def run(self, x: Ball, step: Callable[[Ball], Ball]) -> Ball:
        """``step`` on every ``x[t]``, in the node's direction; results stacked at their own t."""
        time = x.shape[0]
        steps = range(time - 1, -1, -1) if self.node.attrs["reverse"] else range(time)
        found = {t: step(x.take(t)) for t in steps}
        return joined([found[t] for t in range(time)]).reshape(time, *found[0].shape)


def lstm(
    ar: BallArithmetic, node: RefNode, x: Ball, w: Ball, r: Ball, b: Ball | None = None, h0: Ball | None = None,
    c0: Ball | None = None, p: Ball | None = None,
) -> Ball:  # fmt: skip
    cell = _Cell(ar, node, 4, w, r, b)
    state = [cell.start(h0, x.shape[1]), cell.start(c0, x.shape[1])]
    bias = ar.add(cell.b.take(slice(0, 4 * cell.hidden)), cell.b.take(slice(4 * cell.hidden, None)))

    def step(now: Ball) -> Ball:
        h, c = state
        a = ar.add(ar.add(times(ar, now, cell.w), times(ar, h, cell.r)), bias)
        gates = [cell.part(a, g) for g in range(4)]
        peep = None if p is None else [cell.part(p, g) for g in range(3)]
        if peep is not None:
            gates[0], gates[2] = ar.add(gates[0], ar.mul(peep[0], c)), ar.add(gates[2], ar.mul(peep[2], c))
        i = cell.activated(0, gates[0])
        f = ar.sub(ar.fraction(1), i) if node.attrs["input_forget"] else cell.activated(0, gates[2])
        c = ar.add(ar.mul(f, c), ar.mul(i, cell.activated(1, gates[3])))
        if peep is not None:
            gates[1] = ar.add(gates[1], ar.mul(peep[1], c))
        h = ar.mul(cell.activated(0, gates[1]), cell.activated(2, c, clipped=False))
        state[:] = [h, c]
        return c if node.attrs["state"] == "c" else h

    return cell.run(x, step)


def gru(
    ar: BallArithmetic, node: RefNode, x: Ball, w: Ball, r: Ball, b: Ball | None = None, h0: Ball | None = None
) -> Ball:
    cell = _Cell(ar, node, 3, w, r, b)
    state = [cell.start(h0, x.shape[1])]
    one = ar.fraction(1)

    def step(now: Ball) -> Ball:
        h = state[0]
        across = ar.add(times(ar, now, cell.w), cell.b.take(slice(0, 3 * cell.hidden)))
        back = [cell.bias(3 + g) for g in range(3)]
        deep = times(ar, h, cell.r)
        z = cell.activated(0, ar.add(ar.add(cell.part(across, 0), cell.part(deep, 0)), back[0]))
        reset = cell.activated(0, ar.add(ar.add(cell.part(across, 1), cell.part(deep, 1)), back[1]))
        if node.attrs["linear_before_reset"]:
            inner = ar.mul(reset, ar.add(cell.part(deep, 2), back[2]))
        else:
            inner = ar.add(times(ar, ar.mul(reset, h), cell.part(cell.r, 2)), back[2])
        new = cell.activated(1, ar.add(cell.part(across, 2), inner))
        state[0] = ar.add(ar.mul(ar.sub(one, z), new), ar.mul(z, h))
        return state[0]

    return cell.run(x, step)


def rnn(
    ar: BallArithmetic, node: RefNode, x: Ball, w: Ball, r: Ball, b: Ball | None = None, h0: Ball | None = None
) -> Ball:
    cell = _Cell(ar, node, 1, w, r, b)
    state = [cell.start(h0, x.shape[1])]
    bias = ar.add(cell.bias(0), cell.bias(1))

    def step(now: Ball) -> Ball:
        sums = ar.add(ar.add(times(ar, now, cell.w), times(ar, state[0], cell.r)), bias)
        state[0] = cell.activated(0, sums)
        return state[0]

    return cell.run(x, step)


RECURRENT: dict[str, Callable[..., Ball]] = {"lstm": lstm, "gru": gru, "rnn": rnn}
