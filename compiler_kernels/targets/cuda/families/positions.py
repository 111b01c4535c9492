"""Frame of kernels that write a blocked value: one thread for four channels of a position, halo included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, linear
from compiler_kernels.targets.cuda.families.text import ONE, kernel_text, launched, split
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import Chain, three

THREADS: Final = 128
QUAD: Final = "xyzw"
"""Members of a float4: channels 4q to 4q + 3 of the block."""


class Blocked:
    """``n``, ``cb``, ``d``, ``h``, ``w`` are the position's batch, channel block and place without halo, ``q`` the
    quarter of the block."""

    def __init__(self, function: Graph, name: str, skip_root: bool = True) -> None:
        self.function, self.name = function, name
        self.chain = Chain(function, ONE, skip_root)
        self.out = function.ops[-1].out
        self.halo = three(self.out.physical.halo, 0)
        self.size = three(self.out.dims[2:], 1)
        self.head: list[str] = []

    def emit(self, body: Callable[[Code], None]) -> CudaKernel:
        """``body`` declares ``float4 value``, the root's result (nothing where the chain starts from operands)."""
        out, halo = self.out, self.halo
        sizes = [out.dims[0], out.physical.blocks, *(s + 2 * h for s, h in zip(self.size, halo, strict=True)), 4]
        items = prod(sizes)
        with kernel_text(self.function, self.name) as code:
            code.add(f"const int i = block * {THREADS} + (int)threadIdx.x;")
            code.add(*([f"if (i >= {items}) return;"] if items % THREADS else []))
            split(code, "i", sizes, ["n", "cb", "dp", "hp", "wp", "q"])
            code.add(*(f"const int {a} = {a}p - {h}; (void){a};" for a, h in zip("dhw", halo, strict=True)))
            code.add("float4 *to = (float4 *)y + i;")
            outside = [f"{a} < 0 || {a} >= {s}" for a, s, h in zip("dhw", self.size, halo, strict=True) if h]
            code.add("cuvil_grid_wait();")
            if outside:
                with code.block(f"if ({' || '.join(outside)})"):
                    code.add("*to = make_float4(0.0f, 0.0f, 0.0f, 0.0f);", "return;")
            body(code)
            self._chain(code)
        blocks = -(-items // THREADS)
        return launched(self.function, self.name, code, blocks, THREADS, head=self.head, independent=True)

    def _chain(self, code: Code) -> None:
        chain = self.chain
        for name, access in chain.accesses.items():
            place = access.at("n", "cb", ["d", "h", "w"])
            if access.broadcast:
                code.add(f"const float {name}_v = *({place});")
            else:
                code.add(f"const float4 {name}_v = *(const float4 *)({place} + q * 4);")
        tail = self.out.dims[1] % BLOCK
        results = []
        for lane, part in enumerate(QUAD):
            names: dict[str, str] = {"t0": f"value.{part}"} if not _from_operands(chain) else {}
            result = f"value.{part}"
            for op in chain.ops:
                arguments = []
                for operand in op.operands:
                    found = chain.accesses.get(operand)
                    if found is None:
                        arguments.append(names.get(operand, f"{operand}_{part}"))
                    else:
                        arguments.append(f"{operand}_v" if found.broadcast else f"{operand}_v.{part}")
                result = f"{op.result}_{part}"
                statement = ONE.statement(op, arguments)
                code.add(
                    statement.replace(f" {op.result} =", f" {result} =").replace(f"{op.result}_lanes", f"{result}_l")
                )
                names[op.result] = result
            if tail:
                last = f"cb == {self.out.physical.blocks - 1} && q * 4 + {lane} >= {tail}"
                result = f"({last} ? 0.0f : {result})"
            results.append(result)
        code.add(f"*to = make_float4({', '.join(results)});")


def _from_operands(chain: Chain) -> bool:
    """Whether the chain's first operation is the function's own first, so that no ``t0`` comes from a root."""
    return bool(chain.ops) and chain.ops[0].result == "t0"


def quad(pointer: str, terms: Sequence[tuple[str, int]], offset: int = 0) -> str:
    """The four floats at an address, which is aligned."""
    return f"*(const float4 *)({linear([(pointer, 1), *terms], offset)})"


def blocked_root(function: Graph) -> bool:
    """Whether the root reads one blocked value and the statement's result is blocked."""
    types = function.types()
    root = function.ops[0]
    return function.ops[-1].out.layout.startswith("c16") and types[root.operands[0]].layout.startswith("c16")
