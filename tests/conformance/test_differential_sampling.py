"""Antialiased resizes and operators that read between elements, beside onnxruntime, onnx.reference and torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from differential import Draw, check
from draw_sampling import draw_antialias, draw_deform_conv, draw_grid_sample, draw_max_roi_pool, draw_roi_align

FAMILIES: dict[str, tuple[Callable[[np.random.Generator], Draw], int]] = {
    "antialias": (draw_antialias, 39),
    "grid sample": (draw_grid_sample, 150),
    "roi align": (draw_roi_align, 39),
    "max roi pool": (draw_max_roi_pool, 39),
    "deform conv": (draw_deform_conv, 39),
}
"""Of each family the generator and how many models the slow test draws."""


@pytest.mark.parametrize("family", FAMILIES)
def test_sampling(family: str) -> None:
    check(family, FAMILIES[family][0], range(10))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_many_samplings(family: str) -> None:
    draw, count = FAMILIES[family]
    check(family, draw, range(10, count))
