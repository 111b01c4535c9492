"""When an error counts as larger than onnxruntime's: chance, one large value and common roundings do not."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.error_statistics import ErrorTable

RNG = np.random.default_rng


def table(inputs: int, elements: int, ours: float, peer: float, seed: int = 0, common: bool = False) -> ErrorTable:
    """Errors of given standard deviations on values of magnitude 1; ``common``: one error per input for all values."""
    rng, found = RNG(seed), ErrorTable()
    for _ in range(inputs):
        truth = rng.choice([-1.0, 1.0], elements)
        shape = 1 if common else elements
        a, b = (truth + s * rng.standard_normal(shape) for s in (ours, peer))
        found.add("t", "conv", truth, a, b)
    return found


@pytest.mark.parametrize(("inputs", "elements"), [(1, 20_000), (3, 5000), (16, 2000), (61, 10), (61, 2000)])
def test_a_larger_error_is_found(inputs: int, elements: int) -> None:
    assert table(inputs, elements, 2e-6, 1e-6).beyond(1.1)
    assert not table(inputs, elements, 2e-6, 1e-6).beyond(2.2)


@pytest.mark.parametrize("common", [False, True])
def test_equal_errors_never_pass_by_chance(common: bool) -> None:
    for seed in range(60):
        for inputs, elements in ((2, 4), (8, 4), (12, 300), (16, 2000)):
            assert not table(inputs, elements, 1e-6, 1e-6, seed, common).beyond(1.1), (seed, inputs, elements)


def test_few_inputs_with_small_tensors_decide_nothing() -> None:
    found = table(2, 500, 9e-6, 1e-6)
    assert not found.beyond(1.1)
    assert max(found.ratios().values()) > 8  # it is reported all the same


def test_one_large_value_does_not_decide() -> None:
    found = ErrorTable()
    for number in range(40):
        truth = np.ones(2000)
        ours = truth + 1e-6 * RNG(number).standard_normal(2000)
        ours[7] += 1e-3 * (number == 3)
        found.add("t", "softmax", truth, ours, truth + 1e-6 * RNG(-number % 97).standard_normal(2000))
    assert max(found.ratios().values()) > 3
    assert not found.beyond(1.1)


def test_errors_below_the_resolution_of_binary32_do_not_count() -> None:
    assert not table(61, 2000, 1e-7, 2e-8).beyond(1.1)
    assert table(61, 2000, 1.3e-7, 2e-8).beyond(1.1)


def test_exact_peers_give_no_ratio() -> None:
    assert table(20, 2000, 1e-6, 0.0).ratios() == {}
    assert table(20, 2000, 1e-6, 0.0).beyond(1.1) == {}
    assert table(20, 2000, 1e-6, 0.0).summary() == {"compared_tensors": 0}
