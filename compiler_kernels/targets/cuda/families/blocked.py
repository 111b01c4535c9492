"""What the kernels that write blocked values share: the end of a sum (bias, fused operations, store) and the halo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from compiler_kernels.ir.bands import rows_of
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.text import format_op
from compiler_kernels.targets.c.writer import Code, linear
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.isa import SCALAR
from compiler_kernels.targets.vector.access import Access, Chain, full_access, operand_access, plain_access, three
from compiler_kernels.targets.vector.closing import is_expensive
from compiler_kernels.targets.vector.vec import Vec

LANES: Final = "xyzw"


class Ending:
    """Text of ``finish`` and ``ready`` for the function's result, and the operands that ``finish`` takes."""

    def __init__(self, function: Graph, bias: str) -> None:
        types = function.types()
        self.function, self.bias = function, bias
        self.out = function.ops[-1].out
        self.chain = Chain(function, Vec(SCALAR))
        self.accesses: dict[str, Access] = {}
        if bias:
            self.accesses[bias] = operand_access(bias, types[bias], self.out)
        self.accesses |= self.chain.accesses
        self.y = full_access("y", self.out) if self.out.layout else plain_access("y", self.out)
        self.rows = rows_of(function)
        if self.rows:  # the kernel counts from the band's first row
            self.y = replace(self.y, origin=self.y.origin + self.rows[0] * self.y.spatial[1])

    @property
    def operands(self) -> list[str]:
        return list(self.accesses)

    def chain_function(self, name: str) -> list[str]:
        """``<name>_chain(t0, <operands>)``: the fused operations on one element; nothing where there are none."""
        if not self.chain.ops:
            return []
        code = Code()
        used = list(self.chain.accesses)
        head = "static __device__ __noinline__" if is_expensive(self.chain.ops) else "CUVIL_FN"
        parameters = ", ".join(["float t0", *(f"float {p}" for p in used)])
        with code.block(f"{head} float {name}_chain({parameters})"):
            for op in self.chain.ops:
                code.add(self.chain.vec.statement(op, list(op.operands)))
            code.add(f"return {self.chain.ops[-1].result};")
        return code.lines

    def finish_function(self, name: str) -> list[str]:
        """``finish(sum, n, oc, d, h, w, y, <operands>)``: four outputs from channel ``oc`` on at a position."""
        code = Code()
        pointers = "".join(f", const float *{p}" for p in self.operands)
        with code.block(f"CUVIL_FN void finish(float4 sum, int n, int oc, int d, int h, int w, float *y{pointers})"):
            code.add("(void)n, (void)d, (void)h, (void)w;")
            bias = f"cuvil_load4({self._at(self.accesses[self.bias])})" if self.bias else "cuvil_zero4()"
            code.add(f"sum = cuvil_add4(sum, {bias});")
            for operand, access in self.chain.accesses.items():
                if access.broadcast:
                    code.add(f"const float e_{operand} = *({self._at(access, lanes=False)});")
                else:
                    code.add(f"const float4 e_{operand} = cuvil_load4({self._at(access)});")
            if self.chain.ops:
                for lane in LANES:
                    arguments = [f"sum.{lane}"]
                    for operand, access in self.chain.accesses.items():
                        arguments.append(f"e_{operand}" + ("" if access.broadcast else f".{lane}"))
                    code.add(f"sum.{lane} = {name}_chain({', '.join(arguments)});")
            channels = self.out.dims[1]
            if not self.out.layout:
                for i, lane in enumerate(LANES):
                    place = linear(
                        [("n", self.y.batch), (f"(oc + {i})", self.y.block), *zip("dhw", self.y.spatial, strict=True)]
                    )
                    code.add(f"if (oc + {i} < {channels}) y[{place}] = sum.{lane};")
            else:
                if channels % BLOCK:
                    for i, lane in enumerate(LANES):
                        code.add(f"if (oc + {i} >= {channels}) sum.{lane} = 0.0f;")
                code.add(f"cuvil_store4({self._at(self.y)}, sum);")
        return code.lines

    def _at(self, access: Access, lanes: bool = True) -> str:
        address = access.at("n", "(oc / 16)", list("dhw"))
        return f"{address} + oc % 16" if lanes else address

    def ready_function(self, blocks: int, threads: int, release: bool = True, first: int = 0) -> list[str]:
        """``ready(y, block)``: waits for earlier kernels, then zeroes the block's share of the result's halo, which
        all ``blocks`` have; ``block`` counts from block ``first`` of the launch on.

        ``release``: the next kernel may start once all blocks came here. Earlier would let a row of kernels wait on
        the multiprocessors for each other.
        """
        code = Code()
        with code.block("CUVIL_FN void ready(float *y, int block)"):
            code.add("cuvil_grid_wait();", *(["cuvil_grid_release();"] if release else []))
            layout = self.out.physical
            halo = three(layout.halo, 0) if self.out.layout else (0, 0, 0)
            if any(halo):
                size = ", ".join(map(str, three(self.out.dims[2:], 1)))
                planes, own = self.out.dims[0] * layout.blocks, f"(block + {first})" if first else "block"
                if self.rows:
                    numbers = f"{self.rows[0]}, {self.rows[1]}, {size.split(', ', 1)[1]}, {halo[1]}, {halo[2]}"
                    code.add(f"cuvil_halo_rows<{numbers}>(y, {own} * {threads} + threadIdx.x, {blocks * threads});")
                    return code.lines
                code.add(
                    f"cuvil_halo<{planes}, {size}, {', '.join(map(str, halo))}>(y, {own} * {threads} + threadIdx.x, "
                    f"{blocks * threads});"
                )
            else:
                code.add("(void)y, (void)block;")
        return code.lines


