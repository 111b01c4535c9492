"""Random resizes: all modes, coordinate modes and roundings, scales or sizes, a choice of axes.

Other runtimes compute coordinates in floating point. Where a coordinate lies on, or almost on, the edge between two
neighbours, they may take the other one; such draws are made again with other sizes, unless the scale is a power of two,
with which floating point is exact.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from differential import Array, Draw, Values, torch
from draw_windows import chance, integers, normal

from evidence.reference.resize import source_coordinate

COORDINATES = "half_pixel pytorch_half_pixel align_corners asymmetric half_pixel_symmetric tf_crop_and_resize".split()
ROUNDINGS = "round_prefer_floor round_prefer_ceil floor ceil".split()
SCALES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def on_an_edge(
    mode: str, coordinate: str, size: int, out: int, scale: Fraction, roi: tuple[Fraction, Fraction]
) -> bool:
    """Whether some coordinate lies within 1e-3 of where the choice of neighbours changes."""
    step = Fraction(1, 2) if mode == "nearest" else Fraction(1)
    for o in range(out):
        x = source_coordinate(coordinate, o, size, out, scale, roi)
        if abs(x / step - round(x / step)) < Fraction(1, 500):
            return True
    return False


def draw_resize(rng: np.random.Generator) -> Draw:
    while True:
        found = _try(rng, str(rng.choice(["nearest", "linear"])))
        if found is not None:
            return found


def draw_cubic(rng: np.random.Generator) -> Draw:
    while True:
        found = _try(rng, "cubic")
        if found is not None:
            return found


def power_of_two(number: Fraction) -> bool:
    return all(n & (n - 1) == 0 for n in (number.numerator, number.denominator))


def _try(rng: np.random.Generator, mode: str) -> Draw | None:
    spatial = int(rng.choice([1, 2, 2, 3] if mode != "cubic" else [1, 2]))
    rank = spatial + 2
    coordinate = str(rng.choice(COORDINATES))
    shape = [*integers(rng, 1, 2, 1), *integers(rng, 1, 9, 1), *integers(rng, 2 if mode == "cubic" else 1, 8, spatial)]
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinate}
    if mode == "nearest":
        attributes["nearest_mode"] = str(rng.choice(ROUNDINGS))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = float(rng.choice([-0.75, -0.5]))
        attributes["exclude_outside"] = int(chance(rng, 0.3))
    axes = list(range(rank))
    opset = int(rng.choice([13, 18, 19]))
    if opset >= 18 and chance(rng, 0.5):
        axes = axes[2:]
        attributes["axes"] = axes
    crop = coordinate == "tf_crop_and_resize"
    # By the text of Resize the span of roi scales the result; onnxruntime and onnx.reference leave it out.
    by_sizes = crop or chance(rng, 0.5)
    if by_sizes:
        sizes = [n if a < 2 else int(rng.integers(1, 13)) for a, n in enumerate(shape)]
        scales = [Fraction(m, n) for m, n in zip(sizes, shape, strict=True)]
    else:
        chosen = [1.0 if a < 2 else float(rng.choice(SCALES)) for a in range(rank)]
        sizes = [int(n * s) for n, s in zip(shape, chosen, strict=True)]
        scales = [Fraction(s) for s in chosen]
        if coordinate == "align_corners" and any(n * s % 1 for n, s in zip(shape, chosen, strict=True)):
            return None  # the length of the result is not a whole number; onnx.reference divides by it all the same
    if min(sizes) < 1:
        return None
    roi = [(Fraction(0), Fraction(1))] * rank
    if crop:
        for a in range(2, rank):
            begin, end = sorted(integers(rng, -4, 20, 2))
            roi[a] = (Fraction(begin, 16), Fraction(end + 1, 16))
        attributes["extrapolation_value"] = float(rng.choice([0.0, -1.5]))
    for a in range(2, rank):
        edges = on_an_edge(mode, coordinate, shape[a], sizes[a], scales[a], roi[a])
        whole = coordinate in ("half_pixel", "pytorch_half_pixel", "asymmetric")
        if edges and not (whole and power_of_two(scales[a])):
            return None
    constants: Values = {}
    if crop:
        ends = [float(roi[a][side]) for side in (0, 1) for a in axes]
        constants["roi"] = np.array(ends, np.float32)
    if by_sizes:
        constants["sizes"] = np.array([sizes[a] for a in axes], np.int64)
        operands = ("x", "roi" if crop else "", "", "sizes")
    else:
        constants["scales"] = np.array([float(scales[a]) for a in axes], np.float32)
        operands = ("x", "roi" if crop else "", "scales", "")[:3]
    without = {}
    if coordinate == "pytorch_half_pixel" and 1 in sizes[2:]:
        without["onnx.reference"] = "it takes the coordinate -0.5, not 0, where the result has length 1"
    if crop and any(m == n for m, n in zip(sizes[2:], shape[2:], strict=True)):
        without["onnxruntime"] = "it copies an axis whose size does not change, whatever its roi"
    by_torch = _torch(mode, coordinate, attributes, sizes)
    return Draw("Resize", opset, attributes, operands, {"x": normal(rng, *shape)}, constants, ("y",), by_torch, without)


def _torch(mode: str, coordinate: str, attributes: dict[str, Any], sizes: list[int]) -> Any:
    """torch has linear and (in two dimensions) cubic interpolation with these coordinates; its nearest is another."""
    spatial = len(sizes) - 2
    kinds = {("linear", n): m for n, m in ((1, "linear"), (2, "bilinear"), (3, "trilinear"))} | {
        ("cubic", 2): "bicubic"
    }
    kind = kinds.get((mode, spatial))
    plain = not attributes.get("exclude_outside") and attributes.get("cubic_coeff_a", -0.75) == -0.75
    if kind is None or not plain or coordinate not in ("half_pixel", "align_corners"):
        return None

    def run(v: Values) -> list[Array] | None:
        corners = coordinate == "align_corners"
        scaled = None if "scales" not in v else [float(s) for s in v["scales"][-spatial:]]
        t, interpolate = torch.from_numpy(v["x"]), torch.nn.functional.interpolate
        if scaled is not None and not corners:
            return [interpolate(t, scale_factor=scaled, mode=kind, align_corners=False).numpy()]
        return [interpolate(t, size=sizes[2:], mode=kind, align_corners=corners).numpy()]

    return run
