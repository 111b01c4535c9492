"""Reference graphs of the vectors of vector_cases_sampling: resizing by values of the run, reading between elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evidence.reference.graph import RefGraph
from evidence.reference.vector_graph import GraphOf
from evidence.reference.vector_model import Array, OnnxParts

Built = tuple[RefGraph, dict[str, Array]]
_MESSAGE = "another shape"


def resize_by(parts: OnnxParts) -> Built:
    """Resize by run-time scales, a run-time roi, or both."""
    graph, given = GraphOf(parts), parts.attributes
    x, roi, scales, sizes = [*parts.inputs, "", "", ""][:4]
    shape = list(graph.shapes[x])
    axes = [int(a) % len(shape) for a in given.get("axes", range(len(shape)))]
    crop = given.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    for k, axis in enumerate(axes):
        shape[axis] = int(graph.arrays[sizes][k]) if sizes else int(shape[axis] * graph.arrays[scales][k])
    attrs = _resize_attributes(given)
    operands = [x, scales, roi] if crop else [x, scales]
    attrs |= {"axes": axes, "entries": list(range(len(axes))), "rounded": False, "message": _MESSAGE}
    y = graph.node("resize_by", operands, shape, **attrs)
    return graph.finish(y, graph.half)


def _resize_attributes(given: Any) -> dict[str, Any]:
    mode = given.get("mode", "nearest")
    attrs: dict[str, Any] = {
        "mode": mode,
        "nearest_mode": given.get("nearest_mode", "round_prefer_floor"),
        "coordinate_mode": given.get("coordinate_transformation_mode", "half_pixel"),
        "extrapolation_value": given.get("extrapolation_value", 0.0),
        "exclude_outside": given.get("exclude_outside", 0),
        "antialias": given.get("antialias", 0),
    }
    if mode == "cubic":
        attrs["cubic_coefficient"] = given.get("cubic_coeff_a", -0.75)
    return attrs


def grid_sample(parts: OnnxParts) -> Built:
    graph, given = GraphOf(parts), parts.attributes
    x, grid = parts.inputs
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(given.get("mode", "linear"), given.get("mode", "linear"))
    shape = (*graph.shapes[x][:2], *graph.shapes[grid][1:-1])
    value, places = x, graph.wide(grid)
    if mode != "nearest":
        value = graph.wide(x)
        places = graph.cast(places, graph.types[value])
    attrs = {
        "mode": mode,
        "padding": given.get("padding_mode", "zeros"),
        "align_corners": given.get("align_corners", 0),
    }
    return graph.finish(graph.node("grid_sample", [value, places], shape, **attrs), graph.types[x])


def roi_align(parts: OnnxParts) -> Built:
    graph, given = GraphOf(parts), parts.attributes
    x, rois, batch = parts.inputs
    output = [given.get("output_height", 1), given.get("output_width", 1)]
    coordinates = given.get("coordinate_transformation_mode", "half_pixel" if parts.opset >= 16 else "none")
    attrs = {
        "mode": given.get("mode", "avg"),
        "half_pixel": coordinates == "half_pixel",
        "output": output,
        "sampling_ratio": given.get("sampling_ratio", 0),
        "spatial_scale": given.get("spatial_scale", 1.0),
    }
    shape = (graph.shapes[rois][0], graph.shapes[x][1], *output)
    y = graph.node("roi_align", [graph.wide(x), graph.wide(rois), batch], shape, **attrs)
    return graph.finish(y, graph.half)


def max_roi_pool(parts: OnnxParts) -> Built:
    graph, given = GraphOf(parts), parts.attributes
    x, rois = parts.inputs
    output = list(given["pooled_shape"])
    attrs = {"output": output, "spatial_scale": given.get("spatial_scale", 1.0)}
    y = graph.node("max_roi_pool", [x, rois], (graph.shapes[rois][0], graph.shapes[x][1], *output), **attrs)
    return graph.finish(y)


def deform_conv(parts: OnnxParts) -> Built:
    """The samples under every kernel position, then a convolution over positions and channels."""
    graph, given = GraphOf(parts), parts.attributes
    x, w, offset, bias, mask = [*parts.inputs, "", ""][:5]
    kernel = graph.shapes[w][2:]
    n = len(kernel)
    attrs = {
        "kernel": list(kernel),
        "strides": list(given.get("strides", [1] * n)),
        "dilations": list(given.get("dilations", [1] * n)),
        "pads": list(given.get("pads", [0] * 2 * n)),
        "offset_group": given.get("offset_group", 1),
    }
    out = graph.shapes[offset][2:]
    batch, channels = graph.shapes[x][:2]
    columns = graph.node(
        "deform_sample",
        [graph.wide(name) for name in (x, offset, mask) if name],
        (batch, channels, math.prod(kernel), math.prod(out)),
        **attrs,
    )
    weights = graph.constant(graph.arrays[w].astype(np.float32).reshape(*graph.shapes[w][:2], math.prod(kernel), 1))
    operands = [columns, weights, *([graph.wide(bias)] if bias else [])]
    plain = {"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4, "group": given.get("group", 1)}
    y = graph.node("conv", operands, (batch, graph.shapes[w][0], 1, math.prod(out)), **plain)
    return graph.finish(graph.node("reshape", [y], (batch, graph.shapes[w][0], *out)), graph.half)


SAMPLING_GRAPHS = {
    "GridSample": grid_sample,
    "RoiAlign": roi_align,
    "MaxRoiPool": max_roi_pool,
    "DeformConv": deform_conv,
}
"""Builders by ONNX operator."""
