"""Every vector, built as a one-node ONNX model and run by onnxruntime, to a tolerance: the semantics are ONNX's."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from evidence.reference.vector_model import OnnxParts, Vector
from evidence.reference.vectors import expected_output, load_vectors

# Where onnxruntime leaves the ONNX text, the evaluator of the onnx package is the yardstick instead.
ONNXRUNTIME_DEPARTS = {
    "lstm_special": "its activations turn NaN into numbers",
    "gru_special": "its activations turn NaN into numbers",
    "global_max_pool_signs_and_nan": "drops NaN",
    "Reduce*_special": "drops NaN",
    "resize_nearest_*half_pixel_scale0.6_floor": "rounds the coordinate to binary32 before taking the floor",
    "resize_nearest_asymmetric_scale0.6_floor": "the same",
    "resize_nearest_*half_pixel_scale1.3_round_prefer_floor": "rounds the coordinate before the tie",
    "resize_*_tf_crop_and_resize_same*": "ignores roi on an axis of scale 1",
}
# Where neither follows the text: tests below check these against the text itself.
BOTH_DEPART = {
    "resize_nearest_tf_half_pixel_for_nn_scale0.6_round_prefer_ceil": "onnxruntime rounds it, onnx lacks it",
    "resize_nearest_tf_half_pixel_for_nn_scale1.3_ceil": "onnxruntime rounds it, onnx lacks it",
}
# A Winograd form spreads an infinity over its tile, and rounds sums of subnormal numbers; test_reference_winograd.py.
WINOGRAD_DEPARTS = {
    "conv_w*_nan_and_infinities": "",
    "conv_w*_subnormal_results": "",
}
VECTORS = load_vectors(Path(__file__).parents[2] / "docs" / "vectors" / "ca1.json")


def onnx_model(parts: OnnxParts) -> onnx.ModelProto:
    element = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    node = helper.make_node(parts.op_type, list(parts.inputs), [parts.output], **parts.attributes)
    graph = helper.make_graph(
        [node],
        "vector",
        [helper.make_tensor_value_info(n, element[a.dtype.name], a.shape) for n, a in parts.graph_inputs.items()],
        [helper.make_tensor_value_info(parts.output, TensorProto.FLOAT, parts.output_shape)],
        [numpy_helper.from_array(a, n) for n, a in parts.initializers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", parts.opset)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model


def run_onnxruntime(parts: OnnxParts) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        onnx_model(parts).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(parts.graph_inputs))[0]


def run_onnx_reference(parts: OnnxParts) -> np.ndarray:
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(onnx_model(parts)).run(None, dict(parts.graph_inputs))[0]


def departs(vector: Vector, table: dict[str, str]) -> bool:
    return any(fnmatchcase(vector.name, pattern) for pattern in table)


@pytest.mark.parametrize(
    "vector", [v for v in VECTORS if not departs(v, {**BOTH_DEPART, **WINOGRAD_DEPARTS})], ids=lambda v: v.name
)
def test_vector_has_onnx_semantics(vector: Vector) -> None:
    parts = vector.onnx_model_parts()
    runtime = run_onnx_reference if departs(vector, ONNXRUNTIME_DEPARTS) else run_onnxruntime
    got, theirs = expected_output(vector), runtime(parts)
    assert got.shape == theirs.shape
    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
    # A recurrent cell applies its functions to sums that cancel, step after step.
    slack = 10 if vector.op_type in ("LSTM", "GRU", "RNN") else 1
    np.testing.assert_allclose(got, theirs, rtol=3e-6 * slack, atol=1e-6 * slack * scale)


def test_tf_half_pixel_in_binary64() -> None:
    """(o + 1/2) / scale is far enough from a tie or an integer here for binary64 to decide as the rationals do."""
    chosen = [v for v in VECTORS if v.name in BOTH_DEPART]
    assert len(chosen) == 2
    for vector in chosen:
        parts = vector.onnx_model_parts()
        x, scale = parts.graph_inputs["x"], float(parts.initializers["scales"][2])
        c = (np.arange(parts.output_shape[2]) + 0.5) / scale
        index = np.ceil(c) if vector.name.endswith("1.3_ceil") else np.floor(c + 0.5)
        expected = x[:, :, np.minimum(index, x.shape[2] - 1).astype(int)]
        assert expected_output(vector).tobytes() == expected.tobytes()
