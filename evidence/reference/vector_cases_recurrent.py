"""Vectors of LSTM, GRU and RNN: every direction, states, options, sizes around leaf and tree limits (since CA-1.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from evidence.reference.vector_cases import ABSENT, Case, binary32, given, random, weight
from evidence.reference.vector_model import VectorInput

VERSION = "CA-1.3"
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent() -> Iterator[Case]:
    """Output Y of one node; weights are constants."""
    for op in GATES:
        for direction in ("forward", "reverse", "bidirectional"):
            yield _case(op, direction, (4, 2, 5, 3))
            yield _case(op, direction, (3, 2, 6, 17), states=True)
        for inputs, hidden in ((1, 1), (12, 16), (64, 33), (72, 8), (20, 70)):
            yield _case(op, "forward", (2, 1, inputs, hidden))
        yield _case(op, "forward", (2, 1, 700, 4))
        yield _case(op, "reverse", (3, 1, 4, 5), bias=False)
        yield _case(op, "forward", (3, 1, 6, 9), clip=binary32(0.3))
        yield _special(op)
    for direction in ("forward", "reverse", "bidirectional"):
        yield _case("LSTM", direction, (3, 2, 5, 6), peepholes=True, states=True)
        yield _case("LSTM", direction, (3, 1, 5, 6), input_forget=1)
        yield _case("GRU", direction, (3, 2, 5, 6), linear_before_reset=1)
        yield _case("GRU", direction, (3, 1, 5, 20), linear_before_reset=1, states=True, bias=False)


def _case(op: str, direction: str, sizes: tuple[int, int, int, int], **options: Any) -> Case:
    time, batch, inputs, hidden = sizes
    d, g = 2 if direction == "bidirectional" else 1, GATES[op]
    label = "_".join([op.lower(), direction, "x".join(map(str, sizes)), *sorted(options)])
    operands = [random("x", time, batch, inputs, shift=1), weight("w", d, g * hidden, inputs)]
    operands += [weight("r", d, g * hidden, hidden)]
    operands += [weight("b", d, 2 * g * hidden) if options.pop("bias", True) else ABSENT, ABSENT]
    states = ("h0", "c0") if op == "LSTM" else ("h0",)
    given_states = options.pop("states", False)
    operands += [random(s, d, batch, hidden) if given_states else ABSENT for s in states]
    if options.pop("peepholes", False):
        operands.append(weight("p", d, 3 * hidden))
    while not operands[-1].name:
        operands.pop()
    attributes = {"hidden_size": hidden, "direction": direction, **options}
    return Case(label, op, attributes, tuple(operands), version=VERSION)


def _special(op: str) -> Case:
    """NaN, infinities, zeros of both signs, subnormal and large numbers in x; biases of -0."""
    values = [np.nan, 1.0, np.inf, -1.0, -0.0, 0.0, 1e-40, -3e-39, 1e30, -1e30, 2.0, 0.5]
    case = _case(op, "forward", (6, 1, 2, 3))
    zeros = given("b", np.full((1, 2 * GATES[op] * 3), -0.0), constant=True)
    fixed: dict[str, VectorInput] = {"x": given("x", values, 6, 1, 2), "b": zeros}
    operands = tuple(fixed.get(i.name, i) for i in case.inputs)
    return replace(case, name=f"{op.lower()}_special", inputs=operands)
