"""Upsample and Resize of every opset as ``resize``: scales, sizes, axes and aspect-ratio policies resolved.

Sizes known at run time only are compared with the declared result; scales and regions known at run time only are
operands of ``resize_by``. Cubic and antialiased forms become one operation per axis, which is their definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Array, Context, Tensor, constant
from compiler_kernels.importers.halves import to_float32
from compiler_kernels.importers.node import f32
from compiler_kernels.importers.runtime_values import Check, checked, declared_sizes, runtime
from compiler_kernels.ir.dims import Expr
from compiler_kernels.ir.dtypes import COMPUTED, HALVES
from compiler_kernels.ir.graph import Attr
from compiler_kernels.ir.shapes_resize import COORDINATE_MODES, MODES, NEAREST_MODES, scaled_size

Ints = tuple[int, ...]


@dataclass(frozen=True)
class _Plan:
    """What is known of a node: ``scales`` and ``roi`` are numbers for every axis, or empty; ``scales_at`` and
    ``roi_at`` run-time tensors for ``axes``."""

    sizes: Sequence[int]
    axes: Sequence[int]
    scales: tuple[float, ...] = ()
    roi: tuple[float, ...] = ()
    scales_at: Tensor | None = None
    roi_at: Tensor | None = None
    rounded: bool = False
    check: Check = field(default=lambda y: y)


def _mode(ctx: Context) -> str:
    mode = ctx.at.str_("mode", "nearest")
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(mode, mode)
    if mode not in MODES:
        ctx.at.invalid(f"has mode {mode!r}, which ONNX does not define")
    return mode


def _numbers(ctx: Context, values: Array, count: int, what: str) -> tuple[float, ...]:
    found = tuple(f32(float(v)) for v in values.reshape(-1))
    if len(found) != count:
        ctx.at.invalid(f"has {len(found)} {what} for {count} axes")
    if what == "scales" and any(not 0 < v < float("inf") for v in found):
        ctx.at.invalid(f"has scales {list(found)}, which are not all positive and finite")
    return found


def _scales(ctx: Context, index: int, count: int) -> tuple[float, ...]:
    return _numbers(ctx, ctx.const(index, "its scales"), count, "scales")


def upsample(ctx: Context) -> None:
    """Upsample 7 and 9 and Resize 10: asymmetric coordinates. Nearest takes the floor when enlarging and, as ONNX's
    own test of Resize 10 shows, the ceiling when shrinking."""
    x, mode = ctx.tensor(0), _mode(ctx)
    axes = tuple(range(x.rank))
    if ctx.at.version >= 9 and runtime(ctx, 1) is not None:
        sizes = declared_sizes(ctx, 1, "its scales")
        plan = _Plan(sizes, axes, scales_at=ctx.tensor(1))
        pairs = list(zip(x.shape, sizes, strict=True))
        shrinks, grows = any(m < n for n, m in pairs), any(m > n for n, m in pairs)
    else:
        if ctx.at.version >= 9:
            scales = _scales(ctx, 1, x.rank)
        else:
            scales = _numbers(ctx, np.array(ctx.at.floats("scales")), x.rank, "scales")
        shrinks, grows = any(s < 1 for s in scales), any(s > 1 for s in scales)
        plan = _Plan([scaled_size(d, s) for d, s in zip(x.shape, scales, strict=True)], axes, scales)
    if mode == "nearest" and shrinks and grows:
        ctx.at.unsupported("enlarges one axis and shrinks another in nearest mode, which this opset leaves undefined")
    attrs: dict[str, Attr] = {
        "mode": mode,
        "coordinate_mode": "asymmetric",
        "nearest_mode": "ceil" if shrinks else "floor",
        "extrapolation_value": 0.0,
        "exclude_outside": False,
    }
    if mode == "cubic":
        attrs["cubic_coefficient"] = -0.75
    _emit(ctx, x, plan, attrs)


def _aspect(ctx: Context) -> str:
    policy = ctx.at.str_("keep_aspect_ratio_policy", "stretch")
    if policy not in ("stretch", "not_larger", "not_smaller"):
        ctx.at.invalid(f"has keep_aspect_ratio_policy {policy!r}, which ONNX does not define")
    return policy


def _fit(ctx: Context, x: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> tuple[list[int], tuple[float, ...]]:
    """Result sizes and scales for given ``sizes``; scales are empty unless one ratio is shared by all axes."""
    out = list(x.shape)
    policy = _aspect(ctx)
    if policy == "stretch":
        for axis, size in zip(axes, sizes, strict=True):
            out[axis] = size
        return out, ()
    if any(isinstance(v, Expr) for v in (*sizes, *x.shape)):
        ctx.at.unsupported(f"keeps the aspect ratio ({policy}) of sizes that depend on symbols; pin them")
    ratios = [size / x.shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    scales = [1.0] * x.rank
    for axis in axes:
        out[axis], scales[axis] = int(scale * x.shape[axis] + 0.5), f32(scale)
    return out, tuple(scales)


def _by_sizes(ctx: Context, x: Tensor, axes: Ints) -> _Plan:
    wanted = runtime(ctx, 3)
    if wanted is None:
        sizes = ctx.const_ints(3, "its sizes")
        if len(sizes) != len(axes) or any(size < 1 for size in sizes):
            ctx.at.invalid(f"has sizes {list(sizes)} for {len(axes)} axes")
        out, scales = _fit(ctx, x, axes, sizes)
        return _Plan(out, axes, scales)
    declared = declared_sizes(ctx, 3, "its sizes")
    policy = _aspect(ctx)
    if policy == "stretch":
        expected = [declared[a] for a in axes]
        return _Plan(declared, axes, check=lambda y: checked(ctx, y, 3, "sizes", expected))
    # One ratio for all axes, the smallest or largest: a value of the run, like scales
    if wanted.shape != (len(axes),):
        ctx.at.invalid(f"has sizes of shape {list(wanted.shape)} for {len(axes)} axes")
    now = constant(np.array([x.shape[a] for a in axes], np.float32))
    ratios = ctx.emit("div", [ctx.cast(wanted, "float32"), now])
    kind = "reduce_min" if policy == "not_larger" else "reduce_max"
    one = ctx.emit(kind, [ratios], {"axes": (0,), "keepdims": True})
    return _Plan(declared, axes, scales_at=ctx.expand(one, [len(axes)]), rounded=True)


def _by_scales(ctx: Context, x: Tensor, axes: Ints, roi: tuple[float, ...], roi_at: Tensor | None) -> _Plan:
    if runtime(ctx, 2) is not None:
        return _Plan(declared_sizes(ctx, 2, "its scales"), axes, scales_at=ctx.tensor(2))
    scales = [1.0] * x.rank
    for axis, scale in zip(axes, _scales(ctx, 2, len(axes)), strict=True):
        scales[axis] = scale
    if roi_at is not None:
        sizes: Sequence[int] = declared_sizes(ctx, 1, "its roi")
    else:
        spans = [roi[x.rank + i] - roi[i] if roi else 1.0 for i in range(x.rank)]
        sizes = [scaled_size(d, s, span) for d, s, span in zip(x.shape, scales, spans, strict=True)]
    return _Plan(sizes, axes, tuple(scales))


def _roi(ctx: Context, x: Tensor, axes: Sequence[int]) -> tuple[float, ...]:
    """Begins then ends for every axis; axes the model leaves out span 0 to 1."""
    given = _numbers(ctx, np.asarray(ctx.const(1, "its roi")).astype(np.float64), 2 * len(axes), "roi values")
    roi = [0.0] * x.rank + [1.0] * x.rank
    for i, axis in enumerate(axes):
        roi[axis], roi[x.rank + axis] = given[i], given[len(axes) + i]
    return tuple(roi)


def resize(ctx: Context) -> None:
    if ctx.at.version < 11:
        upsample(ctx)
        return
    x, mode = ctx.tensor(0), _mode(ctx)
    given = ctx.at.optional_ints("axes")
    axes = tuple(range(x.rank)) if given is None else tuple(axis_of(ctx, a, x.rank) for a in given)
    coordinates = ctx.at.str_("coordinate_transformation_mode", "half_pixel")
    nearest = ctx.at.str_("nearest_mode", "round_prefer_floor")
    if coordinates not in COORDINATE_MODES or nearest not in NEAREST_MODES:
        ctx.at.invalid(f"has coordinate mode {coordinates!r} and nearest mode {nearest!r}; ONNX lacks one of them")
    crop = coordinates == "tf_crop_and_resize"
    roi_at = runtime(ctx, 1) if crop else None
    roi = _roi(ctx, x, axes) if crop and roi_at is None else ()
    # opset 11 passes an empty tensor where later opsets leave the input out
    by_size = ctx.at.has_input(3) and ctx.tensor(3).shape != (0,)
    plan = _by_sizes(ctx, x, axes) if by_size else _by_scales(ctx, x, axes, roi, roi_at)
    attrs: dict[str, Attr] = {
        "mode": mode,
        "coordinate_mode": coordinates,
        "nearest_mode": nearest,
        "extrapolation_value": ctx.at.float_("extrapolation_value", 0.0),
        "exclude_outside": ctx.at.flag("exclude_outside", 0),
    }
    if mode == "cubic":
        attrs["cubic_coefficient"] = ctx.at.float_("cubic_coeff_a", -0.75)
        if not isfinite(ctx.at.float_("cubic_coeff_a", -0.75)):
            ctx.at.invalid("has a cubic_coeff_a that is not finite")
    if ctx.at.int_("antialias", 0):
        if mode == "nearest":
            ctx.at.unsupported("asks for antialias in mode nearest, which ONNX leaves undefined")
        attrs["antialias"] = True
    _emit(ctx, x, replace(plan, roi=roi, roi_at=roi_at), attrs)


def _emit(ctx: Context, x: Tensor, plan: _Plan, attrs: dict[str, Attr]) -> None:
    empty = x.type.is_static and 0 in x.shape
    if len(plan.sizes) != x.rank or empty or any(size < 1 for size in plan.sizes):
        ctx.at.invalid(f"resizes {list(x.shape)} to {list(plan.sizes)}")
    found = x
    if attrs["mode"] != "nearest":
        found = to_float32(ctx, x)
        if found.type.dtype not in COMPUTED:
            ctx.at.unsupported(f"interpolates {x.type.dtype} elements in mode {attrs['mode']}; cast them to float32")
    per_axis = "cubic_coefficient" in attrs or "antialias" in attrs
    if plan.scales_at is not None or plan.roi_at is not None:
        y = _at_run_time(ctx, found, plan, attrs, per_axis)
    else:
        y = _at_once(ctx, found, plan, attrs, per_axis)
    y = plan.check(y)
    ctx.bind(ctx.cast(y, x.type.dtype) if x.type.dtype in HALVES else y)


def _at_once(ctx: Context, x: Tensor, plan: _Plan, attrs: dict[str, Attr], per_axis: bool) -> Tensor:
    steps = [(plan.sizes, plan.scales)]
    if per_axis and not plan.roi:
        steps, now = [], list(x.shape)
        for axis in reversed(range(x.rank)):
            scale = plan.scales[axis] if plan.scales else 1.0
            if str(now[axis]) != str(plan.sizes[axis]) or scale != 1.0:
                now[axis] = plan.sizes[axis]
                scales = tuple(s if a == axis else 1.0 for a, s in enumerate(plan.scales))
                steps.append((tuple(now), scales))
        steps = steps or [(plan.sizes, plan.scales)]
    for sizes, scales in steps:
        x = ctx.emit("resize", [x], {**attrs, "scales": scales, "roi": plan.roi}, shape=sizes)
    return x


def _at_run_time(ctx: Context, x: Tensor, plan: _Plan, attrs: dict[str, Attr], per_axis: bool) -> Tensor:
    if not x.type.is_static:
        ctx.at.unsupported("takes scales or a roi from a run-time tensor for sizes that depend on symbols; pin them")
    if (plan.roi or plan.roi_at) and "antialias" in attrs:
        ctx.at.unsupported("asks for antialias over a region with scales or a roi from a run-time tensor")
    scales, roi = plan.scales_at, plan.roi_at
    if scales is None and plan.scales:
        scales = constant(np.array([plan.scales[a] for a in plan.axes], np.float32))
    if roi is None and plan.roi:
        ends = [plan.roi[a] for a in plan.axes], [plan.roi[x.rank + a] for a in plan.axes]
        roi = constant(np.array(ends, np.float32).reshape(-1))
    roi = None if roi is None else ctx.cast(roi, "float32")
    given = [t for t in (plan.scales_at, plan.roi_at) if t is not None]
    what = " and ".join(repr(t.name) for t in given)
    message = (
        f"input {what} of node {ctx.at.name!r} ({ctx.at.op}) does not turn {list(x.shape)} into the compiled shape "
        f"{list(plan.sizes)}, or is outside what engines take (scales from 2^-14 to 2^14, a roi of multiples of 2^-40 "
        "below 1024); give such that does, or compile the model for another shape"
    )
    attrs = {**attrs, "rounded": plan.rounded, "message": message}
    if not per_axis or roi is not None:
        every: dict[str, Attr] = {"axes": tuple(plan.axes), "entries": tuple(range(len(plan.axes)))}
        return ctx.emit("resize_by", [x, scales, roi], {**attrs, **every}, shape=plan.sizes)
    assert scales is not None
    now = list(x.shape)
    for axis in sorted(plan.axes, reverse=True):
        k = list(plan.axes).index(axis)
        now[axis] = plan.sizes[axis]
        x = ctx.emit("resize_by", [x, scales], {**attrs, "axes": (axis,), "entries": (k,)}, shape=now)
    return x


IMPORTERS: dict[str, Callable[[Context], None]] = {"Upsample": upsample, "Resize": resize}
