"""Keras files and SavedModels through tf2onnx; slow, and skipped where no interpreter has tensorflow."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import cuvil
from compiler_kernels.doors import convert, is_door
from compiler_kernels.doors.tensorflow_door import PYTHON_VARIABLE, archive
from compiler_kernels.errors import UsageError
from compiler_kernels.stage import sha3_512_hex

MAKE = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np
keras.utils.set_random_seed(1)
layers, folder = keras.layers, sys.argv[1]
image = keras.Input((16, 16, 1), name="image")
x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(image)))
y = layers.Conv2D(8, 3, padding="same", activation="relu")(layers.MaxPooling2D()(x))
x = layers.Concatenate()([x, layers.UpSampling2D()(y)])
model = keras.Model(image, layers.Conv2D(2, 1, activation="softmax", name="prob")(x))
model.save(folder + "/net.keras"); model.save(folder + "/net.h5"); model.export(folder + "/saved", verbose=False)
value = np.random.default_rng(0).random((2, 16, 16, 1), dtype=np.float32)
np.save(folder + "/x.npy", value); np.save(folder + "/y.npy", model(value).numpy())
"""


@lru_cache(maxsize=1)
def interpreter() -> str | None:
    python = os.environ.get(PYTHON_VARIABLE) or sys.executable
    found = subprocess.run(
        [python, "-c", "import tensorflow, tf2onnx, keras"], capture_output=True, check=False, env={"PATH": os.defpath}
    )
    return python if found.returncode == 0 else None


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python = interpreter()
    if python is None:
        pytest.skip(
            f"tensorflow and tf2onnx are not installed here, nor in an interpreter that {PYTHON_VARIABLE} names"
        )
    folder = tmp_path_factory.mktemp("keras")
    subprocess.run([python, "-c", MAKE, str(folder)], check=True, capture_output=True, env={"PATH": os.defpath})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["net.keras", "net.h5", "saved"])
def test_models_match_keras_and_convert_to_the_same_bytes(models: Path, name: str) -> None:
    converted = convert(str(models / name))
    assert converted.model == convert(str(models / name)).model
    session = cuvil.InferenceSession(converted.model)
    assert session.get_inputs()[0].name == "image"
    assert [o.name for o in session.get_outputs()] == (["output_0"] if name == "saved" else ["prob"])
    found = session.run(None, {"image": np.load(models / "x.npy")})[0]
    np.testing.assert_allclose(found, np.load(models / "y.npy"), rtol=1e-4, atol=1e-6)
    exporter = converted.facts["exporter"]
    assert isinstance(exporter, dict) and {"tf2onnx", "keras", "onnx"} <= set(exporter)
    source = archive(models / name) if name == "saved" else (models / name).read_bytes()
    assert converted.facts["source_sha3_512"] == sha3_512_hex(source) and converted.source == source


@pytest.mark.slow
def test_shapes_and_files_that_do_not_fit_get_a_sentence(models: Path, tmp_path: Path) -> None:
    pinned = cuvil.InferenceSession(convert(str(models / "net.keras"), {"image": (1, 16, 16, 1)}).model)
    assert pinned.get_inputs()[0].shape == [1, 16, 16, 1]
    with pytest.raises(UsageError, match=r"a shape is given for 'picture', but the inputs are image"):
        convert(str(models / "net.keras"), {"picture": (1,)})
    (tmp_path / "text.keras").write_text("no model")
    with pytest.raises(UsageError, match=r"text\.keras: is not a model that keras .* can load"):
        convert(str(tmp_path / "text.keras"))


def test_an_interpreter_without_tensorflow_or_that_does_not_exist_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.keras").write_text("anything")
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "no-python"))
    with pytest.raises(UsageError, match=r"no-python: cannot be started .*; give a Python interpreter"):
        convert(str(tmp_path / "net.keras"))
    fake = tmp_path / "bare-python"
    fake.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv(PYTHON_VARIABLE, str(fake))
    with pytest.raises(UsageError, match=r"is not installed in .*: run pip install 'cuvil\[tensorflow\]', or name"):
        convert(str(tmp_path / "net.keras"))


def test_folders_are_archived_by_name_and_content_only(tmp_path: Path) -> None:
    for folder, order in (("a", ("x", "y")), ("b", ("y", "x"))):
        for name in order:
            path = tmp_path / folder / "variables" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        (tmp_path / folder / "saved_model.pb").write_text("pb")
    assert is_door(str(tmp_path / "a")) and not is_door(str(tmp_path))
    assert archive(tmp_path / "a") == archive(tmp_path / "b")
    (tmp_path / "b" / "variables" / "x").write_text("z")
    assert archive(tmp_path / "a") != archive(tmp_path / "b")
