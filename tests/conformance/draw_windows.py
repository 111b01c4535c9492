"""Random convolutions and pools: 1 to 3 spatial axes, every attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
from differential import Array, Draw, Values, split_operands, torch


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def integers(rng: np.random.Generator, low: int, high: int, count: int) -> list[int]:
    """``count`` integers from ``low`` to ``high``, both included."""
    return [int(n) for n in rng.integers(low, high + 1, count)]


def chance(rng: np.random.Generator, probability: float) -> bool:
    return bool(rng.random() < probability)


def channels(rng: np.random.Generator) -> tuple[int, int, int]:
    """Groups, input and output channels of a group; sometimes depthwise."""
    if chance(rng, 0.25):
        return integers(rng, 2, 17, 1)[0], 1, integers(rng, 1, 2, 1)[0]
    group = int(rng.choice([1, 1, 1, 2, 3]))
    inner, outer = integers(rng, 1, 17 // group + 3, 2)
    return group, inner, outer


def window(
    rng: np.random.Generator, axes: int, dilated: bool = True
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, strides, dilations and the extent of the dilated kernel."""
    kernel = integers(rng, 1, 4 if axes < 3 else 3, axes)
    strides = integers(rng, 1, 3, axes)
    dilations = integers(rng, 1, 3, axes) if dilated and chance(rng, 0.5) else [1] * axes
    return kernel, strides, dilations, [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]


