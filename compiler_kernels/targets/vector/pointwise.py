"""Chains of elementwise operations: on blocked values, and on plain ones along their last axes."""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import Graph, TensorType
from compiler_kernels.ir.text import format_op
from compiler_kernels.passes.fuse import ELEMENTWISE
from compiler_kernels.targets.c.elementwise import expression
from compiler_kernels.targets.c.writer import Code, Kernel, linear, root_of, strides
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import flat_function
from compiler_kernels.targets.vector.block_rows import Rows
from compiler_kernels.targets.vector.vec import Vec

CHUNK = 4096
SMALL_PLANE = 1024


def blocked(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """An elementwise chain whose result is blocked."""
    if not _elementwise(function) or not function.ops[-1].out.layout.startswith("c16"):
        return None
    rows = Rows(_joined(function), isa, name, skip_root=False)

    def row(code: Code, tail: int) -> None:
        rows.columns(code, tail, lambda inner, lane: rows.chain.emit(inner, "", (0, 0, 0), lane, tail))

    return rows.emit(row, shown=function)


def _joined(function: Graph) -> Graph:
    """``function`` with small planes without halo as single rows: short rows would cost more than their contents."""
    out = function.ops[-1].out
    values = [v.type for v in function.inputs if v.type.layout.startswith("c16")]
    planes = all(t.dims[2:] == out.dims[2:] or prod(t.dims[2:]) == 1 for t in values)
    small = prod(out.dims[2:]) <= SMALL_PLANE and not any(any(t.physical.halo) for t in (*values, out))
    return flat_function(function) if planes and small else function


def plain(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """An elementwise chain on plain values: vectors over the last axes, in which every operand runs on or stands."""
    types = function.types()
    out = function.ops[-1].out
    if not _elementwise(function) or out.layout or isa.lanes == 1 or out.count == 0:
        return None
    operands = {o: types[o] for op in function.ops for o in op.operands if o.startswith("p")}
    if any(t.layout for t in operands.values()):
        return None
    per_channel = {o for op in function.ops if op.kind == "affine" for o in op.operands[1:]}
    shapes = {o: _aligned(t, out, o in per_channel) for o, t in operands.items()}
    run_axes = _run_axes(list(shapes.values()), out.dims)
    run = prod(out.dims[len(out.dims) - run_axes :])
    vec = Vec(isa)
    if run < vec.lanes:
        return None
    outer = out.dims[: len(out.dims) - run_axes]
    chunks = -(-run // CHUNK)
    code = Code()
    for op in function.ops:
        code.add(*(f"/* {line.strip()} */" for line in format_op(op)))
    params = ", ".join(f"const float *{v.id}_" for v in function.inputs)
    with (
        code.block(f"CA1_DEVICE static void {name}({params}, float *y_, int begin, int end)"),
        code.block("for (int item = begin; item < end; item++)"),
    ):
        code.add(f"const int row = item / {chunks}, first = item % {chunks} * {CHUNK};")
        code.add(f"const int stop = first + {CHUNK} < {run} ? first + {CHUNK} : {run};")
        step = prod(outer)
        for axis, size in enumerate(outer):
            step //= size
            code.add(f"const int i{axis} = row / {step} % {size};")
        moving = {}
        for operand, shape in shapes.items():
            steps = strides(shape)
            index = linear([(f"i{a}", steps[a]) for a in range(len(outer)) if shape[a] != 1])
            moving[operand] = prod(shape[len(outer) :]) > 1
            code.add(f"const float *{operand} = {operand}_ + {index};")
        code.add(f"float *y = y_ + row * {run};", *(f"(void)i{a};" for a in range(len(outer))), "int i = first;")
        with code.block(f"for (; i + {vec.lanes} <= stop; i += {vec.lanes})"):
            for op in function.ops:
                arguments = [_vector(o, moving, vec) for o in op.operands]
                code.add(vec.statement(op, arguments))
            code.add(vec.store("y + i", function.ops[-1].result))
        with code.block("for (; i < stop; i++)"):
            for op in function.ops:
                scalars = [f"{o}[{'i' if moving[o] else '0'}]" if o in moving else o for o in op.operands]
                code.add(f"const float {op.result} = {expression(op, scalars)};")
            code.add(f"y[i] = {function.ops[-1].result};")
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), prod(outer) * chunks)


def _vector(operand: str, moving: dict[str, bool], vec: Vec) -> str:
    if operand not in moving:
        return operand
    return vec.load(f"{operand} + i") if moving[operand] else vec.set1(f"{operand}[0]")


def _elementwise(function: Graph) -> bool:
    kind = root_of(function).kind
    return kind in ELEMENTWISE or kind == "affine"


def _aligned(ttype: TensorType, out: TensorType, per_channel: bool) -> tuple[int, ...]:
    """Shape of an operand with the rank of ``out``."""
    rank = len(out.dims)
    if per_channel:
        return (1, ttype.dims[0], *[1] * (rank - 2))
    return (*[1] * (rank - len(ttype.dims)), *ttype.dims)


def _run_axes(shapes: list[tuple[int, ...]], out: tuple[int, ...]) -> int:
    """How many trailing axes form one run: in each operand they are all full or all 1."""
    best = 0
    for axes in range(1, len(out) + 1):
        tails = [s[len(out) - axes :] for s in shapes]
        full = out[len(out) - axes :]
        if all(t == full or prod(t) == 1 for t in tails):
            best = axes
    return best
