"""Policy section ``shapes``: bounds, their short forms, and what is refused."""

from __future__ import annotations

import pytest

from compiler_kernels.errors import UsageError
from compiler_kernels.ir.symbols import Bound
from compiler_kernels.policy import load_policy, policy_from_json

SMALL = 'version: 1\nmodel: {name: m, version: "1"}\n'


def test_short_forms_mean_the_same() -> None:
    text = SMALL + "shapes: {b: [1, 8], a: {min: 30, max: 520, multiple: 32}, c: 3, d: {max: 4}}\n"
    policy = load_policy(text, "p")
    assert policy.bounds() == {"a": Bound(32, 512, 32), "b": Bound(1, 8), "c": Bound(3, 3), "d": Bound(1, 4)}
    assert list(policy.bounds()) == ["a", "b", "c", "d"]
    assert policy_from_json(policy.canonical_json()) == policy
    assert load_policy(SMALL + "shapes: {b: {min: 1, max: 8}}", "p") == load_policy(SMALL + "shapes: {b: [1, 8]}", "p")


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        ("{b: [8, 1]}", r"p:3:13: shapes\.b must allow at least one size"),
        ("{b: [1]}", r"shapes\.b must be a lowest and a highest size"),
        ("{b: {min: 33, max: 63, multiple: 32}}", r"shapes\.b must allow at least one size"),
        ("{b: 0}", r"shapes\.b\.min must be greater than or equal to 1"),
        ("{b: {min: 1}}", r"shapes\.b\.max is missing"),
        ("{b: {max: 4, step: 2}}", r"shapes\.b\.step is not a known key; .* min, max, multiple"),
        ("{'2b': 4}", r"p:3:10: shapes\.2b.* must match pattern"),
        ("{b: yes}", r"shapes\.b must be a mapping"),
    ],
)
def test_mistakes_in_bounds(shapes: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load_policy(SMALL + f"shapes: {shapes}\n", "p")
