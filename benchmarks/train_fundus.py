"""Train the demonstration model: a small 2-D U-Net that marks retinal vessels. Not a clinical model.

Learns on the left half of one CC0 photograph with pseudo-labels from a ridge filter (``cuvil_assets/demo_data.py``) and
is measured on the right half, of which nothing takes part in training. Run from the root of the repository:

    pip install -e '.[train]'
    python benchmarks/train_fundus.py --output cuvil_assets/data/fundus_vessel_unet.onnx

Fixed seeds, one thread, deterministic kernels: the same machine and versions give the same file again. Another CPU may
round differently, so the committed file is named by its sha256 in docs/demo.md.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch
from torch import nn

from cuvil_assets.demo_data import Halves, Mask, as_nchw, dice, load_halves, pseudo_labels, thresholds

if TYPE_CHECKING:
    from numpy.random import Generator

SEED, STEPS, BATCH, CROP, RATE = 20260, 400, 6, 96, 5e-3
MODEL_NAME, MODEL_VERSION, OPSET = "fundus_vessel_unet", "1.0.0", 17


class ConvPair(nn.Module):
    """Twice Conv 3x3, BatchNorm, ReLU; keeps the spatial size."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.relu2 = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu1(self.norm1(self.conv1(x)))
        out: torch.Tensor = self.relu2(self.norm2(self.conv2(x)))
        return out


class VesselUNet(nn.Module):
    """RGB [N, 3, H, W] in [0, 1] to vessel probability [N, 1, H, W]; H and W divisible by 4.

    One decoder step is a transposed convolution and the other a bilinear resize, so that both are demonstrated.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder1, self.encoder2, self.bottom = ConvPair(3, 8), ConvPair(8, 16), ConvPair(16, 32)
        self.pool1, self.pool2 = nn.MaxPool2d(2), nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.decoder2 = ConvPair(32, 16)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.decoder1 = ConvPair(24, 8)
        self.head = nn.Conv2d(8, 1, 1)
        self.probability = nn.Sigmoid()

    def forward(self, rgb: torch.Tensor) -> torch.Tensor:
        full = self.encoder1(rgb)
        half = self.encoder2(self.pool1(full))
        x = self.up2(self.bottom(self.pool2(half)))
        x = self.up1(self.decoder2(torch.cat([x, half], 1)))
        x = self.decoder1(torch.cat([x, full], 1))
        out: torch.Tensor = self.probability(self.head(x))
        return out


def batch(rgb: torch.Tensor, label: torch.Tensor, rng: Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """``BATCH`` random crops, each flipped or turned by one of the eight symmetries of the square."""
    xs: list[torch.Tensor] = []
    ys: list[torch.Tensor] = []
    for _ in range(BATCH):
        top, left = (int(rng.integers(0, size - CROP + 1)) for size in rgb.shape[2:])
        turns, flip = int(rng.integers(0, 4)), bool(rng.integers(0, 2))
        for source, crops in ((rgb, xs), (label, ys)):
            crop = torch.rot90(source[..., top : top + CROP, left : left + CROP], turns, (2, 3))
            crops.append(torch.flip(crop, (3,)) if flip else crop)
    return torch.cat(xs), torch.cat(ys)


def train(halves: Halves, label: Mask) -> VesselUNet:
    """Binary cross-entropy plus soft Dice loss, Adam with a cosine schedule, on the training half only."""
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    model = VesselUNet()
    rgb, target = torch.from_numpy(as_nchw(halves.training)), torch.from_numpy(label.astype(np.float32))[None, None]
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for step in range(1, STEPS + 1):
        x, y = batch(rgb, target, rng)
        p = model(x)
        overlap = 1 - 2 * (p * y).sum() / (p.sum() + y.sum() + 1)
        loss = nn.functional.binary_cross_entropy(p, y) + overlap
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step:3d} of {STEPS}: loss {loss.item():.4f}", flush=True)
    return model.eval()


def export(model: VesselUNet) -> bytes:
    """ONNX bytes with BatchNormalization kept as nodes (inference form), so that folding it is left to the compiler."""
    axes = {0: "N", 2: "H", 3: "W"}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        exported = Path(folder) / "model.onnx"
        # the newer exporter folds BatchNorm itself; the older one, deprecated, can be told not to
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            model,
            (torch.zeros(1, 3, 64, 64),),
            exported,
            input_names=["rgb"],
            output_names=["vessel"],
            dynamic_axes={"rgb": axes, "vessel": axes},
            opset_version=OPSET,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            dynamo=False,
        )
        proto = onnx.load(exported)
    proto.graph.name = MODEL_NAME
    notes = {
        "version": MODEL_VERSION,
        "purpose": "demonstration of a compiler; not a clinical model",
        "training_data": "left half of retina.jpg of scikit-image (CC0 1.0), pseudo-labels from a ridge filter",
    }
    for key, value in notes.items():
        proto.metadata_props.add(key=key, value=value)
    onnx.checker.check_model(proto, full_check=True)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def measure(model: VesselUNet, rgb: np.ndarray, label: Mask) -> float:
    """Dice of the mask at 0.5 against the pseudo-labels of one half."""
    with torch.no_grad():
        probability = model(torch.from_numpy(as_nchw(rgb)))[0, 0].numpy()
    return dice(probability > 0.5, label)


def main() -> None:
    parser = argparse.ArgumentParser(description="train and export the demonstration model")
    parser.add_argument("--output", type=Path, required=True, help="the .onnx file to write")
    path: Path = parser.parse_args().output
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    halves = load_halves()
    limits = thresholds(halves.training)
    labels = pseudo_labels(halves.training, limits), pseudo_labels(halves.held_out, limits)
    model = train(halves, labels[0])
    data = export(model)
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(data)
    temporary.replace(path)
    print(f"seed {SEED}, {STEPS} steps")
    print(f"Python {platform.python_version()}, torch {torch.__version__}, onnx {onnx.__version__}")
    print(f"parameters: {sum(p.numel() for p in model.parameters())}; {len(data)} bytes")
    print("the labels are pseudo-labels from a ridge filter, not annotations by a person:")
    print(f"Dice against pseudo-labels, training half: {measure(model, halves.training, labels[0]):.3f}")
    print(f"Dice against pseudo-labels, held-out half: {measure(model, halves.held_out, labels[1]):.3f}")
    print(f"sha256 {hashlib.sha256(data).hexdigest()}  {path.name}")


if __name__ == "__main__":
    main()
