"""Scales, sizes and regions given at run time: the bits of a model in which they are constants, or a refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels import compile_model, load_engine
from compiler_kernels.compile import freeze_model
from compiler_kernels.engine import Engine
from compiler_kernels.errors import RefusedError
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from evidence.reference import load_graph, run
from evidence.steering_inputs import steering_inputs

Array = np.ndarray[Any, Any]
X = np.random.default_rng(7).standard_normal((1, 2, 6, 9)).astype(np.float32)
FORMS: dict[str, tuple[dict[str, Any], str, tuple[int, int]]] = {
    "linear": ({"mode": "linear"}, "scales", (3, 13)),
    "nearest": ({"mode": "nearest", "nearest_mode": "ceil"}, "scales", (3, 13)),
    "symmetric": ({"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}, "scales", (3, 13)),
    "cubic": ({"mode": "cubic", "exclude_outside": 1}, "scales", (3, 13)),
    "antialias": ({"mode": "cubic", "antialias": 1}, "scales", (2, 4)),
    "stretch": ({"mode": "linear", "axes": [3, 2]}, "sizes", (4, 5)),
    "not_larger": ({"mode": "linear", "keep_aspect_ratio_policy": "not_larger", "axes": [2, 3]}, "sizes", (4, 6)),
    "not_smaller": ({"mode": "cubic", "keep_aspect_ratio_policy": "not_smaller", "axes": [2, 3]}, "sizes", (8, 12)),
    "crop": (
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -3.0},
        "roi",
        (4, 5),
    ),
}


def model(names: list[str], constants: dict[str, dict[str, Array]] | None = None) -> bytes:
    """A node per form; what steers it is an input, or an initialiser if ``constants`` gives it."""
    nodes, outputs, weights = [], [], [numpy_helper.from_array(np.array([1, 2, 4, 5], np.int64), "four")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)]
    for name in names:
        attributes, kind, size = FORMS[name]
        count = len(attributes.get("axes", range(4)))
        own = {"scales": f"{name}_scales", "sizes": f"{name}_sizes", "roi": f"{name}_roi"}[kind]
        operands = {"scales": ["", own], "sizes": ["", "", own], "roi": [own, "", "four"]}[kind]
        nodes.append(helper.make_node("Resize", ["x", *operands], [name], f"{name}_node", **attributes))
        shape = [1, 2, *(size if name != "stretch" else size[::-1])]
        outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        if constants is not None:
            weights.append(numpy_helper.from_array(constants[name][kind], own))
        else:
            dtype = TensorProto.INT64 if kind == "sizes" else TensorProto.FLOAT
            inputs.append(helper.make_tensor_value_info(own, dtype, [2 * count if kind == "roi" else count]))
    graph = helper.make_graph(nodes, "resizes", inputs, outputs, weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    return bytes(made.SerializeToString())


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def whole(*values: int) -> Array:
    return np.array(values, np.int64)


GIVEN: list[dict[str, Array]] = [
    {
        "linear": floats(1, 1, 0.6, 1.5),
        "nearest": floats(1, 1, 0.5, 1.49),
        "symmetric": floats(1, 1, 0.6, 1.45),
        "cubic": floats(1, 1, 0.66, 1.5),
        "antialias": floats(1, 1, 0.34, 0.5),
        "stretch": whole(4, 5),
        "not_larger": whole(5, 6),
        "not_smaller": whole(8, 10),
        "crop": floats(0, 0, 0.1, -0.3, 1, 1, 0.9, 1.2),
    },
    {
        "linear": floats(1, 1, 0.5, 1.46),
        "nearest": floats(1, 1, 0.65, 1.5),
        "symmetric": floats(1, 1, 0.51, 1.5),
        "cubic": floats(1, 1, 0.5, 1.45),
        "antialias": floats(1, 1, 0.49, 0.45),
        "stretch": whole(4, 5),
        "not_larger": whole(4, 60),
        "not_smaller": whole(3, 12),
        "crop": floats(0, 0, 0, 0, 1, 1, 1, 1),
    },
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_engine(compile_model(model(list(FORMS))))


def fed(values: dict[str, Array]) -> dict[str, Array]:
    return {"x": X, **{f"{name}_{FORMS[name][1]}": value for name, value in values.items()}}


@pytest.mark.parametrize("case", range(len(GIVEN)))
def test_bits_of_constants(engine: Engine, case: int) -> None:
    given = GIVEN[case]
    constants = {name: {FORMS[name][1]: value} for name, value in given.items()}
    want = load_engine(compile_model(model(list(FORMS), constants))).run(X)
    got = engine.run(fed(given))
    different = [name for name in FORMS if got[name].tobytes() != want[name].tobytes()]
    assert not different
    assert all(got[name].shape == want[name].shape for name in FORMS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linear", floats(1, 1, 0.7, 1.5)),
        ("linear", floats(1, 1, np.nan, 1.5)),
        ("cubic", floats(1, 1, -0.5, 1.5)),
        ("antialias", floats(1, 1, 1e-6, 0.5)),
        ("stretch", whole(5, 4)),
        ("not_larger", whole(5, 9)),
        ("crop", floats(0, 0, np.inf, 0, 1, 1, 1, 1)),
        ("crop", floats(0, 0, 1e-20, 0, 1, 1, 1, 1)),
    ],
)
def test_refused(engine: Engine, name: str, value: Array) -> None:
    with pytest.raises(RefusedError, match=f"'{name}_node'"):
        engine.run(fed({**GIVEN[0], name: value}))


def test_inputs_for_the_equivalence_report_are_accepted() -> None:
    frozen = freeze_model(model(list(FORMS)))
    graph = load_graph(neutral_json(frozen.module.main), pack(frozen.module.main, frozen.store))
    steered = steering_inputs(graph)
    assert set(steered) == set(fed(GIVEN[0])) - {"x"}
    values = run(graph, {"x": X, **steered})
    engine_values = load_engine(compile_model(model(list(FORMS)))).run({"x": X, **steered})
    for value_id, name in graph.outputs:
        assert values[value_id].tobytes() == engine_values[name].tobytes(), name


def test_public_reports() -> None:
    """Values that runtimes got wrong in public: a resize to one element, an average over overhanging windows."""
    sixteen = (np.arange(16, dtype=np.float32) ** np.float32(1.5)).reshape(1, 1, 4, 4)
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    nodes = [
        helper.make_node("Resize", ["x", "", "", "one"], [c], mode="linear", coordinate_transformation_mode=c)
        for c in coordinates
    ]
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1, "count_include_pad": 1}
    nodes.append(helper.make_node("AveragePool", ["square"], ["mean"], **window))
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 4, 4]) for n in ("x", "square")]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in (*coordinates, "mean")]
    graph = helper.make_graph(nodes, "reports", inputs, outputs, [numpy_helper.from_array(whole(1, 1, 1, 1), "one")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    found = load_engine(compile_model(made.SerializeToString())).run(
        {"x": sixteen, "square": np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)}
    )
    assert found["half_pixel"].item() == pytest.approx(21.125013, abs=1e-5)
    assert [found[c].item() for c in coordinates[1:]] == [0.0, 0.0, 0.0]
    wanted = [1.5555556, 3.3333333, 2, 6.3333335, 11, 6, 4.5, 7.5, 4]
    np.testing.assert_allclose(found["mean"].reshape(-1), wanted, rtol=1e-6)


def test_undeclared_shape() -> None:
    """Without a declared shape the scales determine nothing that could be compiled for."""
    made = onnx.load_from_string(model(["linear"]))
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    made.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(Exception, match="scales from the run-time tensor"):
        compile_model(made.SerializeToString())
