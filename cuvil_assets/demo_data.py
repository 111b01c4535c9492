"""The picture and the pseudo-labels of the demonstration, shared by its training script and `cuvil demo`.

The picture is ``retina.jpg`` of the scikit-image wheel (fundus photograph of a normal left eye, M. Häggström, 2014,
doi:10.15347/wjm/2014.008, CC0 1.0). It is read from the installed package, never downloaded. No annotation by a person
exists for it: the labels are made by a ridge filter and are called pseudo-labels everywhere.

Pillow, SciPy and scikit-image are imported on first use, since they belong to the ``demo`` extra.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import UsageError

Image = NDArray[np.float32]
Mask = NDArray[np.bool_]

RETINA_SHA256 = "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6"
SIZE = 640
"""Edge of the square the photograph is resized to, in pixels; each half is ``SIZE`` x ``SIZE // 2``."""
FIELD_OF_VIEW_RED = 0.12
"""Red value in [0, 1] above which a pixel belongs to the photographed field (the rest is black)."""
SCALES = (1.2, 1.8, 2.6)
"""Standard deviations of the ridge filter, in pixels."""
QUANTILES = (0.88, 0.95)
"""Shares of the field of view below the weak and the strong threshold of the ridge response."""
SMALLEST = 40
"""Connected pieces below this many pixels are dropped."""


def optional_module(name: str, package: str) -> ModuleType:
    """Import ``name`` of the ``demo`` extra; ``UsageError`` naming ``package`` and the remedy when that fails."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(missing_package(package)) from None


def missing_package(package: str) -> str:
    return f"the demonstration needs the package {package}, which cannot be imported; run: pip install 'cuvil[demo]'"


def retina_path() -> Path:
    """Path of ``retina.jpg`` in the installed scikit-image; ``UsageError`` when it is missing or another file."""
    found = importlib.util.find_spec("skimage")
    if found is None or found.origin is None:
        raise UsageError(missing_package("scikit-image"))
    path = Path(found.origin).parent / "data" / "retina.jpg"
    remedy = "install scikit-image again: pip install --force-reinstall scikit-image"
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: the photograph cannot be read ({error.strerror}); {remedy}") from None
    if digest != RETINA_SHA256:
        raise UsageError(f"{path}: the photograph is not the one the model was trained on (sha256 differs); {remedy}")
    return path


@dataclass(frozen=True)
class Halves:
    """The photograph resized to 640 x 640 and cut in two; each float32 [640, 320, 3], RGB in [0, 1]."""

    training: Image
    held_out: Image


def load_halves() -> Halves:
    """Read, resize (Pillow bilinear on 8-bit values) and cut the photograph; ``UsageError`` as in ``retina_path``."""
    pillow = optional_module("PIL.Image", "pillow")
    with pillow.open(retina_path()) as picture:
        square = picture.convert("RGB").resize((SIZE, SIZE), pillow.Resampling.BILINEAR)
    rgb = np.asarray(square).astype(np.float32) / np.float32(255)
    return Halves(rgb[:, : SIZE // 2], rgb[:, SIZE // 2 :])


def as_nchw(rgb: Image) -> Image:
    """[H, W, 3] to the model's input layout [1, 3, H, W], C order."""
    return np.ascontiguousarray(rgb.transpose(2, 0, 1))[np.newaxis]


def field_of_view(rgb: Image) -> Mask:
    """[H, W] mask of the photographed field, as opposed to the black surround."""
    return np.asarray(rgb[..., 0] > FIELD_OF_VIEW_RED)


def ridge_response(rgb: Image) -> NDArray[np.float64]:
    """How much each pixel of [H, W, 3] looks like a dark line on the green channel; float64 [H, W], 0 near the rim.

    Largest eigenvalue of the Hessian minus the absolute value of the other one, scaled by sigma squared, largest over
    ``SCALES`` (Lindeberg, Edge detection and ridge detection with automatic scale selection, 1998). The green channel
    is first divided by its local mean inside the field of view, so that vignetting does not count.
    """
    ndimage = optional_module("scipy.ndimage", "scipy")
    seen = field_of_view(rgb)
    green = rgb[..., 1].astype(np.float64)
    weight = ndimage.gaussian_filter(seen.astype(np.float64), 12, mode="nearest")
    mean = ndimage.gaussian_filter(np.where(seen, green, 0), 12, mode="nearest")
    contrast = np.where(seen, green * weight / np.maximum(mean, 1e-6) - 1, 0)
    best = np.zeros_like(contrast)
    for sigma in SCALES:
        yy, xx, xy = (
            ndimage.gaussian_filter(contrast, sigma, order=order, mode="nearest") for order in ((2, 0), (0, 2), (1, 1))
        )
        centre, radius = (xx + yy) / 2, np.hypot((xx - yy) / 2, xy)
        best = np.maximum(best, sigma**2 * (centre + radius - np.abs(centre - radius)))
    # the rim itself is a strong edge; a crop's own border is not a rim, hence border_value
    inside = ndimage.binary_erosion(seen, iterations=10, border_value=1)
    return np.where(inside, best, 0)


def thresholds(rgb: Image) -> tuple[float, float]:
    """Weak and strong ridge threshold from the field of view of ``rgb``; taken from the training half only."""
    weak, strong = np.quantile(ridge_response(rgb)[field_of_view(rgb)], QUANTILES)
    return float(weak), float(strong)


def pseudo_labels(rgb: Image, limits: tuple[float, float]) -> Mask:
    """[H, W] pseudo-labels: pieces above the weak threshold that touch the strong one and are not tiny."""
    ndimage = optional_module("scipy.ndimage", "scipy")
    response = ridge_response(rgb)
    pieces, count = ndimage.label(response > limits[0], np.ones((3, 3)))
    keep = np.zeros(count + 1, dtype=bool)
    keep[np.unique(pieces[response > limits[1]])] = True
    keep &= np.bincount(pieces.ravel(), minlength=count + 1) >= SMALLEST
    keep[0] = False
    return np.asarray(keep[pieces])


def dice(a: Mask, b: Mask) -> float:
    """Dice overlap 2|a and b| / (|a| + |b|) of two masks of one shape; 1.0 when both are empty."""
    total = int(a.sum()) + int(b.sum())
    return 1.0 if total == 0 else 2 * int((a & b).sum()) / total
