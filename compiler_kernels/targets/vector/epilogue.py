"""What follows a sum of products on plain values: the elementwise operations of a fused statement, in graph order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.views import View, views_of
from compiler_kernels.targets.c.writer import c_float, linear
from compiler_kernels.targets.vector.vec import Vec

CHEAP: Final = frozenset(
    "relu neg abs reciprocal floor ceil leaky_relu hard_sigmoid hard_swish clip add sub mul div min max prelu "
    "add_c".split()
)
"""Operations of a few instructions, written out per accumulator; a chain with any other becomes a loop."""


def partial_load(vec: Vec, name: str, address: str, count: int | str) -> str:
    """Declare vector ``name`` from ``count`` floats, +0 in the other lanes, reading no further."""
    lanes = f"{name}_part"
    return (
        f"float {lanes}[{vec.lanes}] = {{0.0f}}; for (int l = 0; l < {count}; l++) {lanes}[l] = ({address})[l]; "
        f"const {vec.type} {name} = {vec.load(lanes)};"
    )


def partial_store(vec: Vec, address: str, value: str, count: int | str) -> str:
    """Store the first ``count`` lanes of ``value``."""
    return (
        f"{{ float part[{vec.lanes}]; {vec.store('part', value)} "
        f"for (int l = 0; l < {count}; l++) ({address})[l] = part[l]; }}"
    )


@dataclass(frozen=True, slots=True)
class Operand:
    """A plain operand of the chain seen from the root's result: its parameter and one step per axis of the result."""

    view: View
    pointer: str  # name of the C pointer to the element that meets the tile's first row and column


class PlainChain:
    """Statements for the operations after the root, on vectors along the result's last axis (``columns``)."""

    def __init__(self, function: Graph, ops: Sequence[Op], dims: Sequence[int], vec: Vec) -> None:
        self.ops, self.vec = tuple(ops), vec
        params = {v.id for v in function.inputs}
        views = views_of(function.ops, {v.id: v.type for v in function.inputs})
        self.operands: dict[str, Operand] = {}
        self.possible = True
        for op in ops:
            for position, operand in enumerate(op.operands):
                if operand not in views:
                    self.possible &= operand not in params
                    continue
                view = views[operand]
                if op.kind == "affine" and position > 0:  # one value per channel, which is axis 1
                    view = replace(
                        view, dims=(*view.dims, *[1] * (len(dims) - 2)), steps=(*view.steps, *[0] * (len(dims) - 2))
                    )
                view = view.broadcast(dims)
                if operand in self.operands:
                    self.possible &= self.operands[operand].view == view
                    continue
                self.possible &= view.steps[-1] in (0, 1) if dims else True
                self.operands[operand] = Operand(view, f"e{len(self.operands)}")

    @property
    def cheap(self) -> bool:
        return all(op.kind in CHEAP for op in self.ops)

    @property
    def pointers(self) -> list[str]:
        return [o.pointer for o in self.operands.values()]

    def statements(
        self, root: str, value: str, row: str, column: str, count: int, known: Mapping[str, str] | None = None
    ) -> tuple[list[str], str]:
        """C statements applied to ``value`` of the root's result ``root``; and the name of the final vector.

        ``row``: C expression of the row within the tile (axis -2); ``column`` of the first column; ``count`` lanes
        that exist. ``known``: operands that were read before, and the names they have.
        """
        vec = self.vec
        names = {root: value}
        lines: list[str] = []
        loaded = dict(known or {})
        result = value
        for op in self.ops:
            arguments = []
            for operand in op.operands:
                found = self.operands.get(operand)
                if found is None:
                    arguments.append(names.get(operand, operand))
                    continue
                if operand not in loaded:
                    loaded[operand] = f"{found.pointer}_v"
                    lines.append(self._load(found, loaded[operand], row, column, count))
                arguments.append(loaded[operand])
            lines.append(self._add_c(op, arguments) if op.kind == "add_c" else vec.statement(op, arguments))
            result = op.result
        return lines, result

    def _add_c(self, op: Op, arguments: list[str]) -> str:
        """The last operand of a gemm: ``sum + (beta * c + 0)``, where the product is left out for beta = 1."""
        vec, (value, c) = self.vec, arguments
        beta = op.float_("beta")
        addend = c if beta == 1.0 else f"{vec('mul')}({vec.set1(c_float(beta))}, {c})"
        return f"const {vec.type} {op.result} = {vec.add(value, vec.add(addend, vec.set1('0.0f')))};"

    def _load(self, operand: Operand, name: str, row: str, column: str, count: int) -> str:
        steps = operand.view.steps
        terms = [(operand.pointer, 1), (row, steps[-2] if len(steps) > 1 else 0)]
        if not steps or steps[-1] == 0:
            return f"const {self.vec.type} {name} = {self.vec.set1(f'*({_address(terms)})')};"
        address = _address([*terms, (column, 1)])
        if count < self.vec.lanes:
            return partial_load(self.vec, name, address, count)
        return f"const {self.vec.type} {name} = {self.vec.load(address)};"


def _address(terms: Sequence[tuple[str, int]]) -> str:
    """Sum of ``term * factor``; numbers are folded and zero terms left out."""
    constant, rest = 0, []
    for term, factor in terms:
        if factor == 0:
            continue
        if term.isdigit():
            constant += int(term) * factor
        else:
            rest.append((term, factor))
    return linear(rest, constant)
