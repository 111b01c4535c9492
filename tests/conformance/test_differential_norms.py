"""Normalisations beside onnxruntime, onnx.reference and torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from differential import Draw, check
from draw_norms import draw_batch, draw_group, draw_instance, draw_layer, draw_rms

FAMILIES: dict[str, tuple[Callable[[np.random.Generator], Draw], int]] = {
    "layer": (draw_layer, 100),
    "instance": (draw_instance, 60),
    "group": (draw_group, 60),
    "batch": (draw_batch, 60),
    "rms": (draw_rms, 60),
}
"""Of each family the generator and how many models the slow test draws."""


@pytest.mark.parametrize("family", FAMILIES)
def test_norms(family: str) -> None:
    check(family, FAMILIES[family][0], range(3))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_norms(family: str) -> None:
    draw, count = FAMILIES[family]
    check(family, draw, range(3, count))
