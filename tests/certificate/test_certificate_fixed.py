"""Multi-word fixed point against rationals: exact where it says so, and within its own bound elsewhere."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.certificate import fixed
from evidence.certificate.fixed import Fixed

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
NUMBERS = st.lists(FINITE, min_size=1, max_size=6)
FRACTIONS = st.fractions(min_value=-(10**9), max_value=10**9, max_denominator=10**9)


def _value(x: Fixed, k: int) -> Fraction:
    return fixed.to_fraction(x, (k,))


@given(NUMBERS, st.integers(2, 12))
def test_binary32_values_are_held_within_the_bound(values: list[float], keep: int) -> None:
    x, lost = fixed.from_float(np.array(values), keep)
    for k, v in enumerate(values):
        assert abs(_value(x, k) - Fraction(v)) <= Fraction(float(lost[k]))
        assert fixed.signs(x)[k] == np.sign(float(_value(x, k) > 0) - float(_value(x, k) < 0))
        assert (
            Fraction(float(fixed.magnitude(x)[k])) >= abs(_value(x, k)) >= Fraction(float(fixed.least_magnitude(x)[k]))
        )
    same, nothing = fixed.from_float(np.array(values), 20)
    assert all(_value(same, k) == Fraction(v) for k, v in enumerate(values))
    assert not nothing.any()


@given(NUMBERS, NUMBERS, st.integers(2, 8))
def test_sums_are_exact_and_products_within_the_bound(a: list[float], b: list[float], keep: int) -> None:
    n = min(len(a), len(b))
    x, _ = fixed.from_float(np.array(a[:n]), 20)
    y, _ = fixed.from_float(np.array(b[:n]), 20)
    total, difference = fixed.add(x, y), fixed.add(x, y, -1.0)
    product, lost = fixed.multiply(x, y, keep)
    whole, nothing = fixed.multiply(x, y, 60)
    short, cut = fixed.cut(x, keep)
    for k in range(n):
        p, q = _value(x, k), _value(y, k)
        assert _value(total, k) == p + q
        assert _value(difference, k) == p - q
        assert abs(_value(product, k) - p * q) <= Fraction(float(lost[k]))
        assert _value(whole, k) == p * q
        assert abs(_value(short, k) - p) <= Fraction(float(cut[k]))
        assert _value(fixed.halved(x, 7), k) == p / 128
        assert _value(fixed.doubled(x, 29), k) == p * 2**29
    assert not nothing.any()


@given(FRACTIONS, st.integers(3, 9))
def test_fractions_are_rounded_within_the_bound(value: Fraction, keep: int) -> None:
    x, lost = fixed.from_fraction(value, keep)
    assert abs(fixed.to_fraction(x, ()) - value) <= Fraction(lost)
    if value.denominator == 1 and keep > 3:
        assert lost == 0.0


@given(st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=5), st.integers(-3, 3))
def test_words_are_canonical_after_a_carry(words: list[int], top: int) -> None:
    x = fixed.carried(np.array(words, dtype=np.float64)[:, None], top)
    expected = sum((Fraction(w) * Fraction(2) ** (20 * (top - i)) for i, w in enumerate(words)), Fraction(0))
    assert _value(x, 0) == expected
    assert (np.abs(x.words) <= 2**19).all()
    assert fixed.signs(x)[0] == np.sign(float(expected > 0) - float(expected < 0))


@pytest.mark.parametrize("bound", [0.0, 1e-300, 1e-30, 1.0, np.inf, np.nan])
def test_bounds_are_raised_outwards(bound: float) -> None:
    found = float(fixed.raised(np.asarray(bound)))
    if bound == 0:
        assert found == 0
    elif not np.isfinite(bound):
        assert found == np.inf
    else:
        assert found > bound
        assert found >= fixed.LEAST
