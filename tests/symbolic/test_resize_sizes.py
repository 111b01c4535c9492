"""Resize of sizes known at run time has the bits of the tables made for the same sizes at compile time.

One model holds many Resize nodes, so that one engine of symbolic sizes stands against one static engine per size. The
operand holds infinities, NaN and -0: an axis whose size happens not to change must be left alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels import compile_model, load_engine
from compiler_kernels.engine import Engine
from compiler_kernels.policy import load_policy

POLICY = b"""version: 1
model: {name: resizes, version: "1"}
shapes:
  h: [2, 12]
  w: [2, 9]
"""
COORDINATES = "half_pixel pytorch_half_pixel align_corners asymmetric half_pixel_symmetric".split()
ROUNDINGS = "round_prefer_floor round_prefer_ceil floor ceil".split()
Form = tuple[dict[str, Any], str]


def forms() -> Iterator[Form]:
    """Attributes, and how the result's sizes are given: numbers, a multiple of the operand's, or scales."""
    sizes = itertools.cycle(["6,5", "2h,w", "h,2w", "2.0,1.5", "0.5,3.0", "1,4"])
    for coordinates in COORDINATES:
        yield {"mode": "linear", "coordinate_transformation_mode": coordinates}, next(sizes)
        yield {"mode": "linear", "coordinate_transformation_mode": coordinates}, next(sizes)
        yield {"mode": "cubic", "coordinate_transformation_mode": coordinates, "exclude_outside": 1}, next(sizes)
        for rounding in ROUNDINGS:
            yield (
                {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding},
                next(sizes),
            )
    yield {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "ceil"}, "2h,w"
    for mode, given in itertools.product(("linear", "cubic"), ("6,5", "h,2w", "0.5,1.5")):
        yield {"mode": mode, "antialias": 1}, given
        yield {"mode": mode, "antialias": 1, "exclude_outside": 1}, given
    yield {"mode": "cubic", "cubic_coeff_a": -0.5}, "2.0,2.0"
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    for mode in ("linear", "nearest"):
        yield {"mode": mode, **crop}, "6,5"


def model(height: int | str, width: int | str) -> bytes:
    """All forms as nodes of one model; ``xd`` is the operand in float64."""
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray[Any, Any]] = {
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "channels": np.array([1, 2], np.int64),
        "roi": np.array([0, 0, 0.25, -0.125, 1, 1, 1.25, 0.75], np.float32),
    }
    nodes.append(helper.make_node("Shape", ["x"], ["h"], start=2, end=3))
    nodes.append(helper.make_node("Shape", ["x"], ["w"], start=3, end=4))
    nodes.append(helper.make_node("Cast", ["x"], ["xd"], to=TensorProto.DOUBLE))
    outputs = []
    for n, (attributes, given) in enumerate(forms()):
        sides = given.split(",")
        roi = "roi" if "tf_crop" in attributes.get("coordinate_transformation_mode", "") else ""
        if "." in given:
            constants[f"s{n}"] = np.array([1, 1, *map(float, sides)], np.float32)
            operands = [roi, f"s{n}"]
        else:
            for k, side in enumerate(sides):
                name = f"n{n}_{k}"
                if side.isdigit():
                    constants[name] = np.array([int(side)], np.int64)
                elif side.startswith("2"):
                    nodes.append(helper.make_node("Mul", [side[1:], "two"], [name]))
                else:
                    nodes.append(helper.make_node("Identity", [side], [name]))
            nodes.append(helper.make_node("Concat", ["channels", f"n{n}_0", f"n{n}_1"], [f"s{n}"], axis=0))
            operands = [roi, "", f"s{n}"]
        wide = n % 5 == 4
        nodes.append(
            helper.make_node("Resize", ["xd" if wide else "x", *operands], [f"y{n}"], f"resize{n}", **attributes)
        )
        kind = TensorProto.DOUBLE if wide else TensorProto.FLOAT
        outputs.append(helper.make_tensor_value_info(f"y{n}", kind, None))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, height, width])]
    weights = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "resizes", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    return bytes(made.SerializeToString())


def operand(height: int, width: int) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(height * 100 + width).standard_normal((1, 2, height, width)).astype(np.float32)
    x[0, 0, 0, 0], x[0, 0, -1, -1], x[0, 1, 0, -1], x[0, 1, -1, 0] = np.inf, -0.0, np.nan, -np.inf
    return x


@pytest.fixture(scope="module")
def symbolic() -> Engine:
    return load_engine(compile_model(model("h", "w"), policy=load_policy(POLICY, "p.yaml")))


def differences(engine: Engine, height: int, width: int) -> list[str]:
    x = operand(height, width)
    got, want = engine.run(x), load_engine(compile_model(model(height, width))).run(x)
    assert got.keys() == want.keys()
    lines = []
    for n, form in enumerate(forms()):
        a, b = got[f"y{n}"], want[f"y{n}"]
        if a.shape != b.shape or a.tobytes() != b.tobytes():
            lines.append(f"{height}x{width} {form}: {a.shape} {b.shape}")
    return lines


@pytest.mark.parametrize(("height", "width"), [(6, 5), (2, 2)])
def test_bits_of_static_tables(symbolic: Engine, height: int, width: int) -> None:
    assert not differences(symbolic, height, width)


@pytest.mark.slow
@pytest.mark.parametrize(("height", "width"), [(11, 4), (2, 9), (12, 9), (3, 3), (7, 6), (5, 8)])
def test_bits_of_static_tables_more_sizes(symbolic: Engine, height: int, width: int) -> None:
    assert not differences(symbolic, height, width)