def drop_defaults(rng: np.random.Generator, attributes: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Attributes that have their default value are left out by chance."""
    return {k: v for k, v in attributes.items() if k not in defaults or v != defaults[k] or chance(rng, 0.5)}


def same_pads(sizes: list[int], extents: list[int], strides: list[int], upper: bool) -> list[int]:
    """The pads auto_pad stands for: ceil(size / stride) results, the odd one at the end for SAME_UPPER."""
    total = [
        max(0, (-(-n // s) - 1) * s + e - n) for n, e, s in zip(sizes, extents, strides, strict=True)
    ]  # fmt: skip
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    return [*small, *large] if upper else [*large, *small]


def split_pads(full: list[int], wanted: list[int], upper: bool) -> list[int]:
    """ConvTranspose's pads for a wanted size: the odd one at the end for SAME_UPPER, at the beginning otherwise."""
    total = [f - w for f, w in zip(full, wanted, strict=True)]
    small, large = [t // 2 for t in total], [t - t // 2 for t in total]
    return [*small, *large] if upper else [*large, *small]


def torch_pads(pads: list[int]) -> list[int]:
    """ONNX's begins and ends to the order of torch.nn.functional.pad."""
    axes = len(pads) // 2
    return [pads[side * axes + axis] for axis in reversed(range(axes)) for side in (0, 1)]


def draw_conv(rng: np.random.Generator) -> Draw:
    axes = int(rng.choice([1, 2, 2, 3]))
    group, inner, outer = channels(rng)
    kernel, strides, dilations, extent = window(rng, axes)
    auto = str(rng.choice(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    sizes = [e + n for e, n in zip(extent, integers(rng, 0, 6 if axes < 3 else 3, axes), strict=True)]
    pads = (
        [int(rng.integers(0, k + 1)) for k in [*kernel, *kernel]]
        if auto == "NOTSET" and chance(rng, 0.7)
        else [0] * 2 * axes
    )
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "group": group}
    attributes |= {"pads": pads} if auto == "NOTSET" else {"auto_pad": auto}
    ones = {"strides": [1] * axes, "dilations": [1] * axes, "group": 1, "pads": [0] * 2 * axes, "kernel_shape": kernel}
    x = normal(rng, int(rng.integers(1, 3)), group * inner, *sizes)
    w = normal(rng, group * outer, inner, *kernel)
    b = normal(rng, group * outer) if chance(rng, 0.6) else None
    operands, inputs, constants = split_operands(rng, {"x": x, "w": w, "b": b})
    padded = same_pads(sizes, extent, strides, auto == "SAME_UPPER") if auto.startswith("SAME") else pads

    def by_torch(v: Values) -> list[Array]:
        t = {k: torch.from_numpy(a) for k, a in v.items()}
        wide = torch.nn.functional.pad(t["x"], torch_pads(padded))
        conv = [torch.conv1d, torch.conv2d, torch.conv3d][axes - 1]
        return [conv(wide, t["w"], t.get("b"), strides, 0, dilations, group).numpy()]

    return Draw(
        "Conv",
        int(rng.choice([7, 11, 17, 22])),
        drop_defaults(rng, attributes, ones),
        operands,
        inputs,
        constants,
        torch=by_torch,
    )


def draw_conv_transpose(rng: np.random.Generator) -> Draw:
    axes = int(rng.choice([1, 2, 2, 3]))
    group, inner, outer = channels(rng)
    kernel, strides, dilations, extent = window(rng, axes)
    sizes = integers(rng, 1, 5 if axes < 3 else 3, axes)
    extra = [int(rng.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True)]
    extra = extra if chance(rng, 0.5) else [0] * axes
    full = [(n - 1) * s + e + o for n, s, e, o in zip(sizes, strides, extent, extra, strict=True)]
    pads = [0] * 2 * axes
    if chance(rng, 0.7):
        for axis in range(axes):
            pads[axis] = int(rng.integers(0, min(kernel[axis], full[axis])))
            pads[axes + axis] = int(rng.integers(0, min(kernel[axis], full[axis] - pads[axis])))
    auto = str(rng.choice(["NOTSET", "NOTSET", "NOTSET", "SHAPE", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "group": group}
    attributes["output_padding"] = extra
    if auto == "NOTSET":
        attributes["pads"] = pads
    elif auto == "SHAPE":
        attributes["output_shape"] = [int(rng.integers(max(1, n - 4), n + 1)) for n in full]
        pads = split_pads(full, attributes["output_shape"], upper=False)
    else:
        attributes["auto_pad"] = auto
        wanted = full if auto == "VALID" else [n * s for n, s in zip(sizes, strides, strict=True)]
        if any(f < w for f, w in zip(full, wanted, strict=True)):  # pads would be negative
            attributes["auto_pad"], wanted = "VALID", full
        pads = split_pads(full, wanted, auto == "SAME_UPPER")
    ones = {"strides": [1] * axes, "dilations": [1] * axes, "group": 1, "pads": [0] * 2 * axes, "kernel_shape": kernel}
    ones["output_padding"] = [0] * axes
    x = normal(rng, int(rng.integers(1, 3)), group * inner, *sizes)
    w = normal(rng, group * inner, outer, *kernel)
    b = normal(rng, group * outer) if chance(rng, 0.6) else None
    operands, inputs, constants = split_operands(rng, {"x": x, "w": w, "b": b})

    def by_torch(v: Values) -> list[Array]:
        t = {k: torch.from_numpy(a) for k, a in v.items()}
        conv = [torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d][axes - 1]
        y = conv(t["x"], t["w"], t.get("b"), strides, 0, extra, group, dilations).numpy()
        return [y[(..., *(slice(pads[a], y.shape[2 + a] - pads[axes + a]) for a in range(axes)))]]

    without = {}
    if group > 1 and b is not None:
        without["onnx.reference"] = "it gives every group the bias of the first"
    if auto == "SHAPE" and any(extra):
        without["onnx.reference"] = "it leaves output_padding out where output_shape is given"
    return Draw(
        "ConvTranspose",
        int(rng.choice([11, 22])),
        drop_defaults(rng, attributes, ones),
        operands,
        inputs,
        constants,
        torch=by_torch,
        without=without,
    )


def draw_pool(rng: np.random.Generator) -> Draw:
    maximum = chance(rng, 0.5)
    axes = int(rng.choice([1, 2, 2, 3]))
    opset = int(rng.choice([11, 12, 22] if maximum else [11, 19, 22]))
    kernel, strides, dilations, extent = window(rng, axes, dilated=maximum or opset >= 19)
    sizes = [e + n for e, n in zip(extent, integers(rng, 0, 6 if axes < 3 else 3, axes), strict=True)]
    auto = str(rng.choice(["NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    pads = [0] * 2 * axes
    if auto == "NOTSET" and chance(rng, 0.7):
        pads = [int(rng.integers(0, k)) for k in [*kernel, *kernel]]
    ceil = int(auto == "NOTSET" and chance(rng, 0.5))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "ceil_mode": ceil}
    attributes |= {"pads": pads} if auto == "NOTSET" else {"auto_pad": auto}
    defaults: dict[str, Any] = {"strides": [1] * axes, "ceil_mode": 0, "pads": [0] * 2 * axes, "dilations": [1] * axes}
    if maximum or opset >= 19:
        attributes["dilations"] = dilations
    if not maximum:
        attributes["count_include_pad"] = int(chance(rng, 0.5))
        defaults["count_include_pad"] = 0
    x = normal(rng, int(rng.integers(1, 3)), int(rng.integers(1, 18)), *sizes)
    symmetric = pads[:axes] == pads[axes:] and auto in ("NOTSET", "VALID")
    halved = all(2 * p <= k for p, k in zip(pads, kernel, strict=False))

    same = same_pads(sizes, extent, strides, auto == "SAME_UPPER") if auto.startswith("SAME") else pads

    def padded_by_torch(t: torch.Tensor) -> list[Array]:
        """Any pads, without ceil_mode: the maximum over -inf, the sum of a padded window over a count."""
        f, sides = torch.nn.functional, torch_pads(same)
        if maximum:
            pool = [f.max_pool1d, f.max_pool2d, f.max_pool3d][axes - 1]
            return [pool(f.pad(t, sides, value=-torch.inf), kernel, strides, 0, dilations).numpy()]
        conv = [torch.conv1d, torch.conv2d, torch.conv3d][axes - 1]
        ones = torch.ones(t.shape[1], 1, *kernel)
        total, count = (
            conv(f.pad(a, sides), ones, None, strides, 0, dilations, t.shape[1]) for a in (t, torch.ones_like(t))
        )
        return [(total / (float(np.prod(kernel)) if attributes["count_include_pad"] else count)).numpy()]

    def by_torch(v: Values) -> list[Array] | None:
        t = torch.from_numpy(v["x"])
        f = torch.nn.functional
        if not ceil:
            return padded_by_torch(t)
        if not (symmetric and halved):
            return None
        if maximum:
            pool = [f.max_pool1d, f.max_pool2d, f.max_pool3d][axes - 1]
            return [pool(t, kernel, strides, pads[:axes], dilations, bool(ceil)).numpy()]
        if max(dilations) > 1:
            return None
        average = [f.avg_pool1d, f.avg_pool2d, f.avg_pool3d][axes - 1]
        include = bool(attributes["count_include_pad"])
        return [average(t, kernel, strides, pads[:axes], bool(ceil), include).numpy()]

    given = drop_defaults(rng, attributes, defaults)
    negative = auto.startswith("SAME") and any(
        (-(-n // s) - 1) * s + e < n for n, e, s in zip(sizes, extent, strides, strict=True)
    )
    without = {}
    if negative:
        without["onnx.reference"] = "its pads are negative where a window is smaller than its stride"
    elif auto == "SAME_LOWER":
        without["onnx.reference"] = "it pads at the end where SAME_LOWER pads at the beginning"
    elif auto != "NOTSET" and max(dilations) > 1:
        without["onnx.reference"] = "it leaves dilations out of the pads and sizes of auto_pad"
    elif ceil and not maximum:
        without["onnx.reference"] = "it counts elements beyond the pads"
    elif ceil and "strides" not in given:
        without["onnx.reference"] = "it takes the kernel as strides where there are none"
    elif maximum and max(strides) == 1 and (ceil or pads[:axes] != pads[axes:]):
        without["onnx.reference"] = "it computes another size for uneven pads and ceil_mode"
    if auto.startswith("SAME") and max(dilations) > 1:
        without["onnxruntime"] = "it has fewer results than ceil(size / stride) where a window is dilated"
    elif negative:
        without["onnxruntime"] = "its pads are negative where a window is smaller than its stride"
    return Draw(
        "MaxPool" if maximum else "AveragePool",
        opset,
        given,
        ("x",),
        {"x": x},
        {},
        torch=by_torch,
        without=without,
    )
