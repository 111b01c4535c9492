"""Sums of products on the threads of a block: leaves, how they meet, and what follows the sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compiler_kernels.arithmetic.order import RADIX, sum_order
from compiler_kernels.ir.views import View
from compiler_kernels.targets.c.writer import Code
from compiler_kernels.targets.cuda.families.text import ONE, address, is_constant, sum_tree
from compiler_kernels.targets.vector.product import Problem, Statement

KEPT: Final = 24
"""Registers of a thread for operands of the chain that are read before the sum is there."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """``leaves`` leaves of ``leaf`` products, the last of ``last``; ``at_once`` of them in a block, in ``rounds``."""

    leaves: int
    leaf: int
    last: int
    at_once: int

    @property
    def rounds(self) -> int:
        return -(-self.leaves // self.at_once)

    def products(self, leaf: str) -> str:
        """Number of products of ``leaf``, a C expression."""
        if self.last == self.leaf or self.leaves == 1:
            return str(self.last)
        return f"({leaf} == {self.leaves - 1} ? {self.last} : {self.leaf})"


def leaves_of(depth: int, most: int) -> Leaves:
    """All leaves at once if they are ``most`` at most, else whole nodes of them."""
    order = sum_order(depth, 1)
    leaf = min(depth, order.block * order.blocks_per_leaf)
    count = -(-depth // leaf)
    at_once = count if count <= most else max(1, most // RADIX) * RADIX
    return Leaves(count, leaf, depth - (count - 1) * leaf, at_once)


def whole_vectors(view: View, axes: Sequence[int]) -> bool:
    """Whether four consecutive elements of the last axis, from a multiple of four on, lie on 16 bytes."""
    steps = [view.steps[a] for a in axes if view.dims[a] > 1]
    return view.steps[-1] == 1 and view.offset % 4 == 0 and all(s % 4 == 0 for s in steps)


def lead_of(problem: Problem) -> list[tuple[str, int]]:
    return [(f"n{axis}", axis) for axis, size in enumerate(problem.batch) if size > 1]


def base_of(view: View, lead: Sequence[tuple[str, int]], terms: Sequence[tuple[str, int]] = ()) -> str:
    return address(view.source, [*((n, view.steps[axis]) for n, axis in lead), *terms], view.offset)


def merged_sum(code: Code, leaves: Leaves, partial: str, step: int) -> None:
    """``const float sum`` of ``partial[leaf * step]``."""
    sum_tree(code, [f"{partial}[{n * step}]" if n else f"{partial}[0]" for n in range(leaves.leaves)], "sum")


def push_nodes(code: Code, leaves: Leaves, partial: str, step: int, tree: str) -> None:
    """Nodes of the leaves of a round, from leaf ``from`` on, pushed to ``tree`` in order."""
    code.add(f"const float *part = {partial};")
    with code.block(f"for (int n = 0; n < {leaves.at_once} && from + n < {leaves.leaves}; n += {RADIX})"):
        code.add(f"float node = part[n * {step}];")
        inside = f"j < {RADIX} && from + n + j < {leaves.leaves}"
        code.add(f"for (int j = 1; {inside}; j++) node = {ONE.add('node', f'part[(n + j) * {step}]')};")
        code.add(f"ca1_tree_push({tree}, node);")


class Ending:
    """What follows the sum of a product, on the ``count`` results of one thread. ``place`` declares row ``r`` and
    column ``c`` of result ``t``, which there is where ``exists`` (a C expression; empty for always).

    Operands of the chain are read into registers early, constants before the wait for the launch before: read after the
    sum, each would cost a way to memory.
    """

    def __init__(self, found: Statement, lead: Sequence[tuple[str, int]], count: int, place: str, exists: str) -> None:
        self.found, self.lead, self.count, self.place, self.exists = found, lead, count, place, exists
        self.known: dict[str, str] = {}
        moving = sum(any(o.view.steps[-2:]) for o in found.chain.operands.values())
        self.early = count * moving <= KEPT

    def read(self, code: Code, constant: bool) -> None:
        """Read the operands that are constants, or those that are not."""
        for name, operand in self.found.chain.operands.items():
            if not self.early or is_constant(operand.view.source) != constant:
                continue
            pointer, steps = operand.pointer, operand.view.steps
            code.add(f"const float *{pointer} = {base_of(operand.view, self.lead)};")
            if not any(steps[-2:]):
                code.add(f"const float {pointer}_v = *{pointer};")
                self.known[name] = f"{pointer}_v"
                continue
            code.add(f"float {pointer}_v[{self.count}];")
            value = f"{pointer}_v[t] = *({address(pointer, [('r', steps[-2]), ('c', steps[-1])])});"
            code.add("#pragma unroll")
            with code.block(f"for (int t = 0; t < {self.count}; t++)"):
                code.add(self.place, "(void)r, (void)c;")
                code.add(f"if ({self.exists}) {value}" if self.exists else value)
            self.known[name] = f"{pointer}_v[t]"

    def write(self, code: Code, total: Sequence[str]) -> None:
        """``total`` are the statements that declare ``sum`` of result ``t``; then the chain, and the result to y."""
        chain, y = self.found.chain, self.found.problem.y
        if not self.early:
            for operand in chain.operands.values():
                code.add(f"const float *{operand.pointer} = {base_of(operand.view, self.lead)};")
        lines, result = chain.statements(self.found.root, "a", "r", "c", 1, self.known)
        target = base_of(y, self.lead, [("r", y.steps[-2]), ("c", y.steps[-1])])
        code.add("#pragma unroll")
        with code.block(f"for (int t = 0; t < {self.count}; t++)"):
            code.add(self.place, "(void)r, (void)c;")
            with code.block(f"if ({self.exists})" if self.exists else ""):
                code.add(*total, "float a = sum;", *(line.format(a="a") for line in self.found.first), *lines)
                code.add(f"*({target}) = {result};")
