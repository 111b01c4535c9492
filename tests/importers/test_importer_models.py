"""The real models: each imports and computes what onnxruntime computes, or is refused with a sentence saying why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from l0_to_onnx import to_onnx
from test_importer_operators import run

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import pack
from evidence.reference import load_graph
from evidence.reference import run as evaluate

MODELS = Path(__file__).parents[3] / "shared" / "models"
COMPILED: dict[str, dict[str, tuple[int, ...]]] = {
    "cxr_pneumonia_cnn": {"image": (2, 1, 28, 28)},
    "fundus_vessel_unet": {"rgb": (1, 3, 64, 96)},
    "brainchop_meshnet5_gwm": {"t1": (1, 1, 16, 16, 16)},
    "openspindlenet_eeg_unet1d": {"raw_signal": (1, 1, 7500)},
    "ppocr_cls_mobilenetv3": {"x": (1, 3, 48, 192)},
    "ppocr_v4_rec_svtr": {"x": (1, 3, 48, 96)},
}
# Element types, integers, trees, control flow: the way back to ONNX writes none of them, the reference computes them.
REFERENCED: dict[str, tuple[dict[str, tuple[int, ...]], float]] = {
    "cxr_pneumonia_cnn_qdq_int8": ({"image": (1, 1, 28, 28)}, 1 / 255),  # onnxruntime requantises one step apart
    "breast_cancer_rf_onnxml": ({"X": (1, 30)}, 1e-6),
    "silero_vad_if_lstm": ({"input": (1, 512), "state": (2, 1, 128)}, 1e-6),
}


def read(name: str) -> bytes:
    path = MODELS / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"the model collection with {path.name} is not beside this checkout")
    return path.read_bytes()


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    data = read(name)
    module, store = import_onnx(data, filename=f"{name}.onnx", pins=COMPILED[name])
    verify(module)
    assert parse_module(print_module(module)) == module
    rng = np.random.default_rng(3)
    feeds = [rng.uniform(0, 1, v.type.dims).astype(np.float32) for v in module.main.inputs]
    for ours, theirs in zip(run(to_onnx(module, store), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6 * float(np.abs(theirs).max()))


def test_recurrent_model_imports() -> None:
    """Its arithmetic is compared in tests of the recurrent operators: the way back to ONNX does not write them."""
    module, _ = import_onnx(read("brainmaze_seizure_cnn_bilstm"), filename="b.onnx", pins={"x": (1, 100, 32)})
    verify(module)
    assert parse_module(print_module(module)) == module
    assert sum(op.kind == "lstm" for op in module.main.ops) == 4


@pytest.mark.parametrize("name", REFERENCED)
def test_reference_of_import(name: str) -> None:
    pins, tolerance = REFERENCED[name]
    data = read(name)
    module, store = import_onnx(data, filename=f"{name}.onnx", pins=pins)
    assert parse_module(print_module(module)) == module
    rng = np.random.default_rng(4)
    feeds = {
        v.name: rng.uniform(0, 1, v.type.dims).astype(np.float32)
        if v.type.dtype == "float32"
        else np.full(v.type.dims, 16000, v.type.dtype)
        for v in module.main.inputs
    }
    graph = load_graph(neutral_json(module.main), pack(module.main, store))
    found = evaluate(graph, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    theirs = session.run([n for _, n in graph.outputs], feeds)
    for (value, _), other in zip(graph.outputs, theirs, strict=True):
        assert found[value].dtype == other.dtype
        np.testing.assert_allclose(found[value], other, rtol=1e-5, atol=1.01 * tolerance)


def test_integer_input_imports() -> None:
    """Its arithmetic takes seconds in the reference."""
    module, _ = import_onnx(read("magika_v3_3"), filename="m.onnx", pins={"bytes": (1, 2048)})
    assert [v.type.dtype for v in module.main.inputs] == ["int32"]
    assert parse_module(print_module(module)) == module


def test_unbounded_loop_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"'/Loop' \(Loop, domain ai.onnx, opset 17\) runs a number of iterations"
    ):
        import_onnx(read("synthetic_loop_if"), filename="l.onnx", pins={"x": (1, 1, 8, 8)})


@pytest.mark.parametrize("name", [*COMPILED, "magika_v3_3", "silero_vad_if_lstm", "breast_cancer_rf_onnxml"])
def test_unpinned(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"input '\w+' is \w+\[.*add --input-shape \w+="):
        import_onnx(read(name), filename=f"{name}.onnx")
