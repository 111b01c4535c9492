"""The real models beside the checkout: how each is built, inputs such as it meets, and how near onnxruntime must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class RealModel:
    """``shapes`` and ``policy`` (lines of YAML) are what its user gives; ``limit`` is the largest difference from
    onnxruntime, relative to the largest value of an output."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    feeds: Callable[[], list[Feeds]]
    policy: str = ""
    limit: float = 2e-6
    absolute: Mapping[str, float] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        path = SHARED / "models" / f"{self.name}.onnx"
        if not path.is_file():
            pytest.skip(f"the model collection with {path.name} is not beside this checkout")
        return path

    def policy_text(self) -> bytes:
        return f"version: 1\nmodel: {{name: {self.name}, version: 1.0.0}}\n{self.policy}".encode()


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def chest_images() -> list[Feeds]:
    """Test images of PneumoniaMNIST, one per class."""
    path = SHARED / "data" / "pneumoniamnist.npz"
    if not path.is_file():
        pytest.skip("the images of PneumoniaMNIST are not beside this checkout")
    with np.load(path) as data:
        images, labels = data["test_images"], data["test_labels"].reshape(-1)
    chosen = [int(np.flatnonzero(labels == c)[0]) for c in (0, 1)]
    return [{"image": (images[n].reshape(1, 1, 28, 28) / 255).astype(np.float32)} for n in chosen]


def retina() -> list[Feeds]:
    """A piece of the photograph in scikit-image, at the optic disc."""
    from skimage import data

    image = data.retina()[600:696, 400:496].astype(np.float32) / 255
    return [{"rgb": np.ascontiguousarray(image.transpose(2, 0, 1)[None])}]


def brain() -> list[Feeds]:
    """A bright ellipsoid with a darker core and noise."""
    z, y, x = np.indices((24, 24, 24)) / 11.5 - 1
    radius = np.sqrt((z / 0.9) ** 2 + (y / 0.8) ** 2 + (x / 0.7) ** 2)
    volume = 0.7 * (radius < 1) - 0.3 * (radius < 0.5) + 0.05 * _rng(1).standard_normal(radius.shape)
    return [{"t1": np.clip(volume, 0, 1).astype(np.float32)[None, None]}]


def sleep_eeg() -> list[Feeds]:
    """30 s at 250 Hz: slow waves, alpha, and a spindle of 13 Hz."""
    t = np.arange(7500) / 250
    wave = 40 * np.sin(2 * np.pi * 1.1 * t) + 8 * np.sin(2 * np.pi * 9.5 * t) + 3 * _rng(2).standard_normal(t.size)
    wave += 25 * np.sin(2 * np.pi * 13 * t) * np.exp(-(((t - 12) / 0.4) ** 2))
    power = -np.log1p(np.arange(15))[None, :, None] + 0.3 * _rng(9).standard_normal((1, 15, 7500))
    return [{"raw_signal": (wave / 40).astype(np.float32)[None, None], "spectrogram": power.astype(np.float32)}]


def spectrogram() -> list[Feeds]:
    """Log power of 100 bands, falling with frequency, over 40 windows."""
    power = -np.log1p(np.arange(100))[None, :, None] + 0.5 * _rng(3).standard_normal((1, 100, 40))
    return [{"x": power.astype(np.float32)}]


def speech(frames: int = 4) -> list[Feeds]:
    """Frames of 512 samples at 16 kHz with 64 samples before them: a voice of 120 Hz that stops and starts."""
    t = np.arange(64 + 512 * frames) / 16000
    voice = sum(a * np.sin(2 * np.pi * f * t) for f, a in ((120, 1.0), (240, 0.5), (730, 0.3)))
    sound = 0.3 * voice * (np.sin(2 * np.pi * 3 * t) > 0) + 0.01 * _rng(4).standard_normal(t.size)
    state = 0.1 * _rng(5).standard_normal((2, 1, 128))
    return [
        {
            "input": sound[512 * n : 512 * n + 576].astype(np.float32)[None],
            "state": (state * (n > 0)).astype(np.float32),
            "sr": np.array(16000, np.int64),
        }
        for n in range(frames)
    ]


