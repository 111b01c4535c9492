"""The elementwise operations of a statement on plain values of any size: one vector along the last axis at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from compiler_kernels.ir.dims import Size, as_dim, product
from compiler_kernels.ir.graph import Graph, Op, TensorType
from compiler_kernels.passes.fuse import ELEMENTWISE, ELEMENTWISE_TYPED
from compiler_kernels.targets.c.writer import is_one, linear
from compiler_kernels.targets.vector.sized import steps_of
from compiler_kernels.targets.vector.vec import Vec

VECTOR: Final = (ELEMENTWISE - ELEMENTWISE_TYPED) | {"affine"}
"""Operations with a vector form."""


class SizedChain:
    """Statements for the operations of ``function`` (those after the root with ``skip_root``) at a vector of the
    result: consecutive elements of its last axis, or every ``step``-th one."""

    def __init__(self, function: Graph, vec: Vec, skip_root: bool) -> None:
        self.vec = vec
        self.ops: tuple[Op, ...] = function.ops[1:] if skip_root else function.ops
        self.types = function.types()
        self.out: TensorType = function.ops[-1].out
        self.params = {v.id for v in function.inputs}
        self.per_channel = {o for op in self.ops if op.kind == "affine" for o in op.operands[1:]}
        used = [o for op in self.ops for o in op.operands if o in self.params]
        self.operands = {name: self.aligned(name) for name in dict.fromkeys(used)}

    @property
    def possible(self) -> bool:
        """Whether every operation has a vector form and every operand runs along the last axis or stands still."""
        return all(op.kind in VECTOR for op in self.ops) and all(
            not shape or is_one(shape[-1]) or self._full(name, len(shape) - 1) for name, shape in self.operands.items()
        )

    def aligned(self, name: str) -> tuple[Size, ...]:
        """Dimensions of an operand with the rank of the result."""
        dims, rank = self.types[name].extents, len(self.out.shape)
        if name in self.per_channel:
            return (1, dims[0], *[1] * (rank - 2))
        return (*[1] * (rank - len(dims)), *dims)

    def _full(self, name: str, axis: int) -> bool:
        return f"{self.operands[name][axis]}" == f"{self.out.extents[axis]}"

    def address(self, name: str, position: Sequence[str]) -> str:
        """C index of the element of operand ``name`` that meets output ``position``."""
        shape = self.operands[name]
        steps = steps_of(shape)
        return linear([(position[a], steps[a]) for a, size in enumerate(shape) if not is_one(size)])

    def statements(self, value: str, position: Sequence[str], bits: str, step: int = 1) -> tuple[list[str], str]:
        """C statements that apply the chain to ``value`` (the root's vector, ``""`` without one) and the final name."""
        vec = self.vec
        names = {"t0": value} if value else {}
        lines: list[str] = []
        loaded: dict[str, str] = {}
        result = value
        for op in self.ops:
            arguments = []
            for operand in op.operands:
                if operand not in self.params:
                    arguments.append(names.get(operand, operand))
                    continue
                if operand not in loaded:
                    loaded[operand] = f"v_{operand}"
                    lines.append(f"const {vec.type} v_{operand} = {self._load(operand, position, bits, step)};")
                arguments.append(loaded[operand])
            lines.append(vec.statement(op, arguments))
            result = op.result
        return lines, result

    def _load(self, operand: str, position: Sequence[str], bits: str, step: int) -> str:
        place, shape = self.address(operand, position), self.operands[operand]
        if not shape or is_one(shape[-1]):
            return self.vec.set1(f"{operand}[{place}]")
        return load(self.vec, f"{operand} + {place}", bits, step)


def load(vec: Vec, address: str, bits: str, step: int = 1) -> str:
    """A vector of every ``step``-th float from ``address``; lanes without a bit in ``bits`` hold +0 (``""``: all)."""
    if step == 1:
        return f"{vec('load_bits')}({address}, {bits})" if bits else vec.load(address)
    if step == 2:
        return f"{vec('load_two')}({address}, {bits or hex((1 << vec.lanes) - 1)})"
    return f"{vec('load_step')}({address}, {step}, {bits or hex((1 << vec.lanes) - 1)})"


def store(vec: Vec, address: str, value: str, bits: str, step: int = 1) -> str:
    """Statement that writes the lanes of ``value`` with a bit in ``bits`` (``""``: all)."""
    if step == 1 and not bits:
        return vec.store(address, value)
    if step == 1:
        return f"{vec('store_bits')}({address}, {value}, {bits});"
    return (
        f"{{ float lanes[{vec.lanes}]; {vec.store('lanes', value)} float *to = {address}; "
        f"for (int l = 0; l < {vec.lanes}; l++) if ({bits} >> l & 1u) to[l * {step}] = lanes[l]; }}"
    )


def flattened(function: Graph, first: int, skip_root: bool = True) -> Graph | None:
    """``function`` with the axes of its result from ``first`` on as one, where every operand of the chain runs along
    all of them or stands still; with ``skip_root`` the root's own operands are left to the caller."""
    out = function.ops[-1].out
    root = set(function.ops[0].operands) if skip_root else set()
    rank = len(out.shape)
    tail = tuple(out.shape[first:])

    def joined(shape: tuple[int | str, ...]) -> tuple[int | str, ...] | None:
        full = (*[1] * (rank - len(shape)), *shape)
        last = tuple(full[first:])
        if last == tail:
            return (*full[:first], product_text(last))
        return (*full[:first], 1) if all(d == 1 for d in last) else None

    chain_operands = {o for op in function.ops[int(skip_root) :] for o in op.operands}
    if first < 2 and any(op.kind == "affine" for op in function.ops):
        return None
    inputs = []
    for value in function.inputs:
        if value.id in root or value.id not in chain_operands:
            inputs.append(value)
            continue
        affine = any(op.kind == "affine" and value.id in op.operands[1:] for op in function.ops)
        shape = value.type.shape if affine else joined(value.type.shape)
        if shape is None:
            return None
        inputs.append(replace(value, type=replace(value.type, shape=shape)))
    ops = []
    for op in function.ops:
        shape = joined(op.out.shape)
        if shape is None:
            return None
        ops.append(replace(op, type=replace(op.out, shape=shape)))
    return replace(function, inputs=tuple(inputs), ops=tuple(ops))


def product_text(shape: Sequence[int | str]) -> int | str:
    """The number of elements of a stretch of a shape, as a dimension."""
    return as_dim(product(TensorType(tuple(shape)).extents))
