"""What the evidence on a GPU is about: networks of the zoo and ONNX files, at a batch, up to the freeze."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks import zoo
from compiler_kernels.compile import Frozen, freeze_model
from compiler_kernels.policy import Policy

Array = NDArray[Any]


@dataclass(frozen=True)
class Known:
    """Of a file that leaves axes open: its shapes at batch 1, inputs whose second axis is the batch, whole numbers."""

    shapes: Mapping[str, tuple[int, ...]]
    batch_axis: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The numbers an integer input takes; its range in the policy runs from the least to the most."""
    ranged: bool = False


KNOWN: Final = {
    "ppocr_cls_mobilenetv3": Known({"x": (1, 3, 48, 192)}),
    "ppocr_v4_rec_svtr": Known({"x": (1, 3, 48, 160)}),
    "silero_vad_if_lstm": Known(
        {"input": (1, 576), "state": (2, 1, 128)}, {"state": 1}, {"sr": (16000,)}, True
    ),
    "synthetic_loop_if": Known({"x": (1, 1, 8, 8)}, values={"n": (0, 3, 8)}, ranged=True),
}  # fmt: skip
"""Files whose open axes need other sizes than ``Subject.pins`` gives."""


@dataclass(frozen=True)
class Subject:
    """One model: of the zoo by name, or a file. ``batch`` is the size of the first axis of every input."""

    name: str
    file: str = ""
    batch: int = 1
    prefer: str = ""
    """``size``: numerics.prefer of the policy, which keeps every convolution direct."""
    kernels: str = ""
    """gpu.kernels of the policy."""

    @property
    def key(self) -> str:
        """The name, with what the policy prefers."""
        return f"{self.name}:{self.prefer}" if self.prefer else self.name

    @property
    def label(self) -> str:
        """Name and batch, as rows and failures are called in the report."""
        return f"{self.key} batch {self.batch}"

    @property
    def stem(self) -> str:
        """What names of files begin with."""
        return f"{self.name}-{self.prefer or 'speed'}-{self.batch}{self.kernels and f'-{self.kernels}'}"

    def onnx(self) -> bytes:
        """The model's bytes; a network of the zoo is exported for its batch."""
        if self.file:
            return Path(self.file).read_bytes()
        net = zoo.ZOO[self.name]
        return zoo.onnx_bytes(replace(net, shape=(self.batch, *net.shape[1:])))

    def pins(self, data: bytes) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs that the file leaves open: the batch first, 64 for further open axes, 32 of volumes; of
        ``KNOWN`` files theirs."""
        if not self.file:
            return {}
        known = KNOWN.get(self.name)
        found = {}
        for name, dims in _inputs(data).items():
            if known is not None and name in known.shapes:
                shape = list(known.shapes[name])
                if self.batch > 1:
                    shape[known.batch_axis.get(name, 0)] = self.batch
                found[name] = tuple(shape)
            elif any(d is None for d in dims):
                side = 32 if len(dims) == 5 else 64
                found[name] = (self.batch if dims[0] is None else dims[0], *(d or side for d in dims[1:]))
        return found

    def batch_is_open(self) -> bool:
        """Whether the model exists for other batches: a file may fix its own."""
        if not self.file:
            return True
        known = KNOWN.get(self.name)
        axes = known.batch_axis if known is not None else {}
        tensors = {n: dims for n, dims in _inputs(self.onnx()).items() if dims}
        return bool(tensors) and all(dims[axes.get(name, 0)] is None for name, dims in tensors.items())

    def integers(self, name: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
        """Numbers for an integer input: those of a ``KNOWN`` file, else 0 to 7."""
        known = KNOWN.get(self.name)
        values = known.values.get(name) if known is not None else None
        if values:
            return rng.choice(np.asarray(values), shape).astype(dtype)
        return rng.integers(0, 2 if dtype == "bool" else 8, shape).astype(dtype)

    def policy(self) -> Policy | None:
        """The policy, where the subject needs one."""
        known = KNOWN.get(self.name)
        parts: dict[str, Any] = {"numerics": {"prefer": self.prefer}} if self.prefer else {}
        parts |= {"gpu": {"kernels": self.kernels}} if self.kernels else {}
        if known is not None and known.ranged:
            parts["inputs"] = {n: {"range": (min(v), max(v))} for n, v in known.values.items()}
        model = {"name": self.name, "version": "0"}
        return Policy.model_validate({"version": 1, "model": model, **parts}) if parts else None

    def freeze(self) -> Frozen:
        """The subject up to the freeze."""
        data = self.onnx()
        return freeze_model(data, self.pins(data), self.policy())


def _inputs(data: bytes) -> dict[str, list[int | None]]:
    """Axes of the graph's inputs that are no constants; ``None``: left open."""
    import onnx

    graph = onnx.load_from_string(data).graph
    constants = {t.name for t in graph.initializer}
    return {
        v.name: [d.dim_value if d.dim_value > 0 else None for d in v.type.tensor_type.shape.dim]
        for v in graph.input
        if v.name not in constants
    }
