"""Transforms, windows, mel weights, determinants, n-grams: tables, refusals, sizes known at run time."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler_kernels.arithmetic.fourier import circle
from compiler_kernels.compile import compile_model
from compiler_kernels.engine import load_engine
from compiler_kernels.errors import CuvilError, RefusedError, UnsupportedError, UsageError
from compiler_kernels.importers.onnx_importer import import_onnx

TYPES = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("int64"): TensorProto.INT64}


def model(
    op: str,
    inputs: dict[str, Any],
    constants: dict[str, Any],
    result: tuple[int, ...] | None,
    opset: int = 20,
    operands: tuple[str, ...] = (),
    **attributes: Any,
) -> bytes:
    """One node; ``inputs`` are arrays whose shapes count, ``operands`` their order where it is another."""
    node = helper.make_node(op, list(operands or (*inputs, *constants)), ["y"], name="node", **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(n, TYPES[np.asarray(a).dtype], np.shape(a)) for n, a in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return bytes(made.SerializeToString())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 600), st.booleans(), st.sampled_from(["float32", "float64"]), st.data())
def test_the_table_is_correctly_rounded(turn: int, divided: bool, dtype: str, data: st.DataObject) -> None:
    part = data.draw(st.integers(0, turn - 1))
    divisor = turn if divided else 1
    found = circle(turn, divisor, dtype)
    for values, function in zip(found, (mpmath.cospi, mpmath.sinpi), strict=True):
        with mpmath.workprec(300):
            exact = function(mpmath.mpf(2 * part) / turn) / divisor
        with mpmath.workprec(24 if dtype == "float32" else 53):
            assert values[part] == float(+exact)


def test_a_table_depends_on_no_cosine_of_the_machine() -> None:
    """Exact values where they are exact, and symmetry to the last bit."""
    cos, sin = circle(24, 1, "float64")
    assert cos[[0, 6, 12, 18]].tolist() == [1, 0, -1, 0] and sin[[0, 6, 12, 18]].tolist() == [0, 1, 0, -1]
    assert cos[[4, 8, 16]].tolist() == [0.5, -0.5, -0.5]
    assert np.array_equal(cos[1:], cos[:0:-1]) and np.array_equal(sin[1:], -sin[:0:-1])


x = np.zeros((1, 8, 2), np.float32)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (model("DFT", {"x": x}, {}, None, onesided=1), UsageError, "one side"),
        (model("DFT", {"x": x[..., :1]}, {}, None, onesided=1, inverse=1), UsageError, "without imaginary"),
        (model("DFT", {"x": np.zeros((1, 8, 3), np.float32)}, {}, None), UsageError, "1 or 2"),
        (model("DFT", {"x": x}, {"n": np.int64(0)}, None), UsageError, "transforms 0 points"),
        (model("DFT", {"x": np.zeros((1, 9000, 1), np.float32)}, {}, None), UnsupportedError, "shorter frames"),
        (model("DFT", {"x": x}, {"n": np.int64(8), "a": np.int64(2)}, None), UsageError, "last axis"),
        (model("DFT", {"x": x, "n": np.int64(8)}, {}, None), UnsupportedError, "does not determine"),
        (model("STFT", {"x": x}, {"s": np.int64(0), "w": np.ones(4, np.float32)}, None), UsageError, "steps of 0"),
        (model("STFT", {"x": x}, {"s": np.int64(1), "w": np.ones(9, np.float32)}, None), UsageError, "frames of 9"),
        (model("Det", {"x": np.zeros((2, 3), np.float32)}, {}, None), UsageError, "square"),
        (model("Det", {"x": np.zeros((65, 65), np.float32)}, {}, None), UnsupportedError, "at most 64"),
    ],
)
def test_refusals(data: bytes, error: type[CuvilError], words: str) -> None:
    with pytest.raises(error, match=words):
        import_onnx(data, filename="m.onnx")


GRAMS: dict[str, Any] = {
    "mode": "TFIDF", "pool_int64s": [1, 2, 1, 3], "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2],
    "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weights": [1.0]}, "1 weights for 3 grams"),
        ({"weights": [1.0] * 3, "ngram_indexes": [0, 1, 1]}, "several grams of one column"),
        ({"ngram_counts": [0, 3]}, "elements of 2-grams"),
        ({"ngram_counts": [3, 2]}, "of a pool of 4"),
        ({"mode": "TTF"}, "mode 'TTF'"),
        ({"min_gram_length": 3}, "grams of 3 to 2"),
        ({"pool_strings": ["a"]}, "strings"),
    ],
)
def test_contradicting_grams(change: dict[str, Any], words: str) -> None:
    data = model("TfIdfVectorizer", {"x": np.zeros(5, np.int64)}, {}, None, 9, **{**GRAMS, **change})
    with pytest.raises((UsageError, UnsupportedError), match=words):
        import_onnx(data, filename="m.onnx")


@pytest.mark.parametrize("bins", [(8, 16, 8192, 0.0, 4096.0), (40, 400, 16000, 20.0, 7600.0), (3, 64, 100, 0.0, 50.0)])
def test_mel_weights(bins: tuple[int, int, int, float, float]) -> None:
    kinds = (np.int64, np.int64, np.int64, np.float32, np.float32)
    constants = {f"c{n}": kind(v) for n, (v, kind) in enumerate(zip(bins, kinds, strict=True))}
    data = model("MelWeightMatrix", {}, constants, (bins[1] // 2 + 1, bins[0]))
    module, store = import_onnx(data, filename="m.onnx")
    (weight,) = module.main.weights
    wanted = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {})[0]
    np.testing.assert_allclose(store.get(weight), wanted, rtol=1e-6, atol=0)


def test_mel_weights_beyond_half_the_sample_rate() -> None:
    constants: dict[str, Any] = {"n": np.int64(8), "length": np.int64(16), "rate": np.int64(100)}
    constants |= {"low": np.float32(0), "high": np.float32(90)}
    with pytest.raises(UsageError, match="half the sample rate"):
        import_onnx(model("MelWeightMatrix", {}, constants, None), filename="m.onnx")


def test_sizes_known_at_run_time() -> None:
    """A window and a transform are compiled for the declared size; the engine refuses another."""
    window = load_engine(compile_model(model("HannWindow", {"n": np.int64(10)}, {}, (10,))))
    found = window.run({"n": np.array(10)})["y"]
    np.testing.assert_allclose(found, np.hanning(11)[:10], atol=1e-6)
    with pytest.raises(RefusedError, match="takes \\[10\\]"):
        window.run({"n": np.array(12)})
    shape = (2, 6, 2)
    data = model("DFT", {"x": np.zeros((2, 4, 2), np.float32), "n": np.int64(6)}, {}, shape)
    engine = load_engine(compile_model(data))
    rng = np.random.default_rng(0)
    value = rng.standard_normal((2, 4, 2)).astype(np.float32)
    wanted = ReferenceEvaluator(data).run(None, {"x": value, "n": np.array(6)})[0]
    np.testing.assert_allclose(engine.run({"x": value, "n": np.array(6)})["y"], wanted, atol=1e-5)
    with pytest.raises(RefusedError, match="length"):
        engine.run({"x": value, "n": np.array(5)})
