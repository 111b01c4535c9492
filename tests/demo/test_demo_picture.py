"""The panels on small arrays, and the whole picture."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from cuvil_assets import demo_picture


def test_agreement_panel_paints_each_case_in_its_own_colour() -> None:
    rgb = np.full((1, 4, 3), 0.4, dtype=np.float32)
    mask, label = np.array([[True, True, False, False]]), np.array([[True, False, True, False]])
    out = demo_picture.agreement_panel(rgb, mask, label)
    assert [tuple(p) for p in out[0]] == [
        demo_picture.BOTH,
        demo_picture.MODEL_ONLY,
        demo_picture.LABEL_ONLY,
        (128, 128, 128),  # 0.4 * 1.25 = 0.5
    ]


def test_probability_panel_is_grey_and_clips() -> None:
    out = demo_picture.probability_panel(np.array([[0, 0.2, 1, 1.5]], dtype=np.float32))
    assert out.tolist() == [[[0, 0, 0], [51, 51, 51], [255, 255, 255], [255, 255, 255]]]


def test_picture_shows_the_three_panels_at_full_size() -> None:
    height, width = 40, 300
    rng = np.random.default_rng(1)
    rgb = rng.random((height, width, 3), dtype=np.float32)
    probability = rng.random((height, width), dtype=np.float32)
    label = rng.random((height, width)) > 0.5
    png = demo_picture.render(rgb, probability, label, 0.5, 0.25)
    pixels = np.asarray(Image.open(io.BytesIO(png)))
    panels = (
        demo_picture.to_pixels(rgb),
        demo_picture.probability_panel(probability),
        demo_picture.agreement_panel(rgb, probability > 0.5, label),
    )
    top = demo_picture._HEAD + demo_picture._CAPTION
    for index, panel in enumerate(panels):
        left = demo_picture._MARGIN + index * (width + demo_picture._GAP)
        assert np.array_equal(pixels[top : top + height, left : left + width], panel)
    # captions above and the legend below are there
    assert (pixels[:top] < 128).any() and (pixels[top + height :] < 128).any()


def test_picture_of_arrays_that_do_not_fit_is_refused() -> None:
    rgb, flat = np.zeros((8, 8, 3), dtype=np.float32), np.zeros((8, 9), dtype=np.float32)
    with pytest.raises(ValueError, match="sizes differ"):
        demo_picture.render(rgb, flat, np.zeros((8, 9), dtype=bool), 0.5, 0.0)
