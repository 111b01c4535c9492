"""Resizes beside onnxruntime, onnx.reference and torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from differential import Draw, check
from draw_resize import draw_cubic, draw_resize

FAMILIES: dict[str, tuple[Callable[[np.random.Generator], Draw], int]] = {
    "resize": (draw_resize, 300),
    "cubic": (draw_cubic, 100),
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
