"""Result types of Resize: the declared sizes, which scales must lead to."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from compiler_kernels.ir.dims import Expr
from compiler_kernels.ir.dtypes import COMPUTED
from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Shape, Site, cast_sizes
from compiler_kernels.ir.symbols import Unproved, interval, prover

MODES = ("nearest", "linear", "cubic")
COORDINATE_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def scaled_size(size: int, scale: float, span: float = 1.0) -> int:
    """``floor(size * scale)``, in binary32 as ONNX's own shape inference computes it.

    For a ``size`` that depends on symbols only where binary32 is exact for all of them; ``Unproved`` otherwise.
    """
    if isinstance(size, Expr):
        factor = Fraction(scale)
        most = interval(size, prover().symbols)[1] * factor.numerator
        if span != 1.0 or most >= 1 << 24:
            raise Unproved(f"{size} times {scale} is not exact in binary32 for all sizes; give sizes, not scales", {})
        return cast_sizes([size * factor.numerator // factor.denominator])[0]
    return int(np.floor(np.float32(size) * np.float32(span) * np.float32(scale)))


def _form(site: Site) -> tuple[Shape, Shape]:
    """Shapes of operand and result; mode, coordinates and element type fit each other."""
    x, out = site.shape(0), site.stated()
    for key, known in (("mode", MODES), ("coordinate_mode", COORDINATE_MODES), ("nearest_mode", NEAREST_MODES)):
        if site.str_(key) not in known:
            site.fail(f"{key} {site.str_(key)!r} is not one of {', '.join(known)}")
    if len(out) != len(x):
        site.fail(f"rank changes from {len(x)} to {len(out)}")
    mode, dtype = site.str_("mode"), site.result(out).dtype
    if mode != "nearest" and dtype not in COMPUTED:
        site.fail(f"{mode} interpolation of {dtype} elements")
    if (mode == "cubic") != ("cubic_coefficient" in site.attrs):
        site.fail("cubic_coefficient belongs to mode cubic")
    if mode == "nearest" and site.attrs.get("antialias"):
        site.fail("antialias has no meaning in mode nearest")
    return x, out


def resize(site: Site) -> TensorType:
    """Sizes come from the declared type; scales, where given, must lead to them (or round to them, as with
    ``keep_aspect_ratio_policy``)."""
    x, out = _form(site)
    crop = site.str_("coordinate_mode") == "tf_crop_and_resize"
    scales, roi = site.attrs["scales"], site.attrs["roi"]
    assert isinstance(scales, tuple) and isinstance(roi, tuple)
    if len(roi) != (2 * len(x) if crop else 0):
        site.fail("roi has two numbers per axis with tf_crop_and_resize and is empty otherwise")
    if scales and (len(scales) != len(x) or min(float(s) for s in scales) <= 0):
        site.fail(f"scales {list(scales)} are not one positive number per axis")
    for i, scale in enumerate(float(s) for s in scales):
        span = float(roi[len(x) + i]) - float(roi[i]) if crop else 1.0
        floor = scaled_size(x[i], scale, span)
        # keep_aspect_ratio_policy rounds instead, which is followed for numbers only
        if out[i] != floor and not (isinstance(x[i], int) and out[i] == int(x[i] * scale + 0.5)):
            site.fail(f"scale {scale} does not turn {x[i]} into {out[i]} along axis {i}")
    return site.result(out)


def resize_by(site: Site) -> TensorType:
    """Scales and the region of the named axes are ``entries`` of operands; the sizes are declared."""
    x, out = _form(site)
    axes = site.ints("axes")
    if len(set(axes)) != len(axes) or not all(0 <= a < len(x) for a in axes):
        site.fail(f"axes {list(axes)} are not different axes of rank {len(x)}")
    if any(x[a] != out[a] for a in range(len(x)) if a not in axes):
        site.fail(f"{list(x)} becomes {list(out)} along an axis other than {list(axes)}")
    entries = site.ints("entries", len(axes))
    for index, each in ((1, 1), (2, 2)):
        given = site.shape(index) if site.has(index) else (each * len(x),)
        if len(given) != 1 or given[0] % each or any(not 0 <= e < given[0] // each for e in entries):
            site.fail(f"operand {index} of shape {list(given)} has no entries {list(entries)}")
    if site.has(2) != (site.str_("coordinate_mode") == "tf_crop_and_resize"):
        site.fail("roi belongs to tf_crop_and_resize")
    return site.result(out)
