"""Scripts written for onnxruntime run on Cuvil engines with one changed import line, and compute the same."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from door_models import SHARED, two_branches
from tiny_models import tiny_model_bytes

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: nothing to compare with")

SCRIPTS = Path(__file__).with_name("scripts")
IMPORTS = {
    "import onnxruntime as ort": "import cuvil as ort",
    "import onnxruntime": "import cuvil as onnxruntime",
    "from onnxruntime import InferenceSession, RunOptions": "from cuvil import InferenceSession, RunOptions",
}


def changed(source: str) -> str:
    """``source`` with its one import of onnxruntime changed; every other line stays as it is."""
    lines = source.splitlines()
    found = [number for number, line in enumerate(lines) if line in IMPORTS]
    assert len(found) == 1 and "cuvil" not in source
    lines[found[0]] = IMPORTS[lines[found[0]]]
    return "\n".join(lines)


def results(source: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray[Any, Any]]:
    monkeypatch.setattr(sys, "argv", ["script", str(model)])
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, str(model), "exec"), names)
    found: list[np.ndarray[Any, Any]] = names["results"]
    return found


@pytest.mark.parametrize(
    ("script", "model"),
    [
        ("classify_image.py", "tiny"),
        ("classify_image.py", "cxr_pneumonia_cnn.onnx"),
        ("feed_dict.py", "branches"),
        ("wrapper_class.py", "tiny"),
        ("wrapper_class.py", "cxr_pneumonia_cnn.onnx"),
    ],
)
def test_a_script_runs_unchanged_but_for_its_import(
    script: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = SHARED / model
    if not path.suffix:
        path = tmp_path / "model.onnx"
        path.write_bytes(tiny_model_bytes() if model == "tiny" else two_branches())
    elif not path.exists():
        pytest.skip(f"the shared model {model} is not beside this checkout")
    source = (SCRIPTS / script).read_text()
    ours = results(changed(source), path, monkeypatch)
    theirs = results(source, path, monkeypatch)
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "breast_cancer_rf_onnxml.onnx": {},
    "magika_v3_3.onnx": {},
    "silero_vad_if_lstm.onnx": {"input": (1, 512), "state": (2, 1, 128), "sr": ()},
    "brainmaze_seizure_cnn_bilstm.onnx": {},
    "brainchop_meshnet5_gwm.onnx": {"t1": (1, 1, 16, 16, 16)},
    "openspindlenet_eeg_unet1d.onnx": {},
    "ppocr_v4_rec_svtr.onnx": {"x": (1, 3, 48, 64)},
}
QUICK = ("breast_cancer_rf_onnxml.onnx",)


@pytest.mark.parametrize("model", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in SHAPES])
def test_real_models_of_all_types_in_one_session_each(model: str) -> None:
    """Integers, scalars, recurrent networks, trees: same signature, same types, same results."""
    import onnxruntime

    import cuvil

    path = SHARED / model
    if not path.exists():
        pytest.skip(f"the shared model {model} is not beside this checkout")
    theirs, ours = onnxruntime.InferenceSession(path), cuvil.InferenceSession(path)
    described = [[(a.name, a.type, a.shape) for a in (*s.get_inputs(), *s.get_outputs())] for s in (ours, theirs)]
    assert described[0] == described[1]
    rng, feed = np.random.default_rng(0), {}
    for item in theirs.get_inputs():
        given = SHAPES[model].get(item.name)
        shape = (
            given
            if given is not None
            else [d if isinstance(d, int) else (64 if i else 2) for i, d in enumerate(item.shape)]
        )
        kind = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}[item.type]
        feed[item.name] = (
            rng.random(shape) if kind is np.float32 else np.full(shape, 16000 if item.name == "sr" else 5)
        ).astype(kind)
    for mine, other in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=2e-5)
