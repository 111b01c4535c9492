"""Vectors of Resize in its further forms and of reading between elements (since CA-1.4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from evidence.reference.vector_cases import ABSENT, Case, binary32, given, integers, random, weight
from evidence.reference.vector_model import VectorInput

VERSION = "CA-1.4"


def sampling() -> Iterator[Case]:
    """All cases of this family, in file order."""
    yield from _resizes()
    yield from _grids()
    yield from _regions()
    yield from _deformed()


def _case(name: str, op: str, inputs: Sequence[VectorInput], opset: int = 22, **attributes: Any) -> Case:
    return Case(name, op, attributes, tuple(inputs), opset=opset, version=VERSION)


def _resizes() -> Iterator[Case]:
    def by_sizes(name: str, x: VectorInput, sizes: Sequence[int], **attributes: Any) -> Case:
        return _case(f"resize_{name}", "Resize", (x, ABSENT, ABSENT, integers("sizes", sizes)), 19, **attributes)

    line = random("x", 1, 2, 9, kind="wide")
    for coordinates in ("half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric", "pytorch_half_pixel"):
        for label, size in (("up", 14), ("down", 4), ("one", 1)):
            form: dict[str, Any] = {"mode": "cubic", "coordinate_transformation_mode": coordinates}
            yield by_sizes(f"cubic_{coordinates}_{label}", line, [1, 2, size], **form)
    for mode, size, exclude in itertools.product(("linear", "cubic"), (2, 5, 9, 13), (0, 1)):
        form = {"mode": mode, "antialias": 1, "exclude_outside": exclude}
        yield by_sizes(f"antialias_{mode}_{size}_{exclude}", line, [1, 2, size], **form)
    long = random("x", 1, 1, 200)  # more than 64 taps stay one chain
    yield by_sizes("antialias_cubic_long", long, [1, 1, 3], mode="cubic", antialias=1, cubic_coeff_a=-0.5)
    plane = random("x", 1, 2, 5, 7)
    for exclude in (0, 1):
        form = {"mode": "cubic", "cubic_coeff_a": binary32(-0.6), "exclude_outside": exclude}
        yield by_sizes(f"cubic_plane_{exclude}", plane, [1, 2, 8, 4], **form)
    yield by_sizes("cubic_cube", random("x", 1, 1, 3, 4, 3), [1, 1, 4, 3, 5], mode="cubic")
    yield by_sizes("antialias_plane", plane, [1, 2, 2, 3], mode="linear", antialias=1)
    for mode in ("linear", "cubic"):
        wide = random("x", 1, 2, 9, kind="wide", dtype="float64")
        yield by_sizes(f"{mode}_float64", wide, [1, 2, 7], mode=mode)
        half = random("x", 1, 2, 5, 7, dtype="float16")
        yield by_sizes(f"{mode}_float16", half, [1, 2, 8, 4], mode=mode)
    for dtype in ("uint8", "int64", "bfloat16", "bool"):
        yield by_sizes(f"nearest_{dtype}", random("x", 1, 2, 9, kind="bits", dtype=dtype), [1, 2, 5], mode="nearest")
    for mode, scale in itertools.product(("nearest", "linear", "cubic"), (0.6, 1.3, 2.0)):
        scales = given("scales", [1, 1, scale])
        yield _case(f"resize_by_{mode}_{scale}", "Resize", (line, ABSENT, scales), 19, mode=mode)
    scales = given("scales", [1, 1, 0.3])
    yield _case("resize_by_antialias", "Resize", (line, ABSENT, scales), 19, mode="cubic", antialias=1)
    for mode in ("nearest", "linear"):
        roi = given("roi", [0, 0, -0.2, 0.4, 1, 1, 0.7, 1.3])
        form = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5}
        operands = (plane, roi, ABSENT, integers("sizes", [1, 2, 4, 6]))
        yield _case(f"resize_by_region_{mode}", "Resize", operands, 19, **form)


_SPECIAL = "7f800000 ff800000 7fc00000 7149f2ca f149f2ca 3f800000 bf800000 80000000"


def _grids() -> Iterator[Case]:
    x, cube = random("x", 2, 2, 4, 5), random("x", 1, 2, 3, 2, 4)
    grid, grid3 = random("grid", 2, 3, 4, 2, shift=1), random("grid", 1, 2, 2, 3, 3, shift=1)
    for mode, padding, corners in itertools.product(
        ("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), (0, 1)
    ):
        form: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        yield _case(f"grid_sample_{mode}_{padding}_{corners}", "GridSample", (x, grid), **form)
        if mode != "cubic":
            yield _case(f"grid_sample_cube_{mode}_{padding}_{corners}", "GridSample", (cube, grid3), **form)
    # coordinates that are no places: infinities, NaN, 1e30
    far = VectorInput("grid", (2, 1, 2, 2), False, {"bits": _SPECIAL})
    for mode, padding in itertools.product(("nearest", "linear"), ("zeros", "border", "reflection")):
        form = {"mode": mode, "padding_mode": padding}
        yield _case(f"grid_sample_far_{mode}_{padding}", "GridSample", (x, far), **form)
    one = random("x", 2, 1, 1, 1)
    yield _case("grid_sample_one", "GridSample", (one, grid), padding_mode="reflection", align_corners=1)
    wide = (random("x", 2, 2, 4, 5, dtype="float64"), random("grid", 2, 3, 4, 2, shift=1, dtype="float64"))
    yield _case("grid_sample_float64", "GridSample", wide, mode="cubic", padding_mode="reflection")
    half = (random("x", 2, 2, 4, 5, dtype="float16"), random("grid", 2, 3, 4, 2, shift=1, dtype="float16"))
    yield _case("grid_sample_float16", "GridSample", half, mode="linear")
    counts = random("x", 2, 2, 4, 5, kind="bits", dtype="uint8")
    yield _case("grid_sample_uint8", "GridSample", (counts, grid), mode="nearest", padding_mode="border")


def _regions() -> Iterator[Case]:
    x = random("x", 2, 3, 6, 7)
    corners: list[list[float]] = [[0.4, 1.2, 4.9, 5.3], [-2, -1, 3, 2], [5.5, 4, 9, 8.25], [3, 3, 2, 1], [0, 0, 6, 5]]
    rois, batch = given("rois", corners), integers("batch", [0, 1, 1, 0, -1], constant=False)
    for mode, coordinates, ratio in itertools.product(("avg", "max"), ("half_pixel", "output_half_pixel"), (0, 3)):
        form: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates, "sampling_ratio": ratio}
        form |= {"output_height": 2, "output_width": 3, "spatial_scale": 0.75}
        yield _case(f"roi_align_{mode}_{coordinates}_{ratio}", "RoiAlign", (x, rois, batch), **form)
    form = {"sampling_ratio": 9, "output_height": 1, "output_width": 1}  # 81 samples: more than one leaf
    yield _case("roi_align_leaves", "RoiAlign", (x, rois, batch), **form)
    yield _case("roi_align_opset10", "RoiAlign", (x, rois, batch), 10, output_height=2, output_width=2)
    rows = [[b, *r] for b, r in zip((0, 1, 1, 0, 0), corners, strict=True)]
    whole = given("rois", rows)
    for scale in (0.5, 1.0):
        form = {"pooled_shape": [2, 3], "spatial_scale": scale}
        yield _case(f"max_roi_pool_{scale}", "MaxRoiPool", (x, whole), 13, **form)


def _deformed() -> Iterator[Case]:
    def deform(
        name: str, channels: int, kernel: Sequence[int], group: int = 1, sets: int = 1, mask: bool = False, **attrs: Any
    ) -> Case:
        pads = attrs.get("pads", [0, 0, 0, 0])
        out = [5 + pads[a] + pads[2 + a] - kernel[a] + 1 for a in (0, 1)]
        positions = sets * kernel[0] * kernel[1]
        operands = [
            random("x", 1, channels, 5, 5),
            weight("w", 2 * group, channels // group, *kernel),
            random("offset", 1, 2 * positions, *out, shift=1),
            weight("b", 2 * group),
        ]
        if mask:
            operands.append(random("mask", 1, positions, *out, kind="positive"))
        form: dict[str, Any] = {"group": group, "offset_group": sets, **attrs}
        return _case(f"deform_conv_{name}", "DeformConv", operands, **form)

    yield deform("plain", 3, (3, 3))
    yield deform("blocks", 18, (3, 3), mask=True)
    yield deform("groups", 4, (2, 3), group=2, sets=2, mask=True, pads=[1, 0, 1, 2])
