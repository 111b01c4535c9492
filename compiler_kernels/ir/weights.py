"""Weight storage beside the IR text: a mapping from SHA3-512 reference to array, and its one-file form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import IRError
from compiler_kernels.ir.dtypes import numpy_dtype
from compiler_kernels.ir.graph import Graph, TensorType, Weight
from compiler_kernels.stage import sha3_512_hex

ALIGNMENT = 64
Array = NDArray[np.generic]


class WeightStore:
    """Arrays by content reference; equal contents are stored once."""

    def __init__(self, arrays: Mapping[str, Array] | None = None) -> None:
        self._arrays: dict[str, Array] = dict(arrays or {})

    def add(self, array: Array) -> str:
        """Store ``array`` (made C-contiguous, little-endian) and return its reference."""
        data = np.ascontiguousarray(array).reshape(np.shape(array))
        data = data.astype(numpy_dtype(data.dtype.name), copy=False)
        ref = f"sha3-512:{sha3_512_hex(data.tobytes())}"
        self._arrays[ref] = data
        return ref

    def weight(self, value_id: str, array: Array) -> Weight:
        """Store ``array`` and return the IR constant ``value_id`` that refers to it."""
        return Weight(value_id, TensorType(tuple(array.shape), array.dtype.name), self.add(array))

    def get(self, weight: Weight) -> Array:
        """The array of ``weight`` in its declared shape and dtype; ``IRError`` when it is not in the store."""
        try:
            flat = self._arrays[weight.ref]
        except KeyError:
            raise IRError(f"weight %{weight.id} refers to {weight.ref[:24]}..., which is not in weights.bin") from None
        if weight.type.layout:
            raise IRError(f"weight %{weight.id} is packed ({weight.type.layout}); it has no logical array")
        # A reference names bytes: another constant may have stored the same bytes as another element type.
        return flat.reshape(-1).view(numpy_dtype(weight.type.dtype)).reshape(weight.type.dims)

    def raw(self, weight: Weight) -> Array:
        """The stored array of ``weight``, flat, in its physical order."""
        return self._arrays[weight.ref].reshape(-1).view(numpy_dtype(weight.type.dtype))

    def packed(self, value_id: str, ttype: TensorType, array: Array) -> Weight:
        """Store ``array`` as the physical form of a constant of type ``ttype`` (whose layout says how)."""
        if ttype.nbytes != array.nbytes:
            raise IRError(f"weight %{value_id} has {array.nbytes} bytes where {ttype.layout!r} needs {ttype.nbytes}")
        return Weight(value_id, ttype, self.add(array.reshape(-1)))


def layout(weights: Iterable[Weight]) -> tuple[dict[str, int], int]:
    """Byte offset of every distinct reference, 64-byte aligned in first-use order, and the total size."""
    offsets: dict[str, int] = {}
    end = 0
    for weight in weights:
        if weight.ref not in offsets:
            offsets[weight.ref] = end
            end += -(-weight.type.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, end


def pack(graph: Graph, store: WeightStore) -> bytes:
    """``weights.bin`` of ``graph``: see docs/architecture.md."""
    offsets, total = layout(graph.weights)
    blob = bytearray(total)
    for weight in graph.weights:
        data = store.raw(weight).tobytes()
        blob[offsets[weight.ref] : offsets[weight.ref] + len(data)] = data
    return bytes(blob)


def unpack(graph: Graph, blob: bytes) -> WeightStore:
    """Inverse of :func:`pack`; every reference is recomputed. ``IRError`` when bytes and reference disagree."""
    offsets, total = layout(graph.weights)
    if total != len(blob):
        raise IRError(f"weights.bin has {len(blob)} bytes where the graph needs {total}")
    arrays: dict[str, Array] = {}
    for weight in graph.weights:
        start = offsets[weight.ref]
        data = blob[start : start + weight.type.nbytes]
        if f"sha3-512:{sha3_512_hex(data)}" != weight.ref:
            raise IRError(f"weights.bin does not hold the bytes of %{weight.id}: its SHA3-512 differs")
        arrays[weight.ref] = np.frombuffer(data, dtype=numpy_dtype(weight.type.dtype))
    return WeightStore(arrays)
