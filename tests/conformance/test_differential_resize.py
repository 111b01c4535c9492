"""Resizes beside onnxruntime, onnx.reference and torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from differential import Draw, check, compare, drawn
from draw_resize import draw_cubic, draw_resize

FAMILIES: dict[str, tuple[Callable[[np.random.Generator], Draw], int]] = {
    "resize": (draw_resize, 300),
}
"""Of each family the generator and how many models the slow test draws."""


@pytest.mark.parametrize("family", FAMILIES)
def test_resize(family: str) -> None:
    check(family, FAMILIES[family][0], range(10))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_resize(family: str) -> None:
    draw, count = FAMILIES[family]
    check(family, draw, range(10, count))


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 60), marks=pytest.mark.slow)])
def test_cubic(seeds: range) -> None:
    """Without a share that onnxruntime must compute: it has cubic interpolation of two axes only."""
    found = compare(drawn("cubic", draw_cubic, seeds))
    assert not found.lines, "\n".join(found.lines)
    assert found.answered["onnxruntime"] and found.answered["onnx.reference"]
