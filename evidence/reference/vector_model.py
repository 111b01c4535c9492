"""The vector file's records: one-node graphs in ONNX terms, their generated inputs and expected bits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.errors import ReferenceError

Array = npt.NDArray[Any]
_MASK = (1 << 64) - 1
_STORED_WORDS = 64
_FIRST_WORDS = 16


def generate(seed: int, count: int, kind: str, shift: int) -> Array:
    """``count`` binary32 numbers from the 64-bit linear congruential generator of docs/arithmetic.md, section 11.

    state = seed; each number first sets state = (6364136223846793005 * state + 1442695040888963407) mod 2^64 and takes
    u = state >> 40. ``unit``: (u - 2^23) * 2^-23; ``positive``: (u + 1) * 2^-24; ``wide``: ``unit`` * 2^(e - 16) with
    e = (state >> 32) & 31. All are then multiplied by 2^shift. Every step is exact.
    """
    state, values = seed & _MASK, []
    for _ in range(count):
        state = (6364136223846793005 * state + 1442695040888963407) & _MASK
        u = state >> 40
        if kind == "positive":
            value = (u + 1) * 2.0**-24
        elif kind in ("unit", "wide"):
            value = (u - (1 << 23)) * 2.0**-23 * (2.0 ** (((state >> 32) & 31) - 16) if kind == "wide" else 1.0)
        else:
            raise ReferenceError(f"vector input: kind {kind!r} is not one of unit, positive, wide")
        values.append(value * 2.0**shift)
    return np.array(values, dtype=np.float64).astype(np.float32)


@dataclass(frozen=True)
class VectorInput:
    """One ONNX input: float32 generated (``lcg``) or given as bits, or int64 ``values``; an absent one has no name."""

    name: str
    shape: tuple[int, ...] = ()
    constant: bool = False
    source: Mapping[str, Any] = field(default_factory=dict)

    def array(self) -> Array:
        """The operand: float32 or int64, of ``shape``."""
        if "values" in self.source:
            return np.array(self.source["values"], dtype=np.int64).reshape(self.shape)
        if "bits" in self.source:
            return words_to_array(self.source["bits"]).reshape(self.shape)
        s = self.source
        return generate(s["lcg"], int(np.prod(self.shape)), s["kind"], s.get("shift", 0)).reshape(self.shape)


@dataclass(frozen=True)
class Expected:
    """Expected output: all words when small, otherwise SHA-256 of the little-endian bytes and the first 16 words."""

    shape: tuple[int, ...]
    words: str
    sha256: str

    @classmethod
    def of(cls, value: Array) -> Expected:
        raw = np.ascontiguousarray(value, dtype="<f4")
        kept = raw.size if raw.size <= _STORED_WORDS else _FIRST_WORDS
        return cls(
            tuple(value.shape), array_to_words(raw.reshape(-1)[:kept]), hashlib.sha256(raw.tobytes()).hexdigest()
        )

    def matches(self, value: Array) -> bool:
        """Whether ``value`` (float32, NaN canonical) has exactly these bits and this shape."""
        return Expected.of(value) == self


@dataclass(frozen=True)
class OnnxParts:
    """What is needed to build the one-node ONNX model: optional inputs that are absent have the empty name."""

    op_type: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: Sequence[str]
    graph_inputs: Mapping[str, Array]
    initializers: Mapping[str, Array]
    output: str
    output_shape: tuple[int, ...]
    arithmetic: str = ""  # of a convolution: the named form it is computed in, which ONNX has no attribute for


@dataclass(frozen=True)
class Vector:
    """One vector of CA-1; ``distinguishes`` names the other orders whose bits were seen to differ."""

    name: str
    version: str
    opset: int
    op_type: str
    attributes: Mapping[str, Any]
    inputs: tuple[VectorInput, ...]
    expected: Expected
    distinguishes: tuple[str, ...] = ()
    arithmetic: str = ""

    def onnx_model_parts(self) -> OnnxParts:
        """The node, its runtime inputs and its initialisers, as arrays; the output is called ``y``."""
        present = [i for i in self.inputs if i.name]
        return OnnxParts(
            self.op_type, self.opset, self.attributes, [i.name for i in self.inputs],
            {i.name: i.array() for i in present if not i.constant},
            {i.name: i.array() for i in present if i.constant},
            "y", self.expected.shape, self.arithmetic,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The record as it stands in the vector file."""
        return {
            "name": self.name, "version": self.version, "opset": self.opset, "op_type": self.op_type,
            "attributes": dict(self.attributes),
            "inputs": [
                {"name": i.name, "shape": list(i.shape), "constant": i.constant, **i.source} if i.name else {"name": ""}
                for i in self.inputs
            ],
            "expected": {
                "shape": list(self.expected.shape), "words": self.expected.words, "sha256": self.expected.sha256,
            },
            "distinguishes": list(self.distinguishes),
            **({"arithmetic": self.arithmetic} if self.arithmetic else {}),
        }  # fmt: skip

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Vector:
        """Inverse of :meth:`to_json`."""
        inputs = tuple(
            VectorInput(
                i["name"], tuple(i.get("shape", ())), bool(i.get("constant", False)),
                {k: v for k, v in i.items() if k not in ("name", "shape", "constant")},
            )
            for i in record["inputs"]
        )  # fmt: skip
        e = record["expected"]
        return cls(
            record["name"], record["version"], record["opset"], record["op_type"], record["attributes"], inputs,
            Expected(tuple(e["shape"]), e["words"], e["sha256"]), tuple(record["distinguishes"]),
            record.get("arithmetic", ""),
        )  # fmt: skip


def array_to_words(values: Array) -> str:
    """Binary32 numbers as hexadecimal words separated by spaces, most significant digit first."""
    return " ".join(f"{int(w):08x}" for w in np.ascontiguousarray(values, dtype=np.float32).reshape(-1).view(np.uint32))


def words_to_array(words: str) -> Array:
    """Inverse of :func:`array_to_words`."""
    return np.array([int(w, 16) for w in words.split()], dtype=np.uint32).view(np.float32)
