"""Text every CUDA kernel of these families shares: signature, place of a block, elementwise chains on one element."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.text import format_op
from compiler_kernels.passes.fuse import ELEMENTWISE_TYPED
from compiler_kernels.targets.c.writer import Code, c_type, linear
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.isa import SCALAR
from compiler_kernels.targets.vector.vec import Vec

_CONSTANTS: ContextVar[frozenset[str]] = ContextVar("constant operands", default=frozenset())
MOST_ELEMENTS: Final = 2**31 - 4096
"""Of one value, so that 32 bits hold the number of any thread of a launch that has one per element."""
ONE: Final = Vec(SCALAR)
"""The vector layer of one lane: every operation is one explicitly rounded intrinsic on the device."""


def indexable(function: Graph) -> bool:
    """Whether 32 bits hold every element's place in memory, halo and padded channels included."""
    return all(t.physical.elements <= MOST_ELEMENTS for t in function.types().values())


def computes_floats(function: Graph) -> bool:
    """Whether every value is binary32 and every size a number, 32 bits hold every element's place, and no operation has
    scalar code only."""
    return (
        all(t.dtype == "float32" and t.is_static and t.count for t in function.types().values())
        and indexable(function)
        and not any(op.kind in ELEMENTWISE_TYPED for op in function.ops)
    )


def one_plain_statement(function: Graph) -> bool:
    """Whether ``function`` is one statement on binary32 values without layouts."""
    return len(function.ops) == 1 and computes_floats(function) and not any(t.layout for t in function.types().values())


@contextmanager
def constant_operands(names: Iterable[str]) -> Iterator[None]:
    """Say within the ``with`` statement which parameters are constants at every call: kernels read those before they
    wait for the launch before."""
    token = _CONSTANTS.set(frozenset(names))
    try:
        yield
    finally:
        _CONSTANTS.reset(token)


def is_constant(parameter: str) -> bool:
    return parameter in _CONSTANTS.get()


@contextmanager
def kernel_text(function: Graph, name: str) -> Iterator[Code]:
    """Code of ``<name>_block``, the work of thread block ``block``: the statements as a comment, then the function."""
    code = Code()
    for op in function.ops:
        code.add(*(f"/* {line.strip().replace('*/', '* /')} */" for line in format_op(op)))
    with code.block(f"CUVIL_FN void {name}_block(const int block, {_parameters(function)})"):
        yield code


def _parameters(function: Graph) -> str:
    """``const float *p0, ..., float *y``."""
    found = [f"const {c_type(v.type)} *{v.id}" for v in function.inputs]
    return ", ".join([*found, f"{c_type(function.ops[-1].out)} *y"])


def launched(
    function: Graph, name: str, code: Code, blocks: int, threads: int, shared: int = 0, head: Sequence[str] = (),
    cluster: int = 1, independent: bool = False,
) -> CudaKernel:  # fmt: skip
    """The kernel whose work is ``code``, made by :func:`kernel_text`; ``head`` stands before it at file scope."""
    text = "\n".join([*head, *code.lines]) + "\n"
    arguments = "".join(f"{v.id}, " for v in function.inputs)
    return CudaKernel(
        name,
        f'{text}extern "C" __global__ void __launch_bounds__({threads}) {name}({_parameters(function)})\n{{\n'
        f"    {name}_block((int)blockIdx.x, {arguments}y);\n}}\n",
        (blocks, 1, 1),
        threads,
        shared,
        cluster=cluster,
        independent=independent,
        dependent=True,
        block_text=text if cluster == 1 else "",
    )


def split(code: Code, index: str, sizes: Sequence[int], names: Sequence[str]) -> None:
    """Declare ``names``, the coordinates of ``index`` in a row-major grid of ``sizes``."""
    below = 1
    for size in sizes:
        below *= size
    for position, (size, name) in enumerate(zip(sizes, names, strict=True)):
        below //= size
        if size == 1:
            code.add(f"const int {name} = 0;", f"(void){name};")
            continue
        part = f"{index} / {below}" if below > 1 else index
        code.add(f"const int {name} = {part}{f' % {size}' if any(s > 1 for s in sizes[:position]) else ''};")


def sum_tree(code: Code, values: Sequence[str], result: str, radix: int = 8) -> None:
    """``const float result``: nodes of 8 of the expressions ``values``, each read once (docs/arithmetic.md, 3.3)."""
    level, number = list(values), 0
    while len(level) > 1:
        above: list[str] = []
        for first in range(0, len(level), radix):
            part = level[first : first + radix]
            if len(part) == 1:
                above.append(part[0])
                continue
            node = f"{result}_n{number}"
            number += 1
            code.add(f"float {node} = {ONE.add(part[0], part[1])};")
            code.add(*(f"{node} = {ONE.add(node, v)};" for v in part[2:]))
            above.append(node)
        level = above
    code.add(f"const float {result} = {level[0] if level else '0.0f'};")


def address(pointer: str, terms: Sequence[tuple[str, int]], offset: int = 0) -> str:
    """``pointer + a * 3 + 7``."""
    return linear([(pointer, 1), *terms], offset)
