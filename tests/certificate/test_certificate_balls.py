"""Operations on balls: whatever point is chosen in the operands' balls, the exact result lies in the result's ball."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.certificate import fixed
from evidence.certificate.ball import Ball, BallArithmetic, distance
from evidence.certificate.elementary import ELEMENTARY, constant
from evidence.certificate.selection import branches, hull

AR = BallArithmetic(6)
CENTRES = st.floats(min_value=-50, max_value=50, width=32)
RADII = st.sampled_from([0.0, 1e-30, 1e-12, 1e-6, 0.01, 1.0])
INSIDE = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0])


def _ball(centre: float, radius: float) -> Ball:
    return Ball(AR.number(np.array([centre])).centre, np.array([radius]))


def _inside(centre: float, radius: float, place: float) -> Fraction:
    return Fraction(centre) + Fraction(radius) * Fraction(place)


def _holds(ball: Ball, value: Fraction) -> bool:
    radius = float(np.broadcast_to(ball.radius, ball.shape)[0])
    return not np.isfinite(radius) or abs(fixed.to_fraction(ball.centre, (0,)) - value) <= Fraction(radius)


RATIONAL: dict[str, tuple[Callable[[Ball, Ball], Ball], Callable[[Fraction, Fraction], Fraction]]] = {
    "add": (AR.add, lambda a, b: a + b),
    "sub": (AR.sub, lambda a, b: a - b),
    "mul": (AR.mul, lambda a, b: a * b),
    "div": (AR.div, lambda a, b: a / b),
    "max": (AR.maximum, max),
    "min": (AR.minimum, min),
    "abs": (lambda a, b: AR.absolute(a), lambda a, b: abs(a)),
    "leaky": (
        lambda a, b: branches(AR, a, AR.mul(a, AR.fraction(Fraction(1, 4))), a),
        lambda a, b: a if a >= 0 else a / 4,
    ),
    "hull": (lambda a, b: hull(AR, a, b), lambda a, b: b),
}


@pytest.mark.parametrize("name", RATIONAL)
@settings(max_examples=150, deadline=None)
@given(CENTRES, RADII, INSIDE, CENTRES, RADII, INSIDE)
def test_rational_operations_hold_every_point(
    name: str, a: float, r: float, at: float, b: float, s: float, bt: float
) -> None:
    ours, exact = RATIONAL[name]
    x, y = _inside(a, r, at), _inside(b, s, bt)
    found = ours(_ball(a, r), _ball(b, s))
    if name == "div" and y == 0:
        assert not np.isfinite(found.radius[0])
        return
    assert _holds(found, exact(x, y))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp, "log": mpmath.log, "erf": mpmath.erf, "tanh": mpmath.tanh, "sin": mpmath.sin, "cos": mpmath.cos,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "sqrt": mpmath.sqrt, "reciprocal": lambda x: 1 / x,
}  # fmt: skip


def _mp(value: Fraction) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


def _as_fraction(value: Any) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


@pytest.mark.parametrize("words", [4, 6, pytest.param(13, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ELEMENTARY)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(CENTRES, RADII, INSIDE), min_size=1, max_size=5))
def test_functions_hold_every_point(name: str, words: int, points: list[tuple[float, float, float]]) -> None:
    """Against mpmath at three times the working precision; several elements share one block of words."""
    ar = BallArithmetic(words)
    centres = np.array([abs(c) if name in ("log", "sqrt") else c for c, _, _ in points])
    radii = np.array([r for _, r, _ in points])
    found = ELEMENTARY[name](ar, Ball(ar.number(centres).centre, radii))
    with mpmath.workprec(60 * words + 200):
        for k, (_, r, place) in enumerate(points):
            x = Fraction(float(centres[k])) + Fraction(r) * Fraction(place)
            if not np.isfinite(found.radius[k]):
                # Unknown only where the function ends within the ball.
                assert name in ("log", "sqrt", "reciprocal") and abs(centres[k]) <= r
                continue
            true = _as_fraction(FUNCTIONS[name](_mp(x)))
            apart = abs(fixed.to_fraction(found.centre, (k,)) - true)
            assert apart <= Fraction(float(found.radius[k])) + Fraction(2) ** (-40 * words - 100)
            if r == 0 and name not in ("exp", "reciprocal"):  # tight, not only sound; the others may reach far above 1
                assert found.radius[k] < 2.0 ** (-20 * words + 60)


@pytest.mark.parametrize("value", [-1e4, -300.0, -249.9, 249.0, 300.0])
@pytest.mark.parametrize("radius", [0.0, 1e-20, 0.5, 2.0, 500.0])
def test_exp_at_its_limits(value: float, radius: float) -> None:
    found = ELEMENTARY["exp"](AR, _ball(value, radius))
    if np.isfinite(found.radius[0]):
        with mpmath.workprec(800):
            for place in (-1, 0, 1):
                assert _holds(found, _as_fraction(mpmath.exp(_mp(_inside(value, radius, place)))))
    else:
        assert value + radius > 240


def test_a_nan_or_an_infinity_has_no_bound() -> None:
    for value in (np.nan, np.inf, -np.inf):
        assert distance(AR, _ball(1.0, 0.0), np.array([value], np.float32))[0] == np.inf


@pytest.mark.parametrize("name", ["ln2", "pi", "sqrt2"])
def test_constants(name: str) -> None:
    with mpmath.workprec(1200):
        true = {"ln2": mpmath.ln(2), "pi": mpmath.pi + 0, "sqrt2": mpmath.sqrt(2)}[name]
        assert abs(constant(name, 40) - _as_fraction(true)) < Fraction(2) ** (-20 * 43)
