"""Every vector, built as a one-node ONNX model and run by onnxruntime, to a tolerance: the semantics are ONNX's."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented

from evidence.reference.vector_model import Vector
from evidence.reference.vectors import expected_output, load_vectors
from evidence.vector_engines import onnx_array, onnx_model

# Where onnxruntime leaves the ONNX text, the evaluator of the onnx package is the yardstick instead.
ONNXRUNTIME_DEPARTS = {
    "attention_mask_short": "takes masks of all columns only",
    "attention_grouped_past_causal_mask": "insists on the present key and value as outputs",
    "attention_past_output?": "the same",
    "lstm_special": "its activations turn NaN into numbers",
    "gru_special": "its activations turn NaN into numbers",
    "global_max_pool_signs_and_nan": "drops NaN",
    "Reduce*_special": "drops NaN",
    "resize_nearest_*half_pixel_scale0.6_floor": "rounds the coordinate to binary32 before taking the floor",
    "resize_nearest_asymmetric_scale0.6_floor": "the same",
    "resize_nearest_*half_pixel_scale1.3_round_prefer_floor": "rounds the coordinate before the tie",
    "resize_*_tf_crop_and_resize_same*": "ignores roi on an axis of scale 1",
    "resize_by_nearest_1.3": "rounds the coordinate before the tie",
    "resize_cubic_*_up": "has cubic interpolation of images only, from scale 1 up",
    "resize_cubic_*_down": "the same",
    "resize_cubic_*_one": "the same",
    "resize_cubic_cube": "the same",
    "resize_antialias_cubic_*": "the same",
    "resize_by_cubic_*": "the same",
    "resize_by_antialias": "the same",
    "dft_complex_97": "its transform of a length that is no power of two loses digits, ten times the limit below",
    "dft_onesided_20": "the same",
    "dft_float16": "the same",
    "stft_length": "the same",
    "lstm_float64": "has no kernel, and says so only when run",
    "gru_float64": "the same",
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
# Sums of integers wrap here; onnxruntime and NumPy leave the type. bfloat16 is summed in bfloat16 by the onnx package.
# Both subtract an infinite maximum from itself where the function body of LogSumExp has none.
SUMMED_OTHERWISE = {
    "reduce*_*int*_3x5x2_axes02": "",
    "reducesum_bfloat16_*": "",
    "reducel2_bfloat16_*": "",
    "reducelogsumexp_special*": "",
}
# Half types are rounded once per node here; both round after every step of a body, the onnx package bfloat16 anywhere.
# Neither has a local response normalisation but of images.
STEP_BY_STEP = {
    "*_normalization_bfloat16*": "",
    "*softmax_bfloat16_*": "",
    "attention_*float16": "",
    "lrn_2x5x4_size4": "",
    "lrn_1x4x2x3x2_size9": "",
}
# What ONNX leaves open, held against exact arithmetic in tests/elementwise: casts of numbers beyond an integer type,
# divisions of integers by zero, the random generator; and NaN as the onnx package and onnxruntime drop it, bfloat16
# composites rounded at every step, a bound of Clip that is absent.
LEFT_OPEN = {
    "cast_*float*_to_*int*_edges": "",
    "div_*int*_small": "",
    "mod_*int*": "",
    "random*_*float*": "",
    "bernoulli_*": "",
    "multinomial_*": "",
    "sign_float16": "",
    "gelu_bfloat16_*": "",
    "clip_bfloat16_open": "",
}
# Places outside a tensor, NaN among what is ordered, and what onnxruntime has no kernel for: tests/indexing.
LEFT_OPEN |= {
    "*_outside": "",
    "arg*_special_*": "",
    "unique_special_*": "",
    "max_pool_indices_special_*": "",
    "scatter_elements_*_float16": "",
}
# Neither runs these as they stand; test_reference_vectors_elsewhere.py brings them into a form that one or torch has.
HELD_ELSEWHERE = {
    "resize_cubic_pytorch_half_pixel_one": "onnx takes -1/2 for the only coordinate, the text 0",
    "resize_nearest_bool": "neither has boolean tensors",
    "resize_nearest_int64": "onnxruntime has no such tensors, onnx takes them through binary64",
    "grid_sample_far_*": "onnxruntime turns places beyond its integers to element 0, onnx raises",
    "roi_align_opset10": "onnxruntime refuses an index of -1, onnx takes the coordinates of opset 16",
    "rnn_with_affine": "onnxruntime takes 0 for an alpha that is left out, onnx has no such function",
    "rnn_with_thresholdedrelu": "the same",
    "rnn_with_scaledtanh": "the same, and for beta",
    "gru_functions": "the same",
    "lstm_float64_functions": "onnxruntime has float32 only, onnx the default functions only",
    "lstm_bfloat16": "onnxruntime has float32 only, onnx rounds every step",
}
# The shape inference of the onnx package knows no one-sided STFT with a window and no length.
SHAPE_NOT_CHECKED = {"stft_window": ""}
VECTORS = load_vectors(Path(__file__).parents[2] / "docs" / "vectors" / "ca1.json")


def checked(vector: Vector) -> onnx.ModelProto:
    model = onnx.ModelProto.FromString(onnx_model(vector))
    onnx.checker.check_model(model, full_check=not departs(vector, SHAPE_NOT_CHECKED))
    return model


def run_onnxruntime(vector: Vector) -> np.ndarray:
    """What onnxruntime gives; the onnx package's evaluator where it has no kernel for the element type."""
    given = vector.onnx_model_parts().graph_inputs
    if vector.expected.dtype == "bfloat16" or any(a.dtype.kind == "V" for a in given.values()):
        return run_onnx_reference(vector)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            checked(vector).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except (NotImplemented, InvalidGraph, Fail):
        assert any(i.dtype != "float32" for i in vector.inputs if i.name), vector.name
        return run_onnx_reference(vector)
    return session.run(["y"], dict(given))[0]


