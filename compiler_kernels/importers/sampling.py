"""GridSample, RoiAlign, MaxRoiPool, DeformConv, and the refusal of ImageDecoder."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.halves import to_float32, widened
from compiler_kernels.importers.windowed import window
from compiler_kernels.ir.dtypes import COMPUTED
from compiler_kernels.ir.graph import Attr
from compiler_kernels.ir.shapes_sampling import PADDINGS

_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


def grid_sample(ctx: Context) -> None:
    """From opset 20 modes are called linear and cubic, before bilinear and bicubic. Half types interpolate in binary32;
    the coordinates take the type of the values where both are computed with."""
    x, grid = ctx.tensor(0), to_float32(ctx, ctx.tensor(1))
    mode = _MODES.get(ctx.at.str_("mode", "linear" if ctx.at.version >= 20 else "bilinear"))
    padding = ctx.at.str_("padding_mode", "zeros")
    if mode is None or padding not in PADDINGS:
        ctx.at.invalid(
            f"has mode {ctx.at.str_('mode', '')!r} and padding {padding!r}, one of which ONNX does not define"
        )
    found = x
    if mode != "nearest":
        found = to_float32(ctx, x)
        if found.type.dtype not in COMPUTED:
            ctx.at.unsupported(f"interpolates {x.type.dtype} elements; cast them to float32")
        grid = ctx.cast(grid, found.type.dtype)
    if mode == "cubic" and x.rank != 4:
        ctx.at.invalid(f"has mode cubic for an input of shape {list(x.shape)}; ONNX defines it for images")
    attrs: dict[str, Attr] = {
        "mode": mode,
        "padding": padding,
        "align_corners": ctx.at.flag("align_corners", 0),
    }
    ctx.bind(ctx.cast(ctx.emit("grid_sample", [found, grid], attrs), x.type.dtype))


def roi_align(ctx: Context) -> None:
    """Before opset 16 the coordinates are not shifted by half a pixel."""
    default = "half_pixel" if ctx.at.version >= 16 else "output_half_pixel"
    coordinates = ctx.at.str_("coordinate_transformation_mode", default)
    if coordinates not in ("half_pixel", "output_half_pixel"):
        ctx.at.invalid(f"has coordinate mode {coordinates!r}, which ONNX does not define")
    attrs: dict[str, Attr] = {
        "mode": ctx.at.str_("mode", "avg"),
        "half_pixel": coordinates == "half_pixel",
        "output": (ctx.at.int_("output_height", 1), ctx.at.int_("output_width", 1)),
        "sampling_ratio": ctx.at.int_("sampling_ratio", 0),
        "spatial_scale": ctx.at.float_("spatial_scale", 1.0),
    }
    ctx.bind(ctx.emit("roi_align", [ctx.tensor(0), ctx.tensor(1), ctx.cast(ctx.tensor(2), "int64")], attrs))


def max_roi_pool(ctx: Context) -> None:
    attrs: dict[str, Attr] = {
        "output": ctx.at.ints("pooled_shape", length=2),
        "spatial_scale": ctx.at.float_("spatial_scale", 1.0),
    }
    ctx.bind(ctx.emit("max_roi_pool", [ctx.tensor(0), ctx.tensor(1)], attrs))


def deform_conv(ctx: Context) -> None:
    """The values under every kernel position, then a convolution that sums over positions and channels."""
    x, w, offset, bias = ctx.tensor(0), ctx.tensor(1), ctx.tensor(2), ctx.optional(3)
    found = window(ctx, x, w.shape[2:])
    kernel, given = w.shape[2:], ctx.at.ints("kernel_shape", w.shape[2:])
    if given != kernel:
        ctx.at.invalid(f"says kernel_shape {list(given)} for weights of shape {list(w.shape)}")
    if min(found.pads) < 0:
        ctx.at.unsupported("has negative pads")
    attrs: dict[str, Attr] = {**found.attrs(), "kernel": kernel, "offset_group": ctx.at.int_("offset_group", 1)}
    columns = ctx.emit("deform_sample", [x, offset, ctx.optional(4)], attrs)
    weights: Tensor = ctx.reshape(w, [*w.shape[:2], prod(kernel), 1])
    plain: dict[str, Attr] = {
        "group": ctx.at.int_("group", 1),
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": (0, 0, 0, 0),
    }
    y = ctx.emit("conv", [columns, weights, bias], plain)
    ctx.bind(ctx.reshape(y, [x.shape[0], w.shape[0], *offset.shape[2:]]))


def image_decoder(ctx: Context) -> None:
    ctx.at.unsupported("decodes a picture file, which engines leave to the host; feed the decoded pixels as an input")


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "GridSample": grid_sample,
    "RoiAlign": widened(roi_align),
    "MaxRoiPool": widened(max_roi_pool),
    "DeformConv": widened(deform_conv),
    "ImageDecoder": image_decoder,
}
