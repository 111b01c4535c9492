"""AUC, exact intervals and McNemar's test against SciPy, and DeLong's variance against the jackknife it equals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.decisions import statistics
from evidence.decisions.statistics import GRID

scores = st.lists(st.integers(0, 6), min_size=2, max_size=9)


def both(ill: list[int], well: list[int]) -> statistics.Roc:
    values = np.array([*ill, *well], np.float64)
    return statistics.roc(values, np.arange(len(values)) < len(ill))


def area_by_pairs(ill: Any, well: Any) -> float:
    return sum((x > y) + 0.5 * (x == y) for x in ill for y in well) / (len(ill) * len(well))


def jackknife(ill: list[int], well: list[int], ill2: list[int], well2: list[int]) -> float:
    """Two-sample jackknife covariance of two areas on the same items (Hanley and Hajian-Tilaki 1997)."""
    total = 0.0
    for group in (0, 1):
        count = len((ill, well)[group])
        left = []
        for out in range(count):
            drop = [[v for i, v in enumerate(x) if i != out] for x in ((ill, well)[group], (ill2, well2)[group])]
            left.append(
                [area_by_pairs(drop[0], well), area_by_pairs(drop[1], well2)]
                if group == 0
                else [area_by_pairs(ill, drop[0]), area_by_pairs(ill2, drop[1])]
            )
        one, other = np.array(left).T
        total += (count - 1) / count * float(np.sum((one - one.mean()) * (other - other.mean())))
    return total


@settings(deadline=None)
@given(scores, scores)
def test_the_area_is_the_share_of_pairs_in_order(ill: list[int], well: list[int]) -> None:
    found = both(ill, well)
    assert math.isclose(found.area, area_by_pairs(ill, well), abs_tol=1e-15)
    stats = pytest.importorskip("scipy.stats")
    assert math.isclose(found.wins / 2, stats.mannwhitneyu(ill, well).statistic)


@settings(deadline=None)
@given(scores, scores)
def test_the_interval_is_that_of_the_jackknife(ill: list[int], well: list[int]) -> None:
    found = statistics.area(both(ill, well))
    half = statistics.Z * math.sqrt(max(0.0, jackknife(ill, well, ill, well)))
    low, high = max(0.0, found.value - half), min(1.0, found.value + half)
    assert low - 1.1e-6 <= found.low / GRID <= low + 1e-9
    assert high - 1e-9 <= found.high / GRID <= high + 1.1e-6


@settings(deadline=None)
@given(scores, scores, st.randoms(use_true_random=False))
def test_the_difference_is_paired(ill: list[int], well: list[int], random: Any) -> None:
    ill2, well2 = ([random.randint(0, 6) for _ in x] for x in (ill, well))
    found = statistics.difference(both(ill, well), both(ill2, well2))
    variance = sum(sign * jackknife(*a, *b) for sign, a, b in [
        (1, (ill, well), (ill, well)), (1, (ill2, well2), (ill2, well2)), (-2, (ill, well), (ill2, well2))
    ])  # fmt: skip
    half = statistics.Z * math.sqrt(max(0.0, variance))
    assert math.isclose(found.value, area_by_pairs(ill2, well2) - area_by_pairs(ill, well), abs_tol=1e-12)
    assert abs(max(-1.0, found.value - half) - found.low / GRID) < 1.2e-6
    assert abs(min(1.0, found.value + half) - found.high / GRID) < 1.2e-6


def test_equal_scores_differ_by_nothing() -> None:
    found = both([3, 4, 4], [1, 4])
    assert statistics.difference(found, found).to_json() == {
        "estimate": "0.0", "low": "0.000000", "high": "0.000000",
    }  # fmt: skip


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 300))
def test_intervals_of_proportions_are_exact(hits: int, more: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    count = hits + more
    if not count:
        assert statistics.proportion(0, 0).to_json() == {"estimate": "nan", "low": "0.000000", "high": "1.000000"}
        return
    found = statistics.proportion(hits, count)
    wanted = stats.binomtest(hits, count).proportion_ci(0.95, "exact")
    assert found.value == hits / count
    assert wanted.low - 1.01e-6 <= found.low / GRID <= wanted.low + 1e-9
    assert wanted.high - 1e-9 <= found.high / GRID <= wanted.high + 1.01e-6


def test_coverage_is_at_least_95_percent_by_enumeration() -> None:
    for count in (1, 7, 20):
        bounds = [statistics.proportion(hits, count) for hits in range(count + 1)]
        for p in np.linspace(0, 1, 41):
            inside = [math.comb(count, k) * p**k * (1 - p) ** (count - k)
                      for k, b in enumerate(bounds) if b.low / GRID <= p <= b.high / GRID]  # fmt: skip
            assert sum(inside) >= 0.95 - 1e-12


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_an_exact_binomial_test(one: int, other: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    wanted = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert math.isclose(statistics.mcnemar(one, other), wanted, rel_tol=1e-9)


def test_a_class_that_is_too_small_has_no_interval() -> None:
    for ill, well in (([1], [0, 2]), ([1, 2], [0]), ([], [1, 2])):
        found = statistics.area(both(ill, well))
        assert (found.low, found.high) == (0, GRID)
