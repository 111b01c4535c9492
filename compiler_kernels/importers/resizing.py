"""Upsample and Resize of every opset as one ``resize``: scales, sizes, axes and aspect-ratio policies resolved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.node import f32
from compiler_kernels.ir.dims import Expr
from compiler_kernels.ir.graph import Attr
from compiler_kernels.ir.shapes_window import COORDINATE_MODES, NEAREST_MODES, scaled_size


def _mode(ctx: Context) -> str:
    mode = ctx.at.str_("mode", "nearest")
    if mode == "cubic":
        ctx.at.unsupported("interpolates with mode cubic; nearest and linear are compiled so far")
    if mode not in ("nearest", "linear"):
        ctx.at.invalid(f"has mode {mode!r}, which ONNX does not define")
    return mode


def _scales(ctx: Context, index: int) -> tuple[float, ...]:
    array = ctx.const(index, "its scales")
    found = tuple(f32(float(v)) for v in array.reshape(-1))
    if any(not 0 < v < float("inf") for v in found):
        ctx.at.invalid(f"has scales {list(found)}, which are not all positive and finite")
    return found


def _emit(ctx: Context, x: Tensor, sizes: Sequence[int], attrs: dict[str, Attr]) -> None:
    if any(size < 1 for size in sizes):
        ctx.at.invalid(f"resizes {list(x.shape)} to {list(sizes)}")
    ctx.bind(ctx.emit("resize", [x], attrs, shape=sizes))


def upsample(ctx: Context) -> None:
    """Upsample 7 and 9 and Resize 10: asymmetric coordinates. Nearest takes the floor when enlarging and, as ONNX's
    own test of Resize 10 shows, the ceiling when shrinking."""
    x, mode = ctx.tensor(0), _mode(ctx)
    scales = _scales(ctx, 1) if ctx.at.version >= 9 else ctx.at.floats("scales")
    if len(scales) != x.rank or min(scales, default=1.0) <= 0:
        ctx.at.invalid(f"has {len(scales)} scales for a tensor of rank {x.rank}")
    shrinks = any(s < 1 for s in scales)
    if mode == "nearest" and shrinks and any(s > 1 for s in scales):
        ctx.at.unsupported("enlarges one axis and shrinks another in nearest mode, which this opset leaves undefined")
    sizes = [scaled_size(d, s) for d, s in zip(x.shape, scales, strict=True)]
    attrs: dict[str, Attr] = {
        "mode": mode,
        "coordinate_mode": "asymmetric",
        "nearest_mode": "ceil" if shrinks else "floor",
        "scales": scales,
        "roi": (),
        "extrapolation_value": 0.0,
        "exclude_outside": False,
    }
    _emit(ctx, x, sizes, attrs)


def _fit(ctx: Context, x: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> tuple[list[int], tuple[float, ...]]:
    """Result sizes and scales for given ``sizes``; scales are empty unless one ratio is shared by all axes."""
    out = list(x.shape)
    policy = ctx.at.str_("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        for axis, size in zip(axes, sizes, strict=True):
            out[axis] = size
        return out, ()
    if policy not in ("not_larger", "not_smaller"):
        ctx.at.invalid(f"has keep_aspect_ratio_policy {policy!r}, which ONNX does not define")
    if any(isinstance(v, Expr) for v in (*sizes, *x.shape)):
        ctx.at.unsupported(f"keeps the aspect ratio ({policy}) of sizes that depend on symbols; pin them")
    ratios = [size / x.shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    scales = [1.0] * x.rank
    for axis in axes:
        out[axis], scales[axis] = int(scale * x.shape[axis] + 0.5), f32(scale)
    return out, tuple(scales)


def _roi(ctx: Context, x: Tensor, axes: Sequence[int]) -> tuple[float, ...]:
    """Begins then ends for every axis; axes the model leaves out span 0 to 1."""
    given = [f32(float(v)) for v in np.asarray(ctx.const(1, "its roi")).reshape(-1)]
    if len(given) != 2 * len(axes):
        ctx.at.invalid(f"has {len(given)} roi values for {len(axes)} axes")
    roi = [0.0] * x.rank + [1.0] * x.rank
    for i, axis in enumerate(axes):
        roi[axis], roi[x.rank + axis] = given[i], given[len(axes) + i]
    return tuple(roi)


def resize(ctx: Context) -> None:
    if ctx.at.version < 11:
        upsample(ctx)
        return
    x, mode = ctx.tensor(0), _mode(ctx)
    if ctx.at.int_("antialias", 0):
        ctx.at.unsupported("asks for antialias, which is not compiled so far")
    axes = [axis_of(ctx, a, x.rank) for a in ctx.at.optional_ints("axes") or range(x.rank)]
    coordinates = ctx.at.str_("coordinate_transformation_mode", "half_pixel")
    nearest = ctx.at.str_("nearest_mode", "round_prefer_floor")
    if coordinates not in COORDINATE_MODES or nearest not in NEAREST_MODES:
        ctx.at.invalid(f"has coordinate mode {coordinates!r} and nearest mode {nearest!r}; ONNX lacks one of them")
    roi = _roi(ctx, x, axes) if coordinates == "tf_crop_and_resize" else ()
    # opset 11 passes an empty tensor where later opsets leave the input out
    by_size = ctx.at.has_input(3) and ctx.tensor(3).shape != (0,)
    if by_size:
        wanted = ctx.const_ints(3, "its sizes")
        if len(wanted) != len(axes) or any(size < 1 for size in wanted):
            ctx.at.invalid(f"has sizes {list(wanted)} for {len(axes)} axes")
        sizes, scales = _fit(ctx, x, axes, wanted)
    else:
        given = _scales(ctx, 2)
        if len(given) != len(axes):
            ctx.at.invalid(f"has {len(given)} scales for {len(axes)} axes")
        full = [1.0] * x.rank
        for axis, scale in zip(axes, given, strict=True):
            full[axis] = scale
        scales = tuple(full)
        spans = [roi[x.rank + i] - roi[i] if roi else 1.0 for i in range(x.rank)]
        sizes = [scaled_size(d, s, span) for d, s, span in zip(x.shape, scales, spans, strict=True)]
    attrs: dict[str, Attr] = {
        "mode": mode,
        "coordinate_mode": coordinates,
        "nearest_mode": nearest,
        "scales": scales,
        "roi": roi,
        "extrapolation_value": ctx.at.float_("extrapolation_value", 0.0),
        "exclude_outside": bool(ctx.at.int_("exclude_outside", 0)),
    }
    _emit(ctx, x, sizes, attrs)


IMPORTERS: dict[str, Callable[[Context], None]] = {"Upsample": upsample, "Resize": resize}
