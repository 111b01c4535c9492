"""Vector cases without weights: pooling, reductions, softmax, norms, elementwise, resize, data movement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from evidence.reference.vector_cases import ABSENT, Case, binary32, given, integers, random, weight
from evidence.reference.vector_model import VectorInput, words_to_array

# Zeros, units, subnormals, extremes, infinities, NaN with payloads, and the thresholds of the elementary functions.
SPECIAL = words_to_array(
    "00000000 80000000 3f800000 bf800000 7f800000 ff800000 7fc00000 ffc12345 7f800001 00000001 80000001 007fffff "
    "00800000 7f7fffff ff7fffff 3f000000 40000000 c0000000 40400000 c0400000 42b17217 42b17218 c2aeac50 c2cff1b5 "
    "c2cff1b4 3f520000 3f520001 3f200000 3f200001 41120000 c1120000 3f7fffff 3f800001 4b000000 4b000001 cb800000"
)
_PAIRS = words_to_array(
    "00000000 80000000 3f800000 bf800000 7f800000 ff800000 7fc00000 00000001 80000003 007fffff 7f7fffff ff7fffff "
    "3f000000 c0400000 40a00000 4b800001"
)


def pooling() -> Iterator[Case]:
    """Max, average and global pooling."""
    signs = given("x", [[[[-0.0, 0.0, -1.0, np.nan], [0.0, -0.0, -0.0, 2.0], [-3.0, -0.0, -np.inf, -np.inf]]]])
    for op, prefix in (("MaxPool", "max_pool"), ("AveragePool", "average_pool")):

        def case(name: str, *shape: int, opset: int = 17, op: str = op, prefix: str = prefix, **attrs: Any) -> Case:
            return Case(f"{prefix}_{name}", op, attrs, (random("x", *shape),), opset)

        yield case("2x2", 1, 3, 4, 6, kernel_shape=[2, 2], strides=[2, 2])
        yield case("3x3_pad", 1, 2, 5, 6, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        yield case("ceil", 1, 2, 6, 7, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)
        yield case("ceil_pad", 1, 2, 4, 4, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
        yield case("1d", 2, 2, 9, kernel_shape=[4], strides=[3], pads=[0, 2])
        yield case("3d", 1, 2, 4, 4, 5, kernel_shape=[2, 2, 3], strides=[2, 1, 2])
        yield case("9x9", 1, 2, 9, 10, kernel_shape=[9, 9])
        yield case("dilated", 1, 2, 7, 8, opset=19, kernel_shape=[3, 2], dilations=[2, 3])
        yield Case(f"{prefix}_signs_and_nan", op, {"kernel_shape": [1, 2]}, (signs,))
    for ceil_mode, pads in ((0, [1, 1, 1, 1]), (1, [1, 1, 1, 1]), (1, [0, 1, 1, 0])):
        yield Case(
            f"average_pool_include_pad_ceil{ceil_mode}_{''.join(map(str, pads))}", "AveragePool",
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads, "ceil_mode": ceil_mode, "count_include_pad": 1},
            (given("x", np.arange(1, 17), 1, 1, 4, 4),),
        )  # fmt: skip
    for shape in ((1, 3, 7, 7), (2, 2, 65), (1, 2, 1000), (1, 2, 5, 13), (1, 2, 4, 5, 33), (1, 1, 73, 73)):
        for op, prefix in (("GlobalAveragePool", "global_average_pool"), ("GlobalMaxPool", "global_max_pool")):
            yield Case(f"{prefix}_{'x'.join(map(str, shape))}", op, {}, (random("x", *shape, kind="positive"),))
    yield Case("global_max_pool_signs_and_nan", "GlobalMaxPool", {}, (signs,))
    yield Case("global_max_pool_zeros", "GlobalMaxPool", {}, (given("x", [[[-0.0, 0.0], [0.0, -0.0]]]),))


def reductions() -> Iterator[Case]:
    """ReduceMean, Sum, Max, Min by positions and in lanes; the first row of the table in section 4."""
    for op, prefix in (("ReduceMean", "mean"), ("ReduceSum", "sum"), ("ReduceMax", "max"), ("ReduceMin", "min")):
        for name, shape, axes in (
            ("last", (2, 3, 50), [-1]),
            ("last_1500", (2, 1500), [1]),
            ("last_two", (2, 3, 9, 11), [2, 3]),
            ("last_three", (2, 3, 5, 7), [1, 2, 3]),
            ("middle", (2, 70, 3), [1]),
            ("outer", (3, 2, 40), [0, 2]),
            ("all", (3, 40), [0, 1]),
            ("rank3_spatial", (1, 3, 1030), [2]),
        ):
            yield Case(
                f"reduce_{prefix}_{name}", op, {"keepdims": 1}, (random("x", *shape), integers("axes", axes)), 18
            )
        flat = {"keepdims": 0}
        yield Case(f"reduce_{prefix}_drop", op, flat, (random("x", 3, 20, 2), integers("axes", [0, 1])), 18)
    zeros = np.zeros((1, 20), dtype=np.float32)
    zeros[0, [1, 2, 5]] = -0.0
    for op in ("ReduceMax", "ReduceMin", "ReduceSum"):
        yield Case(f"{op}_zeros_in_lanes", op, {}, (given("x", zeros), integers("axes", [1])), 18)
        yield Case(f"{op}_zeros_by_position", op, {}, (given("x", zeros.T[1:]), integers("axes", [0])), 18)
        special = SPECIAL[[0, 4, 9, 15, 6, 2]].reshape(2, 3)
        yield Case(f"{op}_special", op, {}, (given("x", special), integers("axes", [1])), 18)


def softmaxes() -> Iterator[Case]:
    """Softmax and LogSoftmax."""
    row = [-np.inf, -np.inf, 0.0, -np.inf, np.inf, 1.0, np.nan, 0.0, 200.0, -200.0, -np.inf, 3.0]
    for op, prefix in (("Softmax", "softmax"), ("LogSoftmax", "log_softmax")):
        for n in (1, 2, 15, 16, 17, 33, 100, 1000, 1025, 1500):
            yield Case(f"{prefix}_{n}", op, {"axis": -1}, (random("x", 2, n, shift=3),))
        yield Case(f"{prefix}_1100_wide", op, {"axis": -1}, (random("x", 1, 1100, kind="wide"),))
        for shape, axis in (((2, 21, 3), 1), ((70, 2), 0), ((1, 3, 2, 2), 1), ((1, 600, 2), -2)):
            name = f"{prefix}_axis{axis % len(shape)}_of_{'x'.join(map(str, shape))}"
            yield Case(name, op, {"axis": axis}, (random("x", *shape, shift=2),))
        yield Case(f"{prefix}_opset11_axis1", op, {"axis": 1}, (random("x", 1, 2, 3),), 11)
        yield Case(f"{prefix}_opset11_axis2", op, {"axis": 2}, (random("x", 2, 3, 4, 5, shift=2),), 11)
        yield Case(f"{prefix}_special", op, {"axis": -1}, (given("x", row, 6, 2),))


def norms() -> Iterator[Case]:
    """Batch, layer, instance and group normalisation."""
    shape: tuple[int, ...]
    eps = {"epsilon": binary32(1e-3)}
    for shape in ((1, 3, 4, 5), (2, 5), (2, 2, 7)):
        c = shape[1]
        per_channel = (weight("s", c), weight("b", c), weight("m", c), weight("v", c, kind="positive"))
        name = f"batch_normalization_{'x'.join(map(str, shape))}"
        yield Case(name, "BatchNormalization", eps, (random("x", *shape), *per_channel))
    for shape, axis in (
        ((2, 5), -1), ((2, 16), -1), ((3, 64), 1), ((2, 2, 768), -1), ((2, 1500), -1), ((2, 3, 7, 5), 1),
        ((2, 3, 40), 1),
    ):  # fmt: skip
        size = shape[axis % len(shape) :]
        operands = (random("x", *shape, shift=2), weight("s", *size), weight("b", *size))
        name = f"layer_normalization_{'x'.join(map(str, shape))}"
        yield Case(name, "LayerNormalization", {"axis": axis, **eps}, operands)
    no_bias = (random("x", 2, 20), weight("s", 20))
    yield Case("layer_normalization_no_bias", "LayerNormalization", {"axis": -1}, no_bias)
    constant_row = (given("x", np.full((1, 8), 0.1)), weight("s", 8), weight("b", 8))
    yield Case("layer_normalization_constant_row", "LayerNormalization", {"axis": -1}, constant_row)
    for shape in ((1, 3, 5, 5), (2, 2, 100), (1, 2, 3, 4, 50)):
        c = shape[1]
        affine = (weight("s", c), weight("b", c))
        dims = "x".join(map(str, shape))
        operands = (random("x", *shape, shift=1), *affine)
        yield Case(f"instance_normalization_{dims}", "InstanceNormalization", eps, operands)
    for shape, groups in (((1, 6, 5, 5), 3), ((2, 4, 70), 2), ((1, 4, 3, 3), 4)):
        c = shape[1]
        operands = (random("x", *shape, shift=1), weight("s", c), weight("b", c))
        attrs = {**eps, "num_groups": groups}
        name = f"group_normalization_{'x'.join(map(str, shape))}_g{groups}"
        yield Case(name, "GroupNormalization", attrs, operands, 21)


def elementwise() -> Iterator[Case]:
    """Every elementwise operator on special values and on random ones."""
    unary: list[tuple[str, dict[str, Any], int]] = [
        *((op, {}, 17) for op in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Neg", "Abs", "Reciprocal")),
        *((op, {}, 17) for op in ("Floor", "Ceil", "HardSwish", "Softplus")),
        ("LeakyRelu", {"alpha": binary32(0.1)}, 17), ("Elu", {"alpha": binary32(1.3)}, 17),
        ("HardSigmoid", {"alpha": binary32(0.2), "beta": 0.5}, 17),
        ("HardSigmoid", {"alpha": binary32(1 / 6), "beta": 0.5}, 17),
        ("Gelu", {"approximate": "none"}, 20), ("Gelu", {"approximate": "tanh"}, 20),
    ]  # fmt: skip
    seen: dict[str, int] = {}
    for op, attrs, opset in unary:
        seen[op] = seen.get(op, 0) + 1
        name = op.lower() + (f"_{seen[op]}" if seen[op] > 1 else "")
        yield Case(f"{name}_special", op, attrs, (given("x", SPECIAL),), opset)
        positive = "positive" if op in ("Log", "Sqrt") else "unit"
        yield Case(f"{name}_random", op, attrs, (random("x", 200, kind=positive, shift=3),), opset)
        yield Case(f"{name}_wide", op, attrs, (random("x", 200, kind="wide"),), opset)
    for op in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Pow"):
        yield Case(f"{op.lower()}_special", op, {}, (given("a", _PAIRS, 16, 1), given("b", _PAIRS, 1, 16)))
        left = random("a", 2, 1, 30, kind="positive" if op == "Pow" else "wide", shift=2)
        yield Case(f"{op.lower()}_broadcast", op, {}, (left, random("b", 3, 1, shift=1)))
        yield Case(f"{op.lower()}_constant", op, {}, (random("a", 4, 10, kind="positive"), weight("b", 10, shift=2)))
    for y in (2.0, 3.0, 0.5, -1.0, 2.5):
        yield Case(
            f"pow_scalar_{y}", "Pow", {}, (given("a", SPECIAL), VectorInput("b", (), True, given("b", [y]).source))
        )
    yield Case("prelu_special", "PRelu", {}, (given("x", SPECIAL, 1, 4, 9), weight("slope", 4, 1)))
    yield Case("prelu_random", "PRelu", {}, (random("x", 2, 3, 4, 5), weight("slope", 3, 1, 1)))
    for name, lo, hi in (("both", 0.0, 6.0), ("lo", -0.5, None), ("hi", None, 0.75), ("symmetric", -1.0, 1.0)):
        bounds = [
            ABSENT if v is None else VectorInput(n, (), True, given(n, [v]).source) for n, v in (("lo", lo), ("hi", hi))
        ]
        while bounds and not bounds[-1].name:
            bounds.pop()
        yield Case(f"clip_{name}_special", "Clip", {}, (given("x", SPECIAL), *bounds))
        yield Case(f"clip_{name}_random", "Clip", {}, (random("x", 50, kind="wide"), *bounds))


_COORDINATES = (
    ("half_pixel", 18), ("half_pixel_symmetric", 19), ("pytorch_half_pixel", 18), ("align_corners", 18),
    ("asymmetric", 18), ("tf_crop_and_resize", 18), ("tf_half_pixel_for_nn", 11),
)  # fmt: skip


def _resize(
    name: str, x: VectorInput, attrs: dict[str, Any], opset: int, target: VectorInput, roi: list[float]
) -> Case:
    region = given("roi", roi, constant=True) if roi or opset < 13 else ABSENT
    if target.name == "scales":
        return Case(name, "Resize", attrs, (x, region, target), opset)
    empty = given("scales", [], constant=True) if opset < 13 else ABSENT
    return Case(name, "Resize", attrs, (x, region, empty, target), opset)


def resizes() -> Iterator[Case]:
    """Resize, nearest and linear, in every coordinate mode, up, down, to one element, by sizes and by scales."""
    for coordinates, opset in _COORDINATES:
        base: dict[str, Any] = {"coordinate_transformation_mode": coordinates}
        roi = [0.0, 0.0, 0.25, 1.0, 1.0, 1.125] if coordinates == "tf_crop_and_resize" else []
        if roi:
            base = {**base, "extrapolation_value": 10.0}
        for label, size, target in (
            ("up", 5, integers("sizes", [1, 2, 8])), ("down", 8, integers("sizes", [1, 2, 3])),
            ("one", 4, integers("sizes", [1, 2, 1])), ("same", 4, integers("sizes", [1, 2, 4])),
            ("scale2", 4, given("scales", [1, 1, 2], constant=True)),
            ("scale0.6", 9, given("scales", [1, 1, 0.6], constant=True)),
            ("scale1.3", 7, given("scales", [1, 1, 1.3], constant=True)),
        ):  # fmt: skip
            if roi and target.name == "scales":
                continue  # ONNX's text and its implementations disagree on the output size
            x = random("x", 1, 2, size, kind="wide")
            for mode in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
                attrs = {**base, "mode": "nearest", "nearest_mode": mode}
                yield _resize(f"resize_nearest_{coordinates}_{label}_{mode}", x, attrs, opset, target, roi)
            attrs = {**base, "mode": "linear"}
            yield _resize(f"resize_linear_{coordinates}_{label}", x, attrs, opset, target, roi)
        if coordinates != "tf_crop_and_resize":
            target = given("scales", [1, 1, 2, 1.5], constant=True)
            x = random("x", 1, 2, 3, 4)
            yield _resize(f"resize_linear_2d_{coordinates}", x, {**base, "mode": "linear"}, opset, target, [])
    x = given("x", np.arange(16, dtype=np.float64) ** 1.5, 1, 1, 4, 4)
    for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
        attrs = {"coordinate_transformation_mode": coordinates, "mode": "linear"}
        yield _resize(f"resize_linear_to_1x1_{coordinates}", x, attrs, 18, integers("sizes", [1, 1, 1, 1]), [])
    cube = random("x", 1, 2, 3, 4, 3)
    yield _resize("resize_linear_3d", cube, {"mode": "linear"}, 18, integers("sizes", [1, 2, 5, 3, 7]), [])
    yield _resize("resize_nearest_3d", cube, {"mode": "nearest"}, 18, integers("sizes", [1, 2, 6, 8, 2]), [])
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear", "extrapolation_value": -1.5}
    roi = [0.0, 0.0, -0.25, 0.4, 1.0, 1.0, 0.75, 1.3]
    yield _resize("resize_linear_2d_crop", random("x", 1, 1, 5, 4), crop, 18, integers("sizes", [1, 1, 4, 5]), roi)


def movement() -> Iterator[Case]:
    """Concat, Pad, Slice, Transpose, Reshape, Expand."""
    x = random("x", 2, 3, 4)
    for mode, opset in (("constant", 13), ("reflect", 13), ("edge", 13), ("wrap", 19)):
        value = (VectorInput("value", (), True, given("value", [2.5]).source),) if mode == "constant" else ()
        yield Case(f"pad_{mode}", "Pad", {"mode": mode}, (x, integers("pads", [0, 2, 1, 0, 1, 3]), *value), opset)
    yield Case("pad_negative", "Pad", {}, (x, integers("pads", [0, -1, 2, 0, 1, -2])), 13)
    nan = (given("x", SPECIAL[:8], 2, 4), integers("pads", [0, 1, 1, 0]))
    yield Case("pad_nan", "Pad", {"mode": "constant"}, nan, 13)
    for name, values in (
        ("plain", ([1, 0], [2, 3], [0, 2], [1, 1])), ("steps", ([0, 1], [3, 4], [1, 2], [2, 2])),
        ("negative_step", ([-1, 3], [-9, 0], [1, 2], [-1, -2])), ("clamped", ([0, -3], [99, 99], [1, 2], [1, 1])),
    ):  # fmt: skip
        operands = [integers(n, v) for n, v in zip(("starts", "ends", "axes", "steps"), values, strict=True)]
        yield Case(f"slice_{name}", "Slice", {}, (x, *operands))
    for axis in (0, 1, -1):
        shapes = [[2, 3, 4] for _ in range(3)]
        shapes[1][axis] += 2
        operands = [random(f"x{i}", *shape) for i, shape in enumerate(shapes)]
        yield Case(f"concat_axis{axis % 3}", "Concat", {"axis": axis}, tuple(operands))
    yield Case("concat_nan", "Concat", {"axis": 0}, (given("a", SPECIAL[:9]), given("b", SPECIAL[9:11])))
    for perm in ([2, 0, 1], [1, 0, 2], [2, 1, 0]):
        yield Case(f"transpose_{''.join(map(str, perm))}", "Transpose", {"perm": perm}, (x,))
    yield Case("reshape", "Reshape", {}, (x, integers("shape", [4, 6])))
    yield Case("expand", "Expand", {}, (random("x", 3, 1), integers("shape", [2, 1, 4])))