def constants(values: Mapping[str, int | bool]) -> str:
    """The body of ``static constexpr int``."""
    return "static constexpr int " + ", ".join(f"{k} = {int(v)}" for k, v in values.items()) + ";"


def comments(function: Graph) -> list[str]:
    """The operations of ``function`` as comments."""
    return [f"/* {line.strip().replace('*/', '* /')} */" for op in function.ops for line in format_op(op)]


def by_phase(name: str, values: Sequence[int]) -> str:
    """``static int NAME(int phase)`` of a struct, returning one of ``values``."""
    text = str(values[-1])
    if len(set(values)) > 1:
        for n in range(len(values) - 2, -1, -1):
            text = f"phase == {n} ? {values[n]} : {text}"
    return f"CUVIL_FN int {name}(int phase) {{ (void)phase; return {text}; }}"


def indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def block_kernel(
    function: Graph,
    name: str,
    head: Sequence[str],
    body: Sequence[str],
    blocks: int,
    threads: int,
    resident: int,
    gpu: Gpu,
    shared: int = 0,
    workspace: int = 0,
    tickets: int = 0,
    independent: bool = False,
) -> CudaKernel:
    """The kernel whose block number ``block`` does ``body``; ``head`` stands at file scope before it. ``resident``:
    blocks per multiprocessor that the compiler leaves registers for."""
    found = [(f"const float *{v.id}", v.id) for v in function.inputs] + [("float *y", "y")]
    found += [("unsigned char *workspace", "workspace")] if workspace else []
    found += [("unsigned *tickets", "tickets")] if tickets else []
    declared, names = ", ".join(d for d, _ in found), ", ".join(n for _, n in found)
    lines = [*head, f"CUVIL_FN void {name}_block(const int block, {declared})", "{", *indented(body), "}"]
    text = "\n".join(lines) + "\n"
    return CudaKernel(
        name,
        f'{text}extern "C" __global__ void __launch_bounds__({threads}, {resident}) {name}({declared})\n{{\n'
        f"    {name}_block((int)blockIdx.x, {names});\n}}\n",
        (blocks, 1, 1),
        threads,
        shared,
        workspace,
        tickets,
        independent=independent,
        dependent=gpu.clusters,
        block_text="" if workspace or tickets else text,
    )
