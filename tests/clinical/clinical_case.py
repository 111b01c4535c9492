"""A model small enough to reach every failure, and the policy of it (docs/clinical.md)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

Array = npt.NDArray[Any]

POLICY = """\
version: 1
model: {name: made, version: "1.0"}
inputs:
  image: {finite: true, range: [-1.0, 1.0]}
outputs:
  mask: {range: [-1.5, 2.0]}
thresholds:
  cutoff: {value: 0.5, source: "tuning report 7", requirements: [REQ-1]}
quantities:
  brightest: max(mask)
  exposure: {value: mean(image), unit: grey}
  lesion: {value: area(mask > cutoff), unit: pixels}
  level: logarithm
decisions:
  bright: {when: "brightest >= cutoff and not dark", requirements: [REQ-2]}
  dark: exposure < 0.1
  review: at_least(2, bright, lesion >= 3, argmax(mask) == 0) or dark
safety:
  guards:
    not_blank: {require: "max(image) - min(image) > 0.25", requirements: [REQ-3], clauses: [RISK-7]}
    plausible:
      require: lesion <= 12
      description: no lesion fills the image
      fallback: {action: answer, decisions: {bright: true, dark: false, review: true}, message: "Look at it."}
fallbacks:
  default: refuse
  output_guard: {action: answer, decisions: {bright: false, dark: false, review: true}, message: "Outputs."}
  safety_guard: {action: answer, decisions: {bright: false, dark: true, review: true}, message: "Blank."}
  refusal: {action: answer, decisions: {bright: false, dark: false, review: true}}
coverage: {}
"""


def model_bytes() -> bytes:
    """``mask`` [4, 4] is twice ``image`` [1, 1, 4, 4] reshaped as ``steer`` says, which must be [4, 4]; ``logarithm``
    [1] is the logarithm of its mean."""
    nodes = [
        helper.make_node("Add", ["image", "image"], ["double"], "double"),
        helper.make_node("Reshape", ["double", "steer"], ["mask"], "reshape"),
        helper.make_node("ReduceMean", ["image"], ["mean"], "mean", axes=[1, 2, 3], keepdims=0),
        helper.make_node("Log", ["mean"], ["logarithm"], "log"),
    ]
    graph = helper.make_graph(
        nodes,
        "made",
        [
            helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 4, 4]),
            helper.make_tensor_value_info("steer", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, [4, 4]),
            helper.make_tensor_value_info("logarithm", TensorProto.FLOAT, [1]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def image(*values: float) -> Array:
    """An image whose first values are these and the others 0.25."""
    flat = np.full(16, 0.25, np.float32)
    flat[: len(values)] = values
    return flat.reshape(1, 1, 4, 4)


STEER = np.array([4, 4], np.int64)
CASES: dict[str, dict[str, Array]] = {
    "decided": {"image": image(0.75, 0.0), "steer": STEER},
    "input_guard": {"image": image(0.75, np.nan), "steer": STEER},
    "output_guard": {"image": image(-0.875, 0.5), "steer": STEER},
    "safety_guard": {"image": image(), "steer": STEER},
    "safety_guard:plausible": {"image": image(0.0, *[0.5] * 14), "steer": STEER},
    "not_a_number": {"image": image(*[-0.25] * 14, 0.25), "steer": STEER},
    "refusal": {"image": image(0.75, 0.0), "steer": np.array([2, 8], np.int64)},
}


@dataclass(frozen=True)
class Program:
    """An engine as a program, with the words that run it here."""

    path: Path
    prefix: tuple[str, ...] = ()

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, str(self.path), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def infer(self, folder: Path, values: dict[str, Array], *words: str | Path) -> subprocess.CompletedProcess[str]:
        """One inference; the outputs go to ``folder/out``."""
        return self.run(*given(folder, "input", values), "--output-dir", folder / "out", *words)

    def decide(self, folder: Path, inputs: dict[str, Array], outputs: dict[str, Array], *words: str | Path) -> Any:
        """The answer on given tensors, or the object of the error."""
        files = [*given(folder, "input", inputs), *given(folder, "output", outputs)]
        return json.loads(self.run("--decide", *files, *words, "--json").stdout)


def given(folder: Path, option: str, values: dict[str, Array]) -> list[str]:
    words: list[str] = []
    for name, value in values.items():
        path = folder / f"{option}-{name}.npy"
        np.save(path, value)
        words += [f"--{option}", f"{name}={path}"]
    return words


def vectors(sets: Sequence[Sequence[Array]], flags: Sequence[int]) -> bytes:
    """The file of ``--vectors``: of every vector all inputs, then all outputs."""
    parts = [b"CVEC1\0\0\0", np.uint64(len(sets)).tobytes()]
    for one, flag in zip(sets, flags, strict=True):
        parts += [*(array.tobytes() for array in one), np.uint32(flag).tobytes()]
    return b"".join(parts)


def checked_model() -> onnx.ModelProto:
    model = onnx.load_from_string(model_bytes())
    onnx.checker.check_model(model)
    return model