def file_content() -> list[Feeds]:
    """The first and last 1024 bytes of a text and of a NumPy file, as the model's front end cuts them."""
    text = (b"def square(x):\n    return x * x\n\n" * 200)[:5000]
    binary = b"\x93NUMPY\x01\x00v\x00" + _rng(6).bytes(4000)
    return [{"bytes": np.frombuffer(b[:1024] + b[-1024:], np.uint8).astype(np.int32)[None]} for b in (text, binary)]


def line_of_text(width: int) -> Callable[[], list[Feeds]]:
    """Dark strokes on bright paper, scaled to [-1, 1]."""

    def make() -> list[Feeds]:
        rng, image = _rng(7), np.full((48, width), 0.9)
        for left in range(6, width - 8, 12):
            top = int(rng.integers(8, 16))
            image[top:38, left : left + 3] = 0.1
            image[int(rng.integers(top, 36)), left : left + 9] = 0.1
        image += 0.02 * rng.standard_normal(image.shape)
        return [{"x": np.repeat((2 * image - 1).astype(np.float32)[None, None], 3, axis=1)}]

    return make


def cell_nuclei() -> list[Feeds]:
    """Means of the 30 features of the Wisconsin data set, a small and a large tumour."""
    mean = (14.1, 19.3, 92, 655, 0.096, 0.104, 0.089, 0.049, 0.181, 0.063, 0.405, 1.217, 2.87, 40.3, 0.007, 0.025,
            0.032, 0.012, 0.021, 0.004, 16.3, 25.7, 107, 881, 0.132, 0.254, 0.272, 0.115, 0.29, 0.084)  # fmt: skip
    row = np.array(mean)
    return [{"X": (row * factor).astype(np.float32)[None]} for factor in (0.8, 1.3)]


def loop_counts() -> list[Feeds]:
    x = _rng(8).standard_normal((1, 1, 8, 8)).astype(np.float32)
    return [{"x": x, "n": np.array(n, np.int64)} for n in (0, 1, 5, 8)]


INK = "inputs: {x: {range: [-1.2, 1.2]}}\n"
MODELS = (
    RealModel("cxr_pneumonia_cnn", {"image": (1, 1, 28, 28)}, chest_images, "inputs: {image: {range: [0, 1]}}\n"),
    # onnxruntime rounds a sum that lies halfway between two steps to the other one now and then
    RealModel(
        "cxr_pneumonia_cnn_qdq_int8", {"image": (1, 1, 28, 28)}, chest_images, "inputs: {image: {range: [0, 1]}}\n",
        limit=2 / 255,
    ),
    RealModel("fundus_vessel_unet", {"rgb": (1, 3, 96, 96)}, retina, "inputs: {rgb: {range: [0, 1]}}\n"),
    RealModel("openspindlenet_eeg_unet1d", {"raw_signal": (1, 1, 7500)}, sleep_eeg, limit=1e-5),
    RealModel("brainmaze_seizure_cnn_bilstm", {"x": (1, 100, 40)}, spectrogram),
    RealModel("brainchop_meshnet5_gwm", {"t1": (1, 1, 24, 24, 24)}, brain, "inputs: {t1: {range: [0, 1]}}\n"),
    RealModel(
        "silero_vad_if_lstm", {"input": (1, 576), "state": (2, 1, 128)}, speech,
        "inputs: {input: {range: [-1, 1]}, sr: {range: [16000, 16000]}}\n", limit=1e-5,
    ),
    RealModel("magika_v3_3", {"bytes": (1, 2048)}, file_content, "inputs: {bytes: {range: [0, 256]}}\n"),
    RealModel("ppocr_cls_mobilenetv3", {"x": (1, 3, 48, 192)}, line_of_text(192), INK),
    RealModel("ppocr_v4_rec_svtr", {"x": (1, 3, 48, 160)}, line_of_text(160), INK, limit=1e-5),
    RealModel("breast_cancer_rf_onnxml", {"X": (1, 30)}, cell_nuclei, "inputs: {X: {range: [0, 5000]}}\n"),
    RealModel("synthetic_loop_if", {"x": (1, 1, 8, 8)}, loop_counts, "inputs: {n: {range: [0, 8]}}\n"),
)  # fmt: skip
