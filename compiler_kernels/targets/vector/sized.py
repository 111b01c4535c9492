"""Vector kernels over sizes known at run time: row-major values, dimensions as expressions over C locals.

A family returns a :class:`Body`; this module makes the C function around it. Work items are counted for the largest
sizes; a kernel divides the items there are at the size at hand in the same proportion, so that threads share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler_kernels.ir.dims import Size, product
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.text import format_op
from compiler_kernels.targets.c.sizes import share
from compiler_kernels.targets.c.writer import Code, Kernel


def steps_of(dims: Sequence[Size]) -> list[Size]:
    """Row-major strides in elements."""
    return [product(dims[axis + 1 :]) for axis in range(len(dims))]


@dataclass(frozen=True)
class Body:
    """What a family emits: the statements of work item ``item`` and what stands before the loop over items.

    ``total`` is the number of items as a C expression, which may use names of ``setup``; ``items`` the same as a size.
    ``before`` holds helper functions.
    """

    lines: Sequence[str]
    total: str
    items: Size
    setup: Sequence[str] = ()
    before: Sequence[str] = field(default=())


def assemble(function: Graph, name: str, body: Body, most: int, head: Sequence[str]) -> Kernel:
    """The kernel: ``head`` declares the locals the body uses."""
    code = Code()
    code.add(*body.before)
    code.add(*(f"/* {line.strip().replace('*/', '* /')} */" for op in function.ops for line in format_op(op)))
    params = ", ".join([*(f"const float *{v.id}" for v in function.inputs), "float *y, const int64_t *sizes"])
    with code.block(f"static void {name}({params}, int begin, int end)"):
        code.add(*(head or ["(void)sizes;"]), *body.setup, *share(body.total, most))
        with code.block("for (int item = begin; item < end; item++)"):
            code.add(*body.lines)
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), most, sizes=True)
