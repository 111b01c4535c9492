"""Decisions of a policy: certified only if every point of the balls decides as the engine does.

The other side evaluates the policy's texts by Python itself, on arrays of fractions.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from exact_case import rational

from compiler_kernels.policy.load import load_policy
from compiler_kernels.policy.logic import resolve
from compiler_kernels.policy.logic_tree import Logic, Tensor
from evidence.certificate import fixed
from evidence.certificate.ball import Ball, BallArithmetic
from evidence.certificate.clinical import Judge

Array = npt.NDArray[Any]
AR = BallArithmetic(7)
CONDITIONS = {
    "plain": "prob[1] >= cutoff",
    "both": "prob[1] >= cutoff and not max(mask) < 0.5",
    "either": "prob[0] > prob[1] or mean(mask) > 0.45",
    "wide": "area(mask > 0.5) >= 7",
    "share": "fraction(mask[0:2, :] <= cutoff) < 0.5",
    "rank": "percentile(mask, 75) > 0.7",
    "largest": "argmax(prob) == 2",
    "some": "at_least(2, prob[0] > 0.3, prob[1] > 0.3, prob[2] > 0.3)",
    "total": "sum(prob) - 1 < 0.1 * min(mask) + 0.4",
    "ratio": "prob[0] / (prob[1] + 1) != 0.25",
}


def _logic() -> Logic:
    lines = ["version: 1", 'model: {name: m, version: "1"}', "thresholds: {cutoff: 0.5}", "decisions:"]
    policy = load_policy("\n".join([*lines, *(f'  {k}: "{v}"' for k, v in CONDITIONS.items())]) + "\n", "p.yaml")
    prob = Tensor("outputs", 0, "prob", "float32", (3,), (True,))
    mask = Tensor("outputs", 1, "mask", "float32", (4, 4), (True, True))
    return resolve(policy, [], [prob, mask])


def _python(text: str, tensors: dict[str, Array]) -> bool:
    """The text as Python reads it; every literal becomes a fraction."""
    literal = re.sub(r"(?<![\w\[:,.])(\d+\.\d+|\d+)(?![\w\]:,.])", r"F('\1')", text)

    def number(digits: str) -> Fraction:
        return Fraction(float(digits))

    names: dict[str, Any] = {
        "F": number, "cutoff": Fraction(1, 2), **tensors,
        "max": lambda t: max(t.flat), "min": lambda t: min(t.flat), "sum": lambda t: sum(t.flat, Fraction(0)),
        "mean": lambda t: sum(t.flat, Fraction(0)) / t.size, "area": lambda b: int(np.sum(b.astype(bool))),
        "fraction": lambda b: Fraction(int(np.sum(b.astype(bool))), b.size),
        "argmax": lambda t: list(t.flat).index(max(t.flat)),
        "percentile": lambda t, p: sorted(t.flat)[max(1, -(-Fraction(p) * t.size // 100)) - 1],
        "at_least": lambda n, *c: sum(c) >= n,
    }  # fmt: skip
    return bool(eval(literal, {"__builtins__": {}}, names))


def _near(values: Array, rng: np.random.Generator) -> Array:
    """Some elements on or beside the numbers the conditions compare with, where rounding matters."""
    special = rng.choice([0.3, 0.5, 0.7, 0.25, 0.45], values.shape).astype(np.float32)
    return np.where(rng.random(values.shape) < 0.5, special, values.astype(np.float32))


@pytest.mark.parametrize("radius", [0.0, 1e-20, 1e-3, 0.2])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_certified_holds_at_every_point_of_the_balls(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    engine = {name: _near(rng.random(shape), rng) for name, shape in (("prob", (3,)), ("mask", (4, 4)))}
    shift = {n: (rng.random(v.shape) - 0.5) * rng.choice([0.0, 1e-8, 0.1]) for n, v in engine.items()}
    centres = {n: AR.add(AR.number(v), AR.number(shift[n])) for n, v in engine.items()}
    balls = {n: Ball(c.centre, np.full(c.shape, radius)) for n, c in centres.items()}
    numbers = {("outputs", n): v for n, v in engine.items()}
    judge = Judge(AR, _logic(), numbers, {("outputs", n): b for n, b in balls.items()})
    entries = {str(e["name"]): e for e in judge.entries()}
    decided = {k: _python(t, {n: rational(v) for n, v in engine.items()}) for k, t in CONDITIONS.items()}
    for name, entry in entries.items():
        assert entry["decision"] == decided[name] or name in ("total", "ratio", "either")  # rounded in binary64 there
    for trial in range(25):
        points = {}
        for n, ball in balls.items():
            centre = np.empty(ball.shape, dtype=object)
            for place in np.ndindex(ball.shape):
                at = Fraction(int(rng.integers(-8, 9)), 8) if trial else Fraction(0)
                centre[place] = fixed.to_fraction(ball.centre, place) + Fraction(radius) * at
            points[n] = centre
        for name, entry in entries.items():
            exact = _python(CONDITIONS[name], points)
            if entry["status"] == "certified":
                assert exact == entry["decision"], name
            if entry["status"] == "changed by rounding":
                assert exact != entry["decision"], name
    if radius <= 1e-20 and not any(s.any() for s in shift.values()):
        assert sum(e["status"] == "certified" for e in entries.values()) > 3


def test_a_nan_is_never_certified() -> None:
    engine = {"prob": np.array([0.1, np.nan, 0.2], np.float32), "mask": np.zeros((4, 4), np.float32)}
    exact = {("outputs", n): AR.number(np.nan_to_num(v)) for n, v in engine.items()}
    entries = Judge(AR, _logic(), {("outputs", n): v for n, v in engine.items()}, exact).entries()
    assert {e["name"]: e["status"] for e in entries}["either"] == "not certified"
