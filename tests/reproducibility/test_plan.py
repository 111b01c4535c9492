"""The plan: the same for a seed on every machine, and varied in every kind from the second rebuild on."""

from __future__ import annotations

import json
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from evidence.reproducibility.plan import FRESH, Variation, make_plan


@given(st.integers(1, 60), st.integers(0, 1 << 40))
def test_a_plan_is_a_function_of_its_seed(rebuilds: int, seed: int) -> None:
    plan = make_plan(rebuilds, seed)
    assert plan == make_plan(rebuilds, seed)
    assert [item.number for item in plan] == [*range(1, rebuilds + 1)]
    assert [Variation.from_json(json.loads(json.dumps(item.to_json()))) for item in plan] == [*plan]


@given(st.integers(8, 40), st.integers(0, 1 << 40))
def test_every_kind_takes_several_values(rebuilds: int, seed: int) -> None:
    plan = make_plan(rebuilds, seed)
    for item in fields(Variation):
        assert len({getattr(world, item.name) for world in plan}) > 1, item.name


def test_a_longer_plan_begins_like_no_other_seed() -> None:
    assert make_plan(20, 1) != make_plan(20, 2)


def test_libraries_are_compiled_again_as_often_as_asked() -> None:
    assert [sum(w.compiler_cache == FRESH for w in make_plan(5, fresh_caches=n)) for n in (0, 1, 5)] == [0, 1, 5]


def test_directories_are_long_have_blanks_and_other_scripts() -> None:
    directories = {world.directory for world in make_plan(20)}
    assert any(len(name) > 200 for name in directories)
    assert any(" " in name for name in directories)
    assert any(not name.isascii() for name in directories)
