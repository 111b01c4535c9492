"""The vector file's records: one-node graphs in ONNX terms, their generated inputs and expected bits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.errors import ReferenceError
from evidence.reference.graph import storage, type_name
from evidence.reference.typed import to_storage

Array = npt.NDArray[Any]
_MASK = (1 << 64) - 1
_STORED_WORDS = 64
_FIRST_WORDS = 16


def generate(seed: int, count: int, kind: str, shift: int, dtype: str = "float32") -> Array:
    """``count`` elements from the 64-bit linear congruential generator of docs/arithmetic.md, section 11.

    state = seed; each element first sets state = (6364136223846793005 * state + 1442695040888963407) mod 2^64 and takes
    u = state >> 40. ``unit``: (u - 2^23) * 2^-23; ``positive``: (u + 1) * 2^-24; ``wide``: ``unit`` * 2^(e - 16) with
    e = (state >> 32) & 31; ``small``: u mod 17 - 8, without the - 8 for unsigned types, u mod 2 for bool; all times
    2^shift and rounded once to the type. ``bits``: the pattern is the highest bits of state (bool: the highest).
    """
    state, values = seed & _MASK, []
    target = storage(dtype)
    if target.kind not in "fV" and kind not in ("small", "bits"):
        raise ReferenceError(f"vector input: kind {kind!r} makes floating-point numbers, not {dtype}")
    for _ in range(count):
        state = (6364136223846793005 * state + 1442695040888963407) & _MASK
        u = state >> 40
        if kind == "positive":
            value = (u + 1) * 2.0**-24
        elif kind in ("unit", "wide"):
            value = (u - (1 << 23)) * 2.0**-23 * (2.0 ** (((state >> 32) & 31) - 16) if kind == "wide" else 1.0)
        elif kind == "small":
            value = u % 2 if target.kind == "b" else u % 17 - (0 if target.kind == "u" else 8)
        elif kind == "bits":
            value = state >> (63 if target.kind == "b" else 64 - 8 * target.itemsize)
        else:
            raise ReferenceError(f"vector input: kind {kind!r} is not one of unit, positive, wide, small, bits")
        values.append(value if kind == "bits" else value * 2.0**shift)
    if kind == "bits":
        return np.array(values, dtype=np.uint64).astype(_unsigned(target)).view(target)
    return to_storage(np.array(values, dtype=np.float64), dtype)


def _unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned integer type of the same width, little-endian."""
    return np.dtype(f"<u{dtype.itemsize}")


@dataclass(frozen=True)
class VectorInput:
    """One ONNX input, generated (``lcg``), given as ``bits`` or as integer ``values``; an absent one has no name.

    ``source`` may name the element type, ``dtype``; without it generated and given ones are float32, ``values`` int64.
    """

    name: str
    shape: tuple[int, ...] = ()
    constant: bool = False
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        return str(self.source.get("dtype", "int64" if "values" in self.source else "float32"))

    def array(self) -> Array:
        """The operand, of ``shape`` and ``dtype``; bfloat16 as two opaque bytes."""
        s = self.source
        if "values" in s:
            return np.array(s["values"], dtype=storage(self.dtype)).reshape(self.shape)
        if "bits" in s:
            return words_to_array(s["bits"], self.dtype).reshape(self.shape)
        count = int(np.prod(self.shape))
        return generate(s["lcg"], count, s["kind"], s.get("shift", 0), self.dtype).reshape(self.shape)


@dataclass(frozen=True)
class Expected:
    """Expected output: all words when small, otherwise SHA-256 of the little-endian bytes and the first 16 words."""

    shape: tuple[int, ...]
    words: str
    sha256: str
    dtype: str = "float32"

    @classmethod
    def of(cls, value: Array) -> Expected:
        dtype = type_name(value.dtype)
        raw = np.ascontiguousarray(value, dtype=storage(dtype).newbyteorder("<")).reshape(-1)
        kept = raw.size if raw.size <= _STORED_WORDS else _FIRST_WORDS
        digest = hashlib.sha256(raw.tobytes()).hexdigest()
        return cls(tuple(value.shape), array_to_words(raw[:kept]), digest, dtype)

    def matches(self, value: Array) -> bool:
        """Whether ``value`` (NaN canonical) has exactly this type, these bits and this shape."""
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
    output_dtype: str = "float32"
    output_index: int = 0  # which of the node's outputs "y" is; the others are not asked for
    domain: str = ""


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
    output: int = 0
    domain: str = ""

    def onnx_model_parts(self) -> OnnxParts:
        """The node, its runtime inputs and its initialisers, as arrays; the output is called ``y``."""
        present = [i for i in self.inputs if i.name]
        return OnnxParts(
            self.op_type, self.opset, self.attributes, [i.name for i in self.inputs],
            {i.name: i.array() for i in present if not i.constant},
            {i.name: i.array() for i in present if i.constant},
            "y", self.expected.shape, self.arithmetic, self.expected.dtype, self.output, self.domain,
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
                **({"dtype": self.expected.dtype} if self.expected.dtype != "float32" else {}),
            },
            "distinguishes": list(self.distinguishes),
            **({"arithmetic": self.arithmetic} if self.arithmetic else {}),
            **({"output": self.output} if self.output else {}),
            **({"domain": self.domain} if self.domain else {}),
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
            Expected(tuple(e["shape"]), e["words"], e["sha256"], e.get("dtype", "float32")),
            tuple(record["distinguishes"]), record.get("arithmetic", ""), record.get("output", 0),
            record.get("domain", ""),
        )  # fmt: skip


def array_to_words(values: Array) -> str:
    """Element patterns as hexadecimal words of the type's width, most significant digit first, between spaces."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return " ".join(f"{int(w):0{2 * flat.dtype.itemsize}x}" for w in flat.view(_unsigned(flat.dtype)))


def words_to_array(words: str, dtype: str = "float32") -> Array:
    """Inverse of :func:`array_to_words`."""
    target = storage(dtype)
    return np.array([int(w, 16) for w in words.split()], dtype=_unsigned(target)).view(target)
