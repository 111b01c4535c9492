"""Convolutions and pools beside onnxruntime, onnx.reference and torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from differential import Draw, check
from draw_windows import draw_conv, draw_conv_transpose, draw_pool

FAMILIES: dict[str, tuple[Callable[[np.random.Generator], Draw], int]] = {
    "conv": (draw_conv, 400),
    "conv_transpose": (draw_conv_transpose, 400),
    "pool": (draw_pool, 400),
}
"""Of each family the generator and how many models the slow test draws."""


@pytest.mark.parametrize("family", FAMILIES)
def test_windows(family: str) -> None:
    check(family, FAMILIES[family][0], range(8))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_windows(family: str) -> None:
    draw, count = FAMILIES[family]
    check(family, draw, range(8, count))
