"""Small pieces every kernel emitter uses: indices, literals, broadcasting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np

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


def strides(shape: Sequence[int]) -> list[int]:
    """Row-major strides in elements."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


def decode(shape: Sequence[int], prefix: str = "i", flat: str = "i") -> list[str]:
    """Declarations of the coordinates ``<prefix>0, <prefix>1...`` of flat index ``flat``."""
    lines = []
    for axis, (size, step) in enumerate(zip(shape, strides(shape), strict=True)):
        part = flat if step == 1 else f"{flat} / {step}"
        if axis > 0:
            part += f" % {size}"
        lines.append(f"const int {prefix}{axis} = {part};")
    return lines


def linear(terms: Sequence[tuple[str, int]], offset: int = 0) -> str:
    """``a * 3 + b + 7`` without zero terms; ``0`` when nothing is left."""
    parts = [name if factor == 1 else f"{name} * {factor}" for name, factor in terms if factor != 0]
    if offset or not parts:
        parts.append(str(offset))
    return " + ".join(parts).replace("+ -", "- ")


def broadcast_index(operand: TensorType, out: TensorType, prefix: str = "i", flat: str = "i") -> str:
    """Index of the element of ``operand`` that meets output index ``flat`` under NumPy broadcasting."""
    if operand.dims == out.dims:
        return flat
    lead = len(out.dims) - len(operand.dims)
    steps = strides(operand.dims)
    return linear([(f"{prefix}{lead + a}", steps[a]) for a, size in enumerate(operand.dims) if size != 1])


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
