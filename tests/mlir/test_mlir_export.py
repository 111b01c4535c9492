"""The MLIR export: both other parsers accept it, it says what it should, and run, it computes what ONNX means."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from mlir_tools import ABSENT, CASES, OPT, RUNNER, mlir_opt, one_op, parse_with_xdsl, run_with_mlir, weights
from onnx.reference import ReferenceEvaluator

from compiler_kernels.compile import Frozen, freeze_model
from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.targets.mlir.export import mlir_text
from compiler_kernels.targets.mlir.writer import float_text

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "cuvil_assets" / "data" / "fundus_vessel_unet.onnx"
SHARED = ROOT.parent / "shared" / "models"
needs_opt = pytest.mark.skipif(OPT is None, reason=ABSENT)


def exported(model: bytes | Path, shapes: dict[str, tuple[int, ...]] | None = None, inline: int = 1 << 30) -> str:
    frozen = freeze_model(model, shapes)
    return mlir_text(frozen.module, frozen.store, "x86_64-linux-musl", inline)


def demo() -> Frozen:
    return freeze_model(DEMO, {"rgb": (1, 3, 64, 64)})


@pytest.mark.parametrize("case", CASES)
def test_xdsl_reads_every_operation(case: str) -> None:
    text = exported(CASES[case])
    assert "func.call" not in text
    parse_with_xdsl(text)


@needs_opt
def test_mlir_reads_every_operation() -> None:
    """One text with all functions, so that the tool starts once; a wrong one is named by its line."""
    parts = []
    for number, model in enumerate(CASES.values()):
        lines = exported(model).replace("@main(", f"@case{number}(").splitlines()
        parts += lines[1:-1]
    printed = mlir_opt("module {\n" + "\n".join(parts) + "\n}\n")
    assert printed.count("func.func @case") == len(CASES)


def test_demo_model_and_its_attributes() -> None:
    frozen = demo()
    text = mlir_text(frozen.module, frozen.store, "x86_64-linux-musl")
    module = parse_with_xdsl(text)
    assert module.attributes["cuvil.target"].data == "x86_64-linux-musl"
    assert module.attributes["cuvil.level"].data == "frozen"
    nodes = set(re.findall(r'cuvil\.node = "([^"]*)"', text))
    assert nodes == {op.node for op in frozen.module.main.ops}
    tiles = re.findall(r"cuvil\.tile = array<i64: ([^>]*)>", text)
    convolutions = sum(op.kind == "conv" for op in frozen.module.main.ops)
    # n, outputs, height, width; channels of one leaf, kernel: two blocks of 16 outputs and what AVX-512 has room for.
    assert sum(tile.startswith("0, 32, 0, 14, ") for tile in tiles) >= convolutions > 5
    refs = set(re.findall(r'cuvil\.ref = "([^"]*)"', text))
    assert refs == {w.ref for w in frozen.module.main.weights if w.type.count > 256}
    other = mlir_text(frozen.module, frozen.store, "aarch64-linux-musl")
    assert 'cuvil.target = "aarch64-linux-musl"' in other
    assert re.findall(r"cuvil\.tile = array<i64: ([^>]*)>", other) != tiles


@needs_opt
def test_mlir_reads_the_demo_model() -> None:
    frozen = demo()
    text = mlir_text(frozen.module, frozen.store, "x86_64-linux-musl")
    printed = mlir_opt(text)
    assert printed.count("cuvil.tile") == text.count("cuvil.tile")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of real models is not beside this checkout")
def test_both_read_the_chest_x_ray_model() -> None:
    text = exported(SHARED / "cxr_pneumonia_cnn.onnx", {"image": (1, 1, 28, 28)}, 256)
    parse_with_xdsl(text)
    if OPT is not None:
        mlir_opt(text)


def recurrent() -> bytes:
    hidden, size = 3, 4
    constants = [weights(1, 4 * hidden, size), weights(1, 4 * hidden, hidden)]
    return one_op("LSTM", [(5, 1, size)], constants, hidden_size=hidden)


def test_what_has_no_linalg_form_is_a_declared_function() -> None:
    text = exported(recurrent())
    declared = re.findall(r"func\.func private (@\w+)", text)
    assert declared == ["@cuvil_lstm"]
    assert re.search(r"func\.call @cuvil_lstm\(.*cuvil\.attributes = \{.*reverse = false", text)
    parse_with_xdsl(text)
    if OPT is not None:
        mlir_opt(text)


def test_names_are_escaped() -> None:
    model = onnx.load_from_string(one_op("Relu", [(2, 3)]))
    model.graph.node[0].name = 'a "b" \\ é\n'
    frozen = freeze_model(model.SerializeToString())
    text = mlir_text(frozen.module, frozen.store)
    assert r'cuvil.node = "a \22b\22 \5C \C3\A9\0A"' in text
    assert "cuvil.target" not in text
    parse_with_xdsl(text)
    if OPT is not None:
        mlir_opt(text)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, 3.4028235e38, 0.1, 1e10, 1.5e-7, float("inf"), float("nan")])
def test_floats_read_back(value: float) -> None:
    text = float_text(value)
    read = np.uint32(int(text, 16)).view(np.float32) if text.startswith("0x") else np.float32(text)
    assert read.tobytes() == np.float32(value).tobytes()
    assert text.startswith("0x") or re.fullmatch(r"-?\d+\.\d*(e[+-]?\d+)?", text)


def test_refusals() -> None:
    frozen = freeze_model(one_op("Relu", [(2, 3)]))
    with pytest.raises(UnsupportedError, match="takes the level l0 or frozen, not l2"):
        mlir_text(lower_to_l2(frozen.module, frozen.store), frozen.store)
    open_ = parse_module("graph (%x: float32[?, 3]) {\n %y = op.relu(%x) : float32[?, 3]\n return %y\n}")
    with pytest.raises(UnsupportedError, match=r"input %x has the type float32\['\?', '3'\]"):
        mlir_text(open_, WeightStore())


def meant(case: str, model: onnx.ModelProto) -> Any:
    """onnx.reference, or onnxruntime for the operator of which onnx.reference cannot do groups."""
    if case.startswith("conv_transpose"):
        return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return ReferenceEvaluator(model)


@pytest.mark.slow
@pytest.mark.skipif(OPT is None or RUNNER is None or shutil.which("cc") is None, reason=ABSENT + " or no cc")
@pytest.mark.parametrize("case", CASES)
def test_run_by_mlir_it_computes_what_onnx_means(case: str, tmp_path: Path) -> None:
    model = onnx.load_from_string(CASES[case])
    rng = np.random.default_rng(11)
    inputs = {}
    for value in model.graph.input:
        shape = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        array = rng.standard_normal(shape).astype(np.float32)
        inputs[value.name] = np.abs(array) if case in ("sqrt", "log") else array
    expected = np.asarray(meant(case, model).run(None, inputs)[0])
    found = run_with_mlir(exported(CASES[case]), list(inputs.values()), expected.shape, tmp_path)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5), np.abs(found - expected).max()


@pytest.mark.slow
@pytest.mark.skipif(OPT is None or RUNNER is None or shutil.which("cc") is None, reason=ABSENT + " or no cc")
def test_the_chest_x_ray_model_run_by_mlir(tmp_path: Path) -> None:
    path = SHARED / "cxr_pneumonia_cnn.onnx"
    if not path.is_file():
        pytest.skip("the folder of real models is not beside this checkout")
    x = np.random.default_rng(3).random((1, 1, 28, 28)).astype(np.float32)
    (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {"image": x})
    found = run_with_mlir(exported(path, {"image": x.shape}), [x], expected.shape, tmp_path)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(OPT is None or RUNNER is None or shutil.which("cc") is None, reason=ABSENT + " or no cc")
def test_the_demo_model_run_by_mlir(tmp_path: Path) -> None:
    x = np.random.default_rng(4).random((1, 3, 32, 32)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(DEMO, providers=["CPUExecutionProvider"]).run(None, {"rgb": x})
    text = exported(DEMO, {"rgb": x.shape})
    assert "func.call" not in text
    found = run_with_mlir(text, [x], expected.shape, tmp_path)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)
