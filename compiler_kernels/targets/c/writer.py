"""Small pieces every kernel emitter uses: indices, literals, broadcasting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from compiler_kernels.ir.dims import Size
from compiler_kernels.ir.dtypes import DTYPES, INTEGERS, numpy_dtype
from compiler_kernels.ir.graph import Graph, Op, TensorType


@dataclass(frozen=True, slots=True)
class Kernel:
    """One emitted kernel: ``text`` defines ``name(p0, ..., y, begin, end)`` over ``items`` independent work items.

    A kernel that needs ``scratch_floats`` of memory private to the calling thread takes ``float *scratch`` before
    ``begin``.
    """

    name: str
    text: str
    params: int
    items: int
    scratch_floats: int = 0
    sizes: bool = False
    """Takes ``const int64_t *sizes``, the engine's symbols, after ``y``."""


def c_float(value: float) -> str:
    """The binary32 value nearest to ``value`` as an exact C hexadecimal literal."""
    single = float(np.float32(value))
    if math.isnan(single):
        return '__builtin_nanf("")'
    if math.isinf(single):
        return "__builtin_inff()" if single > 0 else "(-__builtin_inff())"
    if single == int(single) and abs(single) < 2**20:
        return f"{'-' if math.copysign(1.0, single) < 0 else ''}{abs(int(single))}.0f"
    return single.hex() + "f"


def c_type(ttype: TensorType) -> str:
    """C type of one element in memory."""
    return DTYPES[ttype.dtype].c


SUFFIX: Final = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "b8",
    **{name: name[0] + name.lstrip("uint") for name in INTEGERS},
}  # fmt: skip
"""Ending of the functions of runtime/ca1_typed.h by element type."""


def c_number(value: float, dtype: str) -> str:
    """``value`` as a C literal of element type ``dtype``; half types as their stored bits."""
    row = DTYPES[dtype]
    if dtype == "float32":
        return c_float(value)
    if dtype == "float64":
        if math.isnan(value):
            return '__builtin_nan("")'
        return float(value).hex() if math.isfinite(value) else f"({'-' if value < 0 else ''}__builtin_inf())"
    if row.kind == "float":
        return str(int(np.array(value, numpy_dtype(dtype)).view(np.uint16)))
    number = max(row.lowest, min(row.highest, int(value)))
    if row.kind == "bool":
        return str(int(bool(value)))
    if row.kind == "uint":
        return f"{number}u" + ("ll" if row.nbytes == 8 else "")
    if number == -(1 << 63):
        return "INT64_MIN"
    return f"{number}ll" if row.nbytes == 8 else str(number) if number != -(1 << 31) else "INT32_MIN"


def c_string(text: str) -> str:
    """``text`` as a C string literal (UTF-8 bytes outside printable ASCII as octal escapes)."""
    out = []
    for byte in text.encode("utf-8"):
        char = chr(byte)
        out.append(char if 32 <= byte < 127 and char not in '"\\?' else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def is_one(size: Size) -> bool:
    """Whether ``size`` is the number 1; a size known at run time is not, even where it may be 1."""
    return isinstance(size, int) and size == 1


def _is_zero(size: Size) -> bool:
    """Whether ``size`` is the number 0; one known at run time may be, and stands in the text."""
    return isinstance(size, int) and size == 0


def c_count(count: Size, dtype: str = "float32") -> str:
    """``count`` as a number of a floating-point type, converted at run time where it is known only then."""
    return c_number(float(count), dtype) if isinstance(count, int) else f"({DTYPES[dtype].c}){count}"


def strides(shape: Sequence[int]) -> list[int]:
    """Row-major strides in elements."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def decode(shape: Sequence[int], prefix: str = "i", flat: str = "i") -> list[str]:
    """Declarations of the coordinates ``<prefix>0, <prefix>1...`` of flat index ``flat``."""
    lines = []
    for axis, (size, step) in enumerate(zip(shape, strides(shape), strict=True)):
        part = flat if is_one(step) else f"{flat} / {step}"
        if axis > 0:
            part += f" % {size}"
        lines.append(f"const int {prefix}{axis} = {part};")
    return lines


def linear(terms: Sequence[tuple[str, Size]], offset: Size = 0) -> str:
    """``a * 3 + b + 7`` without zero terms; ``0`` when nothing is left."""
    parts = [name if is_one(factor) else f"{name} * {factor}" for name, factor in terms if not _is_zero(factor)]
    if not _is_zero(offset) or not parts:
        parts.append(f"{offset}")
    return " + ".join(parts).replace("+ -", "- ")


def broadcast_index(operand: TensorType, out: TensorType, prefix: str = "i", flat: str = "i") -> str:
    """Index of the element of ``operand`` that meets output index ``flat`` under NumPy broadcasting."""
    if operand.shape == out.shape:
        return flat
    lead = len(out.dims) - len(operand.dims)
    steps = strides(operand.dims)
    return linear([(f"{prefix}{lead + a}", steps[a]) for a, size in enumerate(operand.dims) if not is_one(size)])


def root_of(function: Graph) -> Op:
    return function.ops[0]


class Code:
    """Lines of C with indentation kept by ``with code.block("for (...)"):``."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Emit ``head {`` ... ``}``; an empty head emits nothing, so that a loop of one turn leaves no trace."""
        if not head:
            yield
            return
        self.add(head + " {")
        self.depth += 1
        yield
        self.depth -= 1
        self.add("}")


def loop(name: str, count: int, step: int = 1) -> str:
    """``for`` header over 0..count-1."""
    advance = f"{name}++" if step == 1 else f"{name} += {step}"
    return f"for (int {name} = 0; {name} < {count}; {advance})"
