"""Real models as one engine for all sizes: the reference's bits at several, onnxruntime's numbers within tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from compiler_kernels.compile import build_frozen, freeze_model, native_target
from compiler_kernels.engine import load_engine
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.symbols import symbols_of
from compiler_kernels.ir.weights import pack
from compiler_kernels.policy import load_policy
from evidence.reference import load_graph, run

Array = npt.NDArray[Any]
MODELS = Path(__file__).resolve().parents[2].parent / "shared" / "models"
pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="the folder of shared models is not here")

Shapes = Mapping[str, tuple[int, ...]]
# file: (shapes of the policy, [(sizes, shapes of the inputs)], tolerance)
CASES: dict[str, tuple[str, Sequence[tuple[dict[str, int], Shapes]], float]] = {
    "cxr_pneumonia_cnn.onnx": ("N: [1, 8]", [({"N": n}, {"image": (n, 1, 28, 28)}) for n in (1, 3, 8)], 1e-5),
    "cxr_pneumonia_cnn_qdq_int8.onnx": ("N: [1, 4]", [({"N": n}, {"image": (n, 1, 28, 28)}) for n in (1, 4)], 0.05),
    "breast_cancer_rf_onnxml.onnx": ("X_0: [1, 50]", [({"X_0": n}, {"X": (n, 30)}) for n in (1, 17, 50)], 1e-5),
    "magika_v3_3.onnx": ("unk__214: [1, 3]", [({"unk__214": n}, {"bytes": (n, 2048)}) for n in (1, 3)], 1e-4),
    "fundus_vessel_unet.onnx": (
        "N: [1, 2], H: {min: 16, max: 96, multiple: 16}, W: {min: 16, max: 96, multiple: 16}",
        [({"N": n, "H": h, "W": w}, {"rgb": (n, 3, h, w)}) for n, h, w in ((1, 16, 16), (2, 48, 32), (1, 64, 96))],
        1e-4,
    ),
    "brainmaze_seizure_cnn_bilstm.onnx": (
        "batch: [1, 2], time: [1, 40]",
        [({"batch": b, "time": t}, {"x": (b, 100, t)}) for b, t in ((1, 1), (2, 17), (1, 40))],
        1e-4,
    ),
    "openspindlenet_eeg_unet1d.onnx": (
        "batch_size: [1, 2]",
        [({"batch_size": b}, {"raw_signal": (b, 1, 7500), "spectrogram": (b, 15, 7500)}) for b in (1, 2)],
        1e-4,
    ),
    "ppocr_cls_mobilenetv3.onnx": (
        "x_0: [1, 2], x_2: 48, x_3: {min: 32, max: 192, multiple: 32}",
        [({"x_0": b, "x_3": w}, {"x": (b, 3, 48, w)}) for b, w in ((1, 32), (2, 96), (1, 192))],
        1e-4,
    ),
    "ppocr_v4_rec_svtr.onnx": (
        "p2o.DynamicDimension.0: [1, 2], x_2: 48, p2o.DynamicDimension.1: {min: 32, max: 320, multiple: 8}",
        [
            ({"p2o.DynamicDimension.0": b, "p2o.DynamicDimension.1": w}, {"x": (b, 3, 48, w)})
            for b, w in ((1, 32), (2, 72), (1, 320))
        ],
        1e-4,
    ),
    "brainchop_meshnet5_gwm.onnx": (
        "D: [17, 40], H: [17, 40], W: [17, 40]",
        [
            ({"D": d, "H": h, "W": w}, {"t1": (1, 1, d, h, w)})
            for d, h, w in ((17, 20, 33), (24, 24, 24))
        ],
        1e-3,
    ),
}  # fmt: skip
QUICK = ("cxr_pneumonia_cnn.onnx", "breast_cancer_rf_onnxml.onnx", "brainmaze_seizure_cnn_bilstm.onnx")


def given(name: str, shape: tuple[int, ...], seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if name == "bytes":
        return rng.integers(0, 257, shape, np.int32)
    return rng.random(shape, np.float32) * (20 if name == "X" else 1)


def check(file: str, folder: Path) -> None:
    bounds, sizes, tolerance = CASES[file]
    text = f'version: 1\nmodel: {{name: net, version: "1"}}\nshapes: {{{bounds}}}\n'
    frozen = freeze_model(MODELS / file, policy=load_policy(text.encode(), "p.yaml"))
    assert symbols_of(frozen.module.meta)
    (folder / "engine.so").write_bytes(build_frozen(frozen, native_target()))
    engine = load_engine(folder / "engine.so")
    neutral = neutral_json(frozen.module.main, symbols_of(frozen.module.meta))
    weights = pack(frozen.module.main, frozen.store)
    session = onnxruntime.InferenceSession(str(MODELS / file), providers=["CPUExecutionProvider"])
    for number, (values, shapes) in enumerate(sizes):
        feeds = {name: given(name, shape, number) for name, shape in shapes.items()}
        got = engine.run(feeds)
        graph = load_graph(neutral, weights, values)
        bits = run(graph, feeds, "ca1")
        peers = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
        for value_id, output in graph.outputs:
            assert got[output].shape == bits[value_id].shape
            assert got[output].tobytes() == bits[value_id].tobytes(), (output, shapes)
            # A label of the forest turns with the last bit of a probability of one half.
            if got[output].dtype.kind == "f":
                np.testing.assert_allclose(got[output], peers[output], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("file", QUICK)
def test_small_models(file: str, tmp_path: Path) -> None:
    check(file, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(set(CASES) - set(QUICK)))
def test_larger_models(file: str, tmp_path: Path) -> None:
    check(file, tmp_path)
