"""The search for vectors: what it finds is true of the tensors, and what it calls infeasible does not happen."""

from __future__ import annotations

import math
from fractions import Fraction

import coverage_case as case
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_policies import random_logic, random_policy

from compiler_kernels.ir.dtypes import DTYPES, numpy_dtype
from evidence.coverage.execute import encode_vectors
from evidence.coverage.finder import Finder
from evidence.coverage.goals import coverage_goals, reached
from evidence.coverage.grids import Grid, policy_bounds
from evidence.coverage.mcdc import Record


def _searched(name: str | int) -> Finder:
    """The search, after a check that its vectors reach all that it does not call infeasible or open."""
    finder = case.searched(name)
    found = finder.found
    records: dict[str, list[Record]] = {node: [] for node in finder.nodes}
    for vector in found.vectors:
        for probe, record in finder.evaluator.decide(vector.world, vector.flags).records:
            records[probe].append(record)
    for node in finder.nodes.values():
        for goal in coverage_goals(node):
            excused = goal in found.infeasible or goal in found.open
            assert reached(goal, node, records[node.id]) != excused, goal
    return finder


def _never_reached(finder: Finder, seed: int, worlds: int) -> None:
    """Worlds drawn at random never reach what was proved infeasible."""
    random = np.random.default_rng(seed)
    levels = [t.value for t in finder.logic.thresholds] + [0.0, 0.1, 0.25, 0.5, 0.9, 1.0]
    records: dict[str, set[Record]] = {name: set() for name in finder.nodes}
    for _ in range(worlds):
        few = random.choice(levels, size=2)
        values = {}
        for group in finder.real.numbers.groups:
            value = random.choice(few) if random.random() < 0.7 else random.random()
            values[group] = float(value) + random.choice((-1e-7, 0.0, 1e-7))
        low, high = 0.0, 1.0
        world = finder.cells.world({g: min(max(v, low), high) for g, v in values.items()}, finder.guards)
        for name, record in finder.evaluator.decide(world).records:
            records[name].add(record)
    for goal in finder.found.infeasible:
        assert not reached(goal, finder.nodes[goal.probe], sorted(records[goal.probe], key=str)), goal


def test_twelve_conditions_are_covered() -> None:
    finder = _searched("TWELVE")
    assert len(finder.nodes["decision_node:refer"].conditions) == 13
    assert finder.found.open == [] and finder.found.infeasible == {}


def test_coupled_and_impossible_conditions_are_proved() -> None:
    finder = _searched("COUPLED")
    assert finder.found.open == []
    proved = {str(goal) for goal in finder.found.infeasible}
    # the second occurrence of prob[0, 0] > 0.5 cannot change alone, but masking covers it
    assert "decision_node:either condition 2 unique-cause pair" in proved
    assert not any(p.startswith("decision_node:either") and "masked" in p for p in proved)
    assert {"decision_node:never true", "decision_node:never condition 1 true and not masked"} <= proved
    # 0.3 is no binary32 number
    assert "decision_node:off_grid true" in proved


@pytest.mark.parametrize("seed", case.SEEDS)
def test_random_policies_have_nothing_open(seed: int) -> None:
    finder = _searched(seed)
    assert finder.found.open == []
    _never_reached(finder, seed, 300)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_random_policies_have_nothing_open(seed: int) -> None:
    finder = _searched(seed)
    assert finder.found.open == []
    _never_reached(finder, seed, 2000)


def test_the_search_is_reproducible() -> None:
    """Also after another search in the same process."""
    found = []
    for seed in (55, 42, 55):
        policy, logic = random_logic(seed)
        finder = Finder(logic, policy_bounds(policy))
        finder.search()
        found.append(encode_vectors(logic.tensors, finder.found.vectors))
    assert found[0] == found[2] != found[1]


def test_random_policies_are_reproducible() -> None:
    assert random_policy(7) == random_policy(7) != random_policy(8)


@given(st.sampled_from(sorted(DTYPES)), st.floats(allow_nan=False, allow_infinity=False))
def test_grids_have_the_neighbours(dtype: str, value: float) -> None:
    grid = Grid(dtype)
    low, high = grid.floor(value), grid.ceil(value)
    assert low <= value <= high and grid.below(value) < value < grid.above(value)
    for found in (low, high, grid.below(value), grid.above(value)):
        if math.isfinite(found) and abs(found) < 2**53:
            assert float(numpy_dtype(dtype).type(found)) == found
    if low != high and -grid.high < value < grid.high and not grid.integer:
        # nothing of the grid between them: the middle rounds to one of the two
        middle = float((Fraction(low) + Fraction(high)) / 2)
        assert grid.nearest(middle) in (low, high)
