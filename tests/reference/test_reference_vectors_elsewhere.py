"""Vectors that neither onnxruntime nor the onnx package runs as they stand, in a form that one of them or torch has."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from test_reference_vectors_onnx import HELD_ELSEWHERE, VECTORS, departs

from evidence.reference.vector_model import Vector
from evidence.reference.vectors import expected_output
from evidence.vector_engines import onnx_array, onnx_model

CHOSEN = {v.name: v for v in VECTORS if departs(v, HELD_ELSEWHERE)}
FAR = sorted(n for n in CHOSEN if n.startswith("grid_sample_far_"))
# What stands for a parameter left out: the default of the operator of this name; 1, 0 and 1, 1 where there is none.
PARAMETERS: dict[str, dict[str, list[float]]] = {
    "rnn_with_affine": {"activation_alpha": [1.0], "activation_beta": [0.0]},
    "rnn_with_thresholdedrelu": {"activation_alpha": [1.0]},
    "rnn_with_scaledtanh": {"activation_alpha": [1.0], "activation_beta": [1.0]},
    "gru_functions": {"activation_beta": [float(np.float32(0.4)), 1.0]},
}
OTHERS = ["resize_cubic_pytorch_half_pixel_one", "resize_nearest_bool", "resize_nearest_int64", "roi_align_opset10"]
WIDENED = {"lstm_float64_functions": 1e-5, "lstm_bfloat16": 2.0**-8}
"""The relative limit: float32 sums that cancel, and half a unit of bfloat16, to which each result is rounded once."""


def given(name: str) -> dict[str, np.ndarray]:
    return {n: onnx_array(a) for n, a in CHOSEN[name].onnx_model_parts().graph_inputs.items()}


def model(vector: Vector) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(onnx_model(vector))


def run(built: onnx.ModelProto, values: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(built.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], values)[0]


def retyped(built: onnx.ModelProto, element: int) -> onnx.ModelProto:
    """The model with its inputs, outputs and weights of the types that are not run as `element`; sizes stay."""
    kinds = {onnx.TensorProto.BOOL, onnx.TensorProto.INT64, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16}
    for value in (*built.graph.input, *built.graph.output):
        if value.type.tensor_type.elem_type in kinds:
            value.type.tensor_type.elem_type = element
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    for tensor in built.graph.initializer:
        if tensor.data_type in kinds and tensor.name in {"w", "r", "b"}:
            array = onnx.numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return built


def test_every_vector_is_held_here() -> None:
    assert sorted(CHOSEN) == sorted([*FAR, *PARAMETERS, *WIDENED, *OTHERS])


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_left_out(name: str) -> None:
    """onnxruntime agrees once the parameters that are left out are written down."""
    built = model(CHOSEN[name])
    attributes = built.graph.node[0].attribute
    for key, values in PARAMETERS[name].items():
        for old in [a for a in attributes if a.name == key]:
            attributes.remove(old)
        attributes.append(onnx.helper.make_attribute(key, values))
    theirs = run(built, given(name))
    np.testing.assert_allclose(
        expected_output(CHOSEN[name]), theirs, rtol=3e-5, atol=1e-5 * float(np.abs(theirs).max())
    )


@pytest.mark.parametrize("name", WIDENED)
def test_types_of_recurrent_layers(name: str) -> None:
    """onnxruntime in float32."""
    values = {n: a.astype(np.float32) for n, a in given(name).items()}
    theirs = run(retyped(model(CHOSEN[name]), onnx.TensorProto.FLOAT), values)
    got = onnx_array(expected_output(CHOSEN[name])).astype(np.float64)
    np.testing.assert_allclose(got, theirs, rtol=WIDENED[name], atol=1e-7)


def test_nearest_of_booleans() -> None:
    """As bytes."""
    name = "resize_nearest_bool"
    values = {n: a.astype(np.uint8) for n, a in given(name).items()}
    theirs = run(retyped(model(CHOSEN[name]), onnx.TensorProto.UINT8), values)
    assert 0 < theirs.sum() < theirs.size
    np.testing.assert_array_equal(expected_output(CHOSEN[name]), theirs.astype(bool))


def test_nearest_of_long_integers() -> None:
    """As two halves, each an int32."""
    name = "resize_nearest_int64"
    x = given(name)["x"]
    assert np.abs(x.astype(np.float64)).max() > 2.0**53
    halves = x.view(np.int32).reshape(*x.shape, 2)
    built = retyped(model(CHOSEN[name]), onnx.TensorProto.INT32).SerializeToString()
    parts = [run(onnx.ModelProto.FromString(built), {"x": halves[..., h].copy()}) for h in (0, 1)]
    theirs = np.stack(parts, -1).view(np.int64)[..., 0]
    np.testing.assert_array_equal(expected_output(CHOSEN[name]), theirs)


def test_only_coordinate_of_pytorch_half_pixel() -> None:
    """The text: 0 where the resized length is 1, so the first element itself."""
    name = "resize_cubic_pytorch_half_pixel_one"
    np.testing.assert_array_equal(expected_output(CHOSEN[name]), given(name)["x"][:, :, :1])


def test_regions_of_opset_10() -> None:
    """An index from the end, replaced by the one it stands for."""
    name = "roi_align_opset10"
    values = given(name)
    assert values["batch"].tolist() == [0, 1, 1, 0, -1] and values["x"].shape[0] == 2
    theirs = run(model(CHOSEN[name]), {**values, "batch": np.array([0, 1, 1, 0, 1])})
    np.testing.assert_allclose(expected_output(CHOSEN[name]), theirs, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("name", FAR)
def test_grid_sample_of_far_places(name: str) -> None:
    """torch, and NaN where a place is NaN or a reflection has no limit; `defined` has a place of the grid an entry."""
    vector, values = CHOSEN[name], given(name)
    attributes: dict[str, Any] = vector.onnx_model_parts().attributes
    mode, padding = str(attributes["mode"]), str(attributes["padding_mode"])
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'cuvil[torch]')")
    theirs = torch.nn.functional.grid_sample(
        *(torch.from_numpy(values[n].copy()) for n in ("x", "grid")),
        mode={"linear": "bilinear"}.get(mode, mode),
        padding_mode=padding,
        align_corners=False,
    ).numpy()
    got = expected_output(vector)
    places = values["grid"].reshape(2, 2, 2)
    assert np.isinf(places[0, 0]).all() and np.isnan(places[0, 1, 0]) and np.abs(places[1, 0]).max() > 1e29
    defined = np.ones((2, 2), bool)
    if padding == "reflection":
        defined[0] = False
        defined[1, 0] = mode == "linear"  # the parity of 1e30 reflections is a matter of rounding
    elif (mode, padding) == ("linear", "border"):
        defined[0, 1] = False  # torch takes NaN for the first element
    for n, point in np.ndindex(2, 2):
        ours = got[n, :, 0, point]
        if defined[n, point]:
            np.testing.assert_allclose(ours, theirs[n, :, 0, point], rtol=3e-6, atol=1e-6)
        elif mode == "linear":
            assert np.isnan(ours).all()
        else:
            planes = values["x"][n].reshape(2, -1)
            assert ((planes == ours[:, None]).all(axis=0)).any(), "an element of x, the same in every channel"
