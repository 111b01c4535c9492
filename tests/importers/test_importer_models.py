"""The real models: each imports and computes what onnxruntime computes, or is refused with the right sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from l0_to_onnx import to_onnx
from test_importer_operators import run

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify

MODELS = Path(__file__).parents[3] / "shared" / "models"
COMPILED: dict[str, dict[str, tuple[int, ...]]] = {
    "cxr_pneumonia_cnn": {"image": (2, 1, 28, 28)},
    "fundus_vessel_unet": {"rgb": (1, 3, 64, 96)},
    "brainchop_meshnet5_gwm": {"t1": (1, 1, 16, 16, 16)},
    "openspindlenet_eeg_unet1d": {"raw_signal": (1, 1, 7500)},
    "ppocr_cls_mobilenetv3": {"x": (1, 3, 48, 192)},
    "ppocr_v4_rec_svtr": {"x": (1, 3, 48, 96)},
}
REFUSED: dict[str, tuple[dict[str, tuple[int, ...]], str]] = {
    "cxr_pneumonia_cnn_qdq_int8": ({"image": (1, 1, 28, 28)}, r"\(DequantizeLinear, domain ai.onnx, opset 17\)"),
    "breast_cancer_rf_onnxml": ({"X": (1, 30)}, r"\(TreeEnsembleClassifier, domain ai.onnx.ml, opset 1\)"),
    "magika_v3_3": ({"bytes": (1, 2048)}, "input 'bytes' is int32"),
    "silero_vad_if_lstm": ({"input": (1, 512), "state": (2, 1, 128)}, "input 'sr' is int64"),
    "synthetic_loop_if": ({"x": (1, 1, 8, 8)}, "input 'n' is int64"),
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


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    pins, sentence = REFUSED[name]
    with pytest.raises(UnsupportedError, match=sentence):
        import_onnx(read(name), filename=f"{name}.onnx", pins=pins)


@pytest.mark.parametrize("name", [*COMPILED, "magika_v3_3", "silero_vad_if_lstm", "breast_cancer_rf_onnxml"])
def test_unpinned(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"input '\w+' is \w+\[.*add --input-shape \w+="):
        import_onnx(read(name), filename=f"{name}.onnx")
