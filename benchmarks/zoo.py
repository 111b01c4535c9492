"""The networks that are timed: built here with seeded weights and exported to ONNX in a cache folder.

    python -m benchmarks.zoo [NAME...] [--folder DIR]

prints one line per network: file, sha256, parameters, input shape. The same torch version gives the same file again.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.toolchain.zig import cuvil_home

if TYPE_CHECKING:
    from torch import nn

OPSET: Final = 17
REVISION: Final = 1
"""Part of the file names: raised when a network or its weights change."""


@dataclass(frozen=True)
class Net:
    """One network: how to build it, its input shape, and what it stands for."""

    name: str
    module: str
    factory: str
    arguments: tuple[int, ...]
    shape: tuple[int, ...]
    title: str


_NETS: Final = (
    Net("resnet18", "zoo_nets", "ResNet18", (), (1, 3, 224, 224), "ResNet-18 224"),
    Net("unet2m", "zoo_nets", "UNet", (16,), (1, 1, 256, 256), "U-Net 2M 256"),
    Net("unet8m", "zoo_nets", "UNet", (32,), (1, 1, 256, 256), "U-Net 8M 256"),
    Net("densenet121", "zoo_nets", "DenseNet121", (), (1, 1, 224, 224), "DenseNet-121 224"),
    Net("mobilenetv2", "zoo_nets", "MobileNetV2", (), (1, 3, 224, 224), "MobileNetV2 224"),
    Net("ecg", "zoo_signals", "EcgCnn", (), (1, 12, 5000), "ECG CNN 12x5000 k15"),
    Net("vit_tiny", "zoo_signals", "VisionTransformer", (), (1, 3, 224, 224), "ViT-tiny 224"),
    Net("bilstm", "zoo_signals", "BiLstm", (), (1, 250, 12), "bidirectional LSTM x2 250x12"),
)
ZOO: Final = {net.name: net for net in _NETS}


def default_folder() -> Path:
    """$CUVIL_HOME/zoo."""
    return cuvil_home() / "zoo"


def build(net: Net) -> nn.Module:
    """The network in inference mode with weights from a fixed seed, drawn in the order of its parameters.

    Convolutions and matrices are scaled to keep the variance of their input; BatchNorm gets statistics and parameters
    that differ from the identity.
    """
    import importlib

    import torch

    model: nn.Module = getattr(importlib.import_module(f"benchmarks.{net.module}"), net.factory)(*net.arguments)
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(net.name.encode()).digest()[:4], "big"))
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if not value.dtype.is_floating_point:
                continue
            drawn = torch.randn(value.shape, generator=generator)
            if value.ndim >= 2:
                value.copy_(drawn * math.sqrt(2.0 / max(1, value[0].numel())))
            elif name.endswith(("running_var", "weight")):
                value.copy_(torch.rand(value.shape, generator=generator) + 0.5)
            else:
                value.copy_(drawn * 0.1)
    return model.eval()


def example_input(net: Net, number: int = 0) -> NDArray[np.float32]:
    """Input ``number`` of a network: standard normal, PCG64 seeded by name and number."""
    seed = [number, *hashlib.sha256(net.name.encode()).digest()[:4]]
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(net.shape).astype(np.float32)


def onnx_bytes(net: Net) -> bytes:
    """The network as an ONNX model of opset 17 with static shapes, input ``input`` and output ``output``."""
    import torch

    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory(prefix="cuvil-zoo-") as folder:
        warnings.simplefilter("ignore")
        path = Path(folder) / "net.onnx"
        torch.onnx.export(
            build(net), (torch.zeros(net.shape),), path, opset_version=OPSET, dynamo=False,
            input_names=["input"], output_names=["output"],
        )  # fmt: skip
        return path.read_bytes()


def model_file(name: str, folder: Path | None = None) -> Path:
    """The ONNX file of network ``name``, exported now if the cache does not hold it. ``KeyError``: no such network."""
    import torch

    net = ZOO[name]
    place = folder or default_folder()
    path = place / f"{name}-r{REVISION}-torch{torch.__version__.split('+')[0]}.onnx"
    if not path.is_file():
        place.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(onnx_bytes(net))
        temporary.replace(path)
    return path


def describe(name: str, path: Path) -> dict[str, Any]:
    """Name, file name, sha256, parameters and input shape."""
    import onnx

    data = path.read_bytes()
    graph = onnx.load_from_string(data).graph
    parameters = sum(math.prod(t.dims) for t in graph.initializer)
    return {
        "name": name,
        "file": path.name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "parameters": parameters,
        "nodes": len(graph.node),
        "shape": list(ZOO[name].shape),
    }


def main(arguments: Sequence[str] | None = None, show: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description="Export the benchmark's networks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ZOO)}; all if not given")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="default: $CUVIL_HOME/zoo")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in ZOO]
    if unknown:
        print(f"error: there is no network {unknown[0]!r}: choose from {', '.join(ZOO)}", file=sys.stderr)
        return 2
    for name in options.names or ZOO:
        row = describe(name, model_file(name, options.folder))
        shape = "x".join(map(str, row["shape"]))
        show(
            f"{row['sha256']}  {row['file']}  {row['parameters'] / 1e6:.2f} M parameters, {row['nodes']} nodes, {shape}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
