"""The chain behind an integer sum, in loops that compilers turn into vectors: its steady operands are read before."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_kernels.ir.graph import Graph
from compiler_kernels.passes.integers import place
from compiler_kernels.targets.c.elementwise import expression
from compiler_kernels.targets.c.writer import Code, c_type


@dataclass(frozen=True)
class Chain:
    """The operations of ``function`` after its root of kind ``kind``, for ``outputs`` channels or columns."""

    function: Graph
    kind: str
    outputs: int

    def emit(self, code: Code, lanes: int, result: tuple[int, int], by_row: bool) -> None:
        """Results of a strip from ``sums`` [position][``lanes`` outputs], whose first output is that of block ``b``.

        The surrounding code defines n, b, first, rows, sums and line (a row of sums, for a convolution)."""
        code.add(f"const int count = {self.outputs} - b * 16 < {lanes} ? {self.outputs} - b * 16 : {lanes};")
        ones, per_output, _ = self._operands()
        for name, ctype in ones:
            code.add(f"const {ctype} {name}_one = {name}[0];")
        last = c_type(self.function.ops[-1].out)
        if by_row:
            with code.block("for (int r = 0; r < rows; r++)"):
                code.add(f"const long at = (long)(first + r) * {self.outputs} + b * 16;")
                code.add(f"const int32_t *t = sums + r * {lanes};", f"{last} *out = y + at;", "(void)at;")
                with code.block("for (int j = 0; j < count; j++)"):
                    code.add(*self._lines("t[j]", "at + j", "b * 16 + j"), f"out[j] = {self.function.ops[-1].result};")
            return
        height, wide = result
        with code.block("for (int o = 0; o < count; o++)"):
            code.add(f"const long at = (((long)n * {self.outputs} + b * 16 + o) * {height} + first) * {wide};")
            code.add(f"const int positions = rows * {wide};", f"{last} *out = y + at;")
            for name, ctype in per_output:
                code.add(f"const {ctype} {name}_of = {name}[b * 16 + o];")
            code.add(f"for (int j = 0; j < positions; j++) line[j] = sums[j * {lanes} + o];")
            with code.block("for (int j = 0; j < positions; j++)"):
                code.add(*self._lines("line[j]", "at + j", ""), f"out[j] = {self.function.ops[-1].result};")

    def row(self, code: Code, size: int) -> None:
        """Results of row ``i`` of channel ``i1`` from its sums in ``line``."""
        ones, per_output, _ = self._operands()
        last = c_type(self.function.ops[-1].out)
        code.add(f"const long at = (long)i * {size};", f"{last} *out = y + at;")
        code.add(*(f"const {ctype} {name}_one = {name}[0];" for name, ctype in ones))
        code.add(*(f"const {ctype} {name}_of = {name}[i1];" for name, ctype in per_output))
        with code.block(f"for (int j = 0; j < {size}; j++)"):
            code.add(*self._lines("line[j]", "at + j", ""), f"out[j] = {self.function.ops[-1].result};")

    def _operands(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[tuple[str, str]]]:
        """Outside operands of the chain with their C types: single numbers, one per output, elements."""
        types, out = self.function.types(), self.function.ops[0].out
        found: dict[str, dict[str, str]] = {"one": {}, "output": {}, "element": {}}
        inputs = {v.id for v in self.function.inputs}
        for op in self.function.ops[1:]:
            for operand in op.operands:
                if operand in inputs:
                    where = place(types[operand], out, self.kind)
                    assert where is not None, operand
                    found[where][operand] = c_type(types[operand])
        return tuple(list(group.items()) for group in found.values())  # type: ignore[return-value]

    def _lines(self, value: str, element: str, output: str) -> list[str]:
        """Statements from the sum ``value`` to the last result; ``output`` is empty where those are read before."""
        types = self.function.types()
        ones, per_output, _ = (dict(group) for group in self._operands())
        root = self.function.ops[0]
        lines = [f"const int32_t {root.result} = {value};"]
        inner = {root.result}
        for op in self.function.ops[1:]:
            arguments = []
            for operand in op.operands:
                if operand in inner:
                    arguments.append(operand)
                elif operand in ones:
                    arguments.append(f"{operand}_one")
                elif operand in per_output:
                    arguments.append(f"{operand}[{output}]" if output else f"{operand}_of")
                else:
                    arguments.append(f"{operand}[{element}]")
            text = expression(op, arguments, types[op.operands[-1]].dtype)
            lines.append(f"const {c_type(op.out)} {op.result} = {text};")
            inner.add(op.result)
        return lines
