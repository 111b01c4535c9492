"""Element types of tensors: one row per type, named as NumPy (and ml_dtypes) name them.

float16 and bfloat16 are storage types: importers widen them with ``cast``, compute in binary32 and ``cast`` back, which
is what Canonical Arithmetic 1 says of them, so only casts and data movement ever see one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """``onnx`` is TensorProto.DataType, ``c`` the C type of one element in memory, ``npy`` the .npy type string."""

    name: str
    nbytes: int
    kind: str  # "float", "int", "uint" or "bool"
    c: str
    onnx: int
    npy: str

    @property
    def lowest(self) -> int:
        """Smallest value of an integer type."""
        return -(1 << (8 * self.nbytes - 1)) if self.kind == "int" else 0

    @property
    def highest(self) -> int:
        """Largest value of an integer type (1 for bool)."""
        return {"bool": 1, "uint": (1 << 8 * self.nbytes) - 1}.get(self.kind, (1 << (8 * self.nbytes - 1)) - 1)


_ROWS: Final = (
    DType("float32", 4, "float", "float", 1, "<f4"),
    DType("float64", 8, "float", "double", 11, "<f8"),
    DType("float16", 2, "float", "uint16_t", 10, "<f2"),
    DType("bfloat16", 2, "float", "uint16_t", 16, "<V2"),
    DType("int8", 1, "int", "int8_t", 3, "|i1"),
    DType("int16", 2, "int", "int16_t", 5, "<i2"),
    DType("int32", 4, "int", "int32_t", 6, "<i4"),
    DType("int64", 8, "int", "int64_t", 7, "<i8"),
    DType("uint8", 1, "uint", "uint8_t", 2, "|u1"),
    DType("uint16", 2, "uint", "uint16_t", 4, "<u2"),
    DType("uint32", 4, "uint", "uint32_t", 12, "<u4"),
    DType("uint64", 8, "uint", "uint64_t", 13, "<u8"),
    DType("bool", 1, "bool", "uint8_t", 9, "|b1"),
)
DTYPES: Final[Mapping[str, DType]] = {row.name: row for row in _ROWS}
BY_ONNX: Final[Mapping[int, DType]] = {row.onnx: row for row in _ROWS}

COMPUTED: Final = ("float32", "float64")
"""Floating-point types that kernels compute in."""
INTEGERS: Final = tuple(row.name for row in _ROWS if row.kind in ("int", "uint"))
NUMBERS: Final = (*COMPUTED, *INTEGERS)
HALVES: Final = ("float16", "bfloat16")
ANY: Final = tuple(DTYPES)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Little-endian NumPy type; bfloat16 is the one ml_dtypes registers."""
    if name == "bfloat16":
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(name).newbyteorder("<")