def run_onnx_reference(vector: Vector) -> np.ndarray:
    given = {n: onnx_array(a) for n, a in vector.onnx_model_parts().graph_inputs.items()}
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(checked(vector)).run(["y"], given)[0]


def departs(vector: Vector, table: dict[str, str]) -> bool:
    return any(fnmatchcase(vector.name, pattern) for pattern in table)


@pytest.mark.parametrize(
    "vector",
    [
        v
        for v in VECTORS
        if not departs(v, BOTH_DEPART | STEP_BY_STEP | WINOGRAD_DEPARTS | SUMMED_OTHERWISE | LEFT_OPEN | HELD_ELSEWHERE)
    ],
    ids=lambda v: v.name,
)
def test_vector_has_onnx_semantics(vector: Vector) -> None:
    runtime = run_onnx_reference if departs(vector, ONNXRUNTIME_DEPARTS) else run_onnxruntime
    got, theirs = onnx_array(expected_output(vector)), runtime(vector)
    assert got.shape == theirs.shape
    assert got.dtype == theirs.dtype
    if got.dtype.kind not in "fV":
        np.testing.assert_array_equal(got, theirs)
        return
    if got.dtype.itemsize == 2:  # one unit in the last place of a half type
        step = 2.0**-7 if got.dtype != np.float16 else 2.0**-10
        np.testing.assert_allclose(got.astype(np.float64), theirs.astype(np.float64), rtol=step, atol=1e-7)
        return
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


@pytest.mark.parametrize("vector", [v for v in VECTORS if departs(v, SUMMED_OTHERWISE)], ids=lambda v: v.name)
def test_sums_that_other_libraries_make_in_another_type(vector: Vector) -> None:
    """Integers exactly and modulo 2^width, bfloat16 to one unit in the last place of the binary64 sum."""
    parts, kind = vector.onnx_model_parts(), vector.op_type.removeprefix("Reduce")
    x, axes = onnx_array(parts.graph_inputs["x"]), tuple(parts.initializers["axes"].tolist())
    got = onnx_array(expected_output(vector))
    if kind == "LogSumExp":
        with np.errstate(all="ignore"):
            want = np.log(np.sum(np.exp(x.astype(np.longdouble)), axis=axes, keepdims=True))
        np.testing.assert_allclose(got, want.astype(got.dtype), rtol=1e-6)
        return
    if x.dtype.kind not in "iu":
        total = np.sum(x.astype(np.float64) ** (2 if kind == "L2" else 1), axis=axes)
        np.testing.assert_allclose(got.astype(np.float64), np.sqrt(total) if kind == "L2" else total, rtol=2.0**-7)
        return
    values = x.astype(object)
    values = abs(values) if kind == "L1" else values * values if kind == "SumSquare" else values
    if kind in ("Max", "Min"):
        total = (values.max if kind == "Max" else values.min)(axis=axes, keepdims=True)
    else:
        total = (values.prod if kind == "Prod" else values.sum)(axis=axes, keepdims=True)
    width, signed = 8 * x.dtype.itemsize, x.dtype.kind == "i"
    wrapped = [(int(v) + (signed << width - 1)) % (1 << width) - (signed << width - 1) for v in total.reshape(-1)]
    if kind == "Mean":
        wrapped = [abs(v) // 6 * (1 if v >= 0 else -1) for v in wrapped]
    assert got.reshape(-1).tolist() == wrapped
