"""The picture of the demonstration: photograph, probability, and the mask compared with the pseudo-labels."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cuvil_assets.demo_data import Image, Mask, optional_module

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from PIL.ImageDraw import ImageDraw

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]

# Far apart in lightness as well as in hue, for readers with a colour-vision deficiency.
BOTH: Colour = (86, 220, 255)
MODEL_ONLY: Colour = (240, 228, 66)
LABEL_ONLY: Colour = (255, 90, 200)
_INK, _FAINT, _PAPER = (32, 34, 38), (96, 100, 108), (255, 255, 255)
_MARGIN, _GAP, _HEAD, _CAPTION, _FOOT, _BAR = 24, 16, 86, 46, 132, 14


def to_pixels(values: Image) -> Pixels:
    """[0, 1] floats to 8-bit values, rounded to nearest; same shape."""
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)


def probability_panel(probability: Image) -> Pixels:
    """[H, W] probabilities as grey values [H, W, 3]: black 0, white 1."""
    return np.repeat(to_pixels(probability)[..., np.newaxis], 3, axis=2)


def agreement_panel(rgb: Image, mask: Mask, label: Mask) -> Pixels:
    """[H, W, 3]: the photograph's green channel (where vessels show best) with mask and pseudo-label painted over it.

    ``BOTH`` where mask and label agree on a vessel, ``MODEL_ONLY`` and ``LABEL_ONLY`` where one has it alone.
    """
    grey = to_pixels(rgb[..., 1] * np.float32(1.25))
    out = np.repeat(grey[..., np.newaxis], 3, axis=2)
    for where, colour in ((mask & label, BOTH), (mask & ~label, MODEL_ONLY), (label & ~mask, LABEL_ONLY)):
        out[where] = colour
    return out


def render(rgb: Image, probability: Image, label: Mask, threshold: float, overlap: float) -> bytes:
    """PNG of three captioned panels with legend.

    ``rgb`` float32 [H, W, 3] in [0, 1]; ``probability`` float32 [H, W]; ``label`` bool [H, W]; ``overlap`` the Dice
    value to quote. Raises ``ValueError`` when the sizes differ and ``UsageError`` when Pillow is missing.
    """
    height, width = probability.shape
    if rgb.shape != (height, width, 3) or label.shape != (height, width):
        raise ValueError(f"sizes differ: picture {rgb.shape}, probability {probability.shape}, labels {label.shape}")
    pillow = optional_module("PIL.Image", "pillow")
    draw_module = optional_module("PIL.ImageDraw", "pillow")
    mask = probability > threshold
    panels = (
        (to_pixels(rgb), "1  Photograph", "right half, held out from training"),
        (probability_panel(probability), "2  Engine output", "probability of a vessel, 0 to 1"),
        (
            agreement_panel(rgb, mask, label),
            f"3  Mask at {threshold:g} on the photograph",
            "compared with the pseudo-labels",
        ),
    )
    step = max(width, 260) + _GAP
    size = (2 * _MARGIN + 3 * step - _GAP, _HEAD + _CAPTION + height + _FOOT)
    canvas: Picture = pillow.new("RGB", size, _PAPER)
    draw: ImageDraw = draw_module.Draw(canvas)
    draw.text((_MARGIN, 18), "Cuvil demonstration: vessels on a fundus photograph", _INK, font=_font(24))
    draw.text((_MARGIN, 52), "A demonstration, not a clinical model.", _FAINT, font=_font(16))
    top = _HEAD + _CAPTION
    for index, (pixels, title, note) in enumerate(panels):
        left = _MARGIN + index * step
        draw.text((left, _HEAD), title, _INK, font=_font(18))
        draw.text((left, _HEAD + 22), note, _FAINT, font=_font(14))
        canvas.paste(pillow.fromarray(pixels), (left, top))
    _probability_scale(draw, _MARGIN + step, top + height + 14, width)
    _legend(draw, _MARGIN + 2 * step, top + height + 12)
    _notes(draw, _MARGIN, top + height + 12, overlap)
    buffer = io.BytesIO()
    canvas.save(buffer, format="PNG")
    return buffer.getvalue()


def _font(size: int) -> Any:
    return optional_module("PIL.ImageFont", "pillow").load_default(size)


def _probability_scale(draw: ImageDraw, left: int, top: int, width: int) -> None:
    for x in range(width):
        level = round(255 * x / max(width - 1, 1))
        draw.line((left + x, top, left + x, top + _BAR), fill=(level, level, level))
    draw.rectangle((left, top, left + width - 1, top + _BAR), outline=_FAINT)
    for x, text, anchor in ((left, "0", "la"), (left + width // 2, "0.5", "ma"), (left + width - 1, "1", "ra")):
        draw.text((x, top + _BAR + 4), text, _FAINT, font=_font(14), anchor=anchor)


def _legend(draw: ImageDraw, left: int, top: int) -> None:
    rows = (
        (BOTH, "engine and pseudo-label: vessel"),
        (MODEL_ONLY, "engine only"),
        (LABEL_ONLY, "pseudo-label only"),
    )
    for index, (colour, text) in enumerate(rows):
        y = top + 24 * index
        draw.rectangle((left, y, left + 16, y + 16), fill=colour, outline=_INK)
        draw.text((left + 24, y), text, _INK, font=_font(15))


def _notes(draw: ImageDraw, left: int, top: int, overlap: float) -> None:
    lines = (
        f"Dice overlap with the pseudo-labels: {overlap:.3f}",
        "Pseudo-labels come from a ridge filter,",
        "not from a person.",
        "Photograph: retina.jpg of scikit-image, CC0 1.0.",
    )
    for index, text in enumerate(lines):
        draw.text((left, top + 22 * index), text, _INK if index == 0 else _FAINT, font=_font(15))
