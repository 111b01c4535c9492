"""Quantised models: exact integers, the same bits on every processor, onnxruntime's values without its fusions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.compile import compile_model, freeze_model
from compiler_kernels.engine import load_engine
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import WeightStore, pack
from compiler_kernels.targets.registry import resolve_target, runner
from evidence.equivalence import EngineRunner
from evidence.reference import load_graph, run
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefNode
from evidence.reference.quantized import conv_integer, quantize

onnxruntime = pytest.importorskip("onnxruntime")
Array = npt.NDArray[Any]
MODEL = Path(__file__).resolve().parents[3] / "shared" / "models" / "cxr_pneumonia_cnn_qdq_int8.onnx"
needs_model = pytest.mark.skipif(not MODEL.is_file(), reason="the shared models are not beside this checkout")


def qdq_conv(bias_scale: float, weight_zero: int = 0, huge: bool = False) -> bytes:
    """x uint8 -> DQ -> Conv(3x3, per-channel int8 weights, int32 bias) -> Relu -> Q."""
    rng = np.random.default_rng(5)
    sw = np.array([0.02, 0.05, 0.01, 0.03], np.float32)
    sx = np.float32(0.1)
    constants = {
        "sx": np.asarray(sx), "zx": np.array(131, np.uint8), "sw": sw, "zw": np.full(4, weight_zero, np.int8),
        "w": rng.integers(-128, 128, (4, 3, 3, 3), dtype=np.int8),
        "b": rng.integers(-9000, 9000, 4, dtype=np.int32) if not huge else np.full(4, 2**31 - 5, np.int32),
        "sb": (np.asarray(sx * sw, np.float32) * np.float32(bias_scale)).astype(np.float32),
        "sy": np.array(0.07, np.float32), "zy": np.array(3, np.uint8),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wf"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "sb"], ["bf"], axis=0),
        helper.make_node("Conv", ["xf", "wf", "bf"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "sy", "zy"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "qdq",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 3, 9, 7))],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, (1, 4, 5, 7))],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()
    )


def kinds(data: bytes) -> set[str]:
    return {op.kind for op in freeze_model(data).module.main.ops}


def test_the_integer_form_is_chosen_only_where_it_is_defined() -> None:
    assert "conv_integer" in kinds(qdq_conv(1.0))
    assert "conv_integer" in kinds(qdq_conv(1.0, weight_zero=7))
    assert "conv" in kinds(qdq_conv(1.0000001)), "a bias of another scale keeps the convolution in float"
    assert "conv" in kinds(qdq_conv(1.0, huge=True)), "a sum that could wrap keeps the convolution in float"


def test_engine_reference_and_onnxruntime_agree() -> None:
    for weight_zero in (0, 7):
        data = qdq_conv(1.0, weight_zero)
        frozen = freeze_model(data)
        graph = load_graph(neutral_json(frozen.module.main), pack(frozen.module.main, frozen.store))
        engine = load_engine(compile_model(data))
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        for seed in range(8):
            x = np.random.default_rng(seed).integers(0, 256, (1, 3, 9, 7), dtype=np.uint8)
            got = engine.run({"x": x})["y"]
            assert got.tobytes() == run(graph, {"x": x}, "ca1")[graph.outputs[0][0]].tobytes()
            wanted = session.run(None, {"x": x})[0].astype(int)
            assert np.abs(got.astype(int) - wanted).max() <= 1  # its requantisation multiplies by sx * sw / sy


@needs_model
def test_the_chest_model_is_integer_and_equals_onnxruntime_without_fusions() -> None:
    data = MODEL.read_bytes()
    shapes = {"image": (1, 1, 28, 28)}
    found = [op.kind for op in freeze_model(data, shapes).module.main.ops]
    assert found.count("conv_integer") == 6 and found.count("matmul_integer") == 1 and "conv" not in found
    engine = load_engine(compile_model(data, input_shapes=shapes))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    for _ in range(20):
        x = rng.random((1, 1, 28, 28), dtype=np.float32) * np.float32(rng.random())
        np.testing.assert_array_equal(engine.run({"image": x})["prob"], session.run(None, {"image": x})[0])


@needs_model
def test_the_chest_model_has_the_references_bits_on_aarch64(tmp_path: Path) -> None:
    target = resolve_target("aarch64-linux-musl")
    prefix = runner(target)
    if prefix is None:
        pytest.skip("qemu-aarch64 is not installed")
    shapes = {"image": (1, 1, 28, 28)}
    engine = compile_model(MODEL, input_shapes=shapes, target=target.triple, kind="bin", output=tmp_path / "engine")
    frozen = freeze_model(MODEL, shapes)
    graph = load_graph(neutral_json(frozen.module.main), pack(frozen.module.main, frozen.store))
    x = np.random.default_rng(2).random((1, 1, 28, 28), dtype=np.float32)
    got = EngineRunner(engine.read_bytes(), prefix, tmp_path).run({"image": x})["prob"]
    assert got.tobytes() == run(graph, {"image": x}, "ca1")[graph.outputs[0][0]].tobytes()
    described = subprocess.run([*prefix, str(engine), "--version", "--json"], capture_output=True, check=True)
    assert json.loads(described.stdout)["inputs"][0]["dtype"] == "float32"


def test_equal_bytes_of_two_types_are_two_constants() -> None:
    store = WeightStore()
    wide, narrow = store.weight("a", np.zeros(4, np.int32)), store.weight("b", np.zeros(16, np.int8))
    assert store.get(wide).dtype == np.int32 and store.get(narrow).shape == (16,)


@given(st.floats(width=32), st.floats(2.0**-20, 2.0**20, width=32), st.integers(-128, 127))
@settings(max_examples=300, deadline=None)
def test_quantize_is_what_the_text_says(x: float, scale: float, zero: int) -> None:
    node = RefNode("quantize", ("x", "s", "z"), "y", (), "int8", {"to": "int8"})
    with np.errstate(all="ignore"):
        got = int(
            quantize(
                ARITHMETICS["ca1"], node, *(np.asarray(v) for v in (np.float32(x), np.float32(scale), np.int8(zero)))
            )
        )
        quotient = np.float32(np.float32(x) / np.float32(scale))
    if np.isnan(quotient):
        assert got == 0
    elif np.isinf(quotient):
        assert got == (127 if quotient > 0 else -128)
    else:
        assert got == max(-128, min(127, round(float(quotient)) + zero))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_integer_convolution_is_exact_modulo_two_to_the_32(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group, k, s, d, p = (int(rng.integers(1, 4)) for _ in range(5))
    x = rng.integers(-(2**15), 2**15, (2, 2 * group, 9), dtype=np.int16)
    w = rng.integers(-(2**15), 2**15, (3 * group, 2, k), dtype=np.int16)
    out = (9 + 2 * p - (k - 1) * d - 1) // s + 1
    attrs = {"group": group, "strides": [s], "dilations": [d], "pads": [p, p]}
    node = RefNode("conv_integer", ("x", "w"), "y", (2, 3 * group, out), "int32", attrs)
    got = conv_integer(ARITHMETICS["ca1"], node, x, w)
    for n, m, o in np.ndindex(2, 3 * group, out):
        total = 0
        for c in range(2):
            for t in range(k):
                at = o * s - p + t * d
                total += int(x[n, (m // 3) * 2 + c, at]) * int(w[m, c, t]) if 0 <= at < 9 else 0
        assert int(got[n, m, o]) == (total + 2**31) % 2**32 - 2**31
