"""Random antialiased resizes, and operators that read between elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from differential import Draw, Values, torch
from draw_windows import chance, integers, normal


def draw_antialias(rng: np.random.Generator) -> Draw:
    """Shrinking with the taps outside left out, as torch and onnxruntime do; onnx.reference also reads the edge."""
    mode = str(rng.choice(["linear", "cubic"]))
    shape = [*integers(rng, 1, 2, 1), *integers(rng, 1, 9, 1), *integers(rng, 4, 24, 2)]
    sizes = [*shape[:2], *(int(rng.integers(1, n + 1)) for n in shape[2:])]
    attributes: dict[str, Any] = {"mode": mode, "antialias": 1, "exclude_outside": 1}
    if mode == "cubic":
        attributes["cubic_coeff_a"] = -0.5  # torch's coefficient with antialias

    def by_torch(v: Values) -> list[Any] | None:
        if 1 in sizes[2:]:
            return None  # another filter than onnxruntime's and that of Pillow
        kind = "bilinear" if mode == "linear" else "bicubic"
        found = torch.nn.functional.interpolate(
            torch.from_numpy(v["x"]), size=sizes[2:], mode=kind, antialias=True, align_corners=False
        )
        return [found.numpy()]

    constants: Values = {"sizes": np.array(sizes, np.int64)}
    without = {"onnx.reference": "of an even number of taps it takes the nearest, which are not those of the filter"}
    operands, inputs = ("x", "", "", "sizes"), {"x": normal(rng, *shape)}
    return Draw("Resize", 18, attributes, operands, inputs, constants, ("y",), by_torch, without)


def draw_grid_sample(rng: np.random.Generator) -> Draw:
    opset = int(rng.choice([16, 20, 22]))
    spatial = 2 if opset == 16 or chance(rng, 0.7) else 3
    mode = str(rng.choice(["nearest", "linear", "cubic"] if spatial == 2 else ["nearest", "linear"]))
    padding, corners = str(rng.choice(["zeros", "border", "reflection"])), chance(rng, 0.5)
    x = normal(rng, *integers(rng, 1, 2, 1), *integers(rng, 1, 4, 1), *integers(rng, 1, 7, spatial))
    grid = rng.uniform(-1.6, 1.6, (x.shape[0], *integers(rng, 1, 6, spatial), spatial)).astype(np.float32)
    old = {"linear": "bilinear", "cubic": "bicubic"}
    attributes = {
        "mode": old.get(mode, mode) if opset == 16 else mode,
        "padding_mode": padding,
        "align_corners": int(corners),
    }

    def by_torch(v: Values) -> list[Any]:
        found = torch.nn.functional.grid_sample(
            torch.from_numpy(v["x"]),
            torch.from_numpy(v["grid"]),
            mode=old.get(mode, mode),
            padding_mode=padding,
            align_corners=corners,
        )
        return [found.numpy()]

    without = {}
    if mode == "cubic" and padding == "border":
        without["onnx.reference"] = "it moves a coordinate outside to the edge before it takes the weights"
    return Draw("GridSample", opset, attributes, ("x", "grid"), {"x": x, "grid": grid}, {}, ("y",), by_torch, without)


def draw_roi_align(rng: np.random.Generator) -> Draw:
    opset = int(rng.choice([10, 16, 22]))
    x = normal(rng, *integers(rng, 1, 3, 1), *integers(rng, 1, 4, 1), *integers(rng, 2, 12, 2))
    count = int(rng.integers(1, 5))
    begin = rng.uniform(-2, 12, (count, 2))
    rois = np.concatenate([begin, begin + rng.uniform(0, 9, (count, 2))], 1).astype(np.float32)
    attributes: dict[str, Any] = {
        "mode": str(rng.choice(["avg", "max"])),
        "output_height": int(rng.integers(1, 5)),
        "output_width": int(rng.integers(1, 5)),
        "sampling_ratio": int(rng.integers(0, 4)),
        "spatial_scale": float(rng.choice([0.5, 1.0, 1.25])),
    }
    if opset >= 16:
        attributes["coordinate_transformation_mode"] = str(rng.choice(["half_pixel", "output_half_pixel"]))
    inputs: Values = {"x": x, "rois": rois, "batch": rng.integers(0, x.shape[0], count).astype(np.int64)}
    without = {"onnx.reference": "it shifts by half a pixel, which came with opset 16"} if opset < 16 else {}
    return Draw("RoiAlign", opset, attributes, ("x", "rois", "batch"), inputs, {}, ("y",), without=without)


def draw_max_roi_pool(rng: np.random.Generator) -> Draw:
    x = normal(rng, *integers(rng, 1, 3, 1), *integers(rng, 1, 4, 1), *integers(rng, 2, 12, 2))
    count = int(rng.integers(1, 5))
    begin = rng.integers(-2, 12, (count, 2))
    ends = begin + rng.integers(0, 9, (count, 2))
    entry = rng.integers(0, x.shape[0], (count, 1))
    rois = np.concatenate([entry, begin, ends], 1).astype(np.float32)
    attributes = {
        "pooled_shape": integers(rng, 1, 4, 2),
        "spatial_scale": float(rng.choice([0.5, 1.0, 0.75])),
    }
    return Draw("MaxRoiPool", 13, attributes, ("x", "rois"), {"x": x, "rois": rois}, {}, ("y",))


def draw_deform_conv(rng: np.random.Generator) -> Draw:
    group, sets = int(rng.choice([1, 2])), int(rng.choice([1, 2]))
    channels = 2 * int(rng.integers(1, 10))
    kernel, strides, dilations = integers(rng, 1, 3, 2), integers(rng, 1, 2, 2), integers(rng, 1, 2, 2)
    pads = integers(rng, 0, 2, 4)
    x = normal(rng, *integers(rng, 1, 2, 1), channels, *integers(rng, 6, 9, 2))
    out = [
        (x.shape[2 + a] + pads[a] + pads[2 + a] - (kernel[a] - 1) * dilations[a] - 1) // strides[a] + 1 for a in (0, 1)
    ]
    positions = sets * kernel[0] * kernel[1]
    tensors = {
        "w": normal(rng, 2 * group, channels // group, *kernel),
        "offset": normal(rng, x.shape[0], 2 * positions, *out),
        "b": normal(rng, 2 * group) if chance(rng, 0.5) else None,
        "mask": rng.random((x.shape[0], positions, *out), np.float32) if chance(rng, 0.5) else None,
    }
    attributes = {
        "group": group,
        "offset_group": sets,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
    }
    operands = ("x", *(name if tensors[name] is not None else "" for name in ("w", "offset", "b", "mask")))
    while not operands[-1]:
        operands = operands[:-1]
    inputs: Values = {"x": x, **{n: v for n, v in tensors.items() if v is not None and n != "w"}}
    constants: Values = {"w": tensors["w"]} if tensors["w"] is not None else {}
    return Draw("DeformConv", int(rng.choice([19, 22])), attributes, operands, inputs, constants, ("y",))
