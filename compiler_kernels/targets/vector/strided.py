"""Plain values that are moved or worked on element by element: packing into panels, copies, joins, elementwise chains.

Operands are read through slices, transposes, reshapes and expansions, and results written through transposes, so that
those cost no pass over memory of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.text import format_op
from compiler_kernels.ir.views import MOVES, View, joined_axes, views_of, written_view
from compiler_kernels.passes.fuse import ELEMENTWISE
from compiler_kernels.passes.products import PANELS, PANELS_TRANSPOSED
from compiler_kernels.targets.c.writer import Code, Kernel, linear
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.epilogue import PlainChain, partial_load, partial_store
from compiler_kernels.targets.vector.vec import Vec

CHUNK: Final = 1024
"""Elements of one axis that make a work item, where a statement has only that axis."""


def packing(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """A run-time right operand into panels of 16 columns; an item is one panel of one batch element."""
    last = function.ops[-1]
    kind = last.out.layout.split(" ")[1] if last.out.layout.startswith("packed ") else ""
    if last.kind != "copy" or kind not in (PANELS, PANELS_TRANSPOSED):
        return None
    views = views_of(function.ops, {v.id: v.type for v in function.inputs})
    if last.operands[0] not in views or any(op.kind not in MOVES for op in function.ops[:-1]):
        return None
    view = views[last.operands[0]]
    if len(view.dims) == 1:
        view = replace(view, dims=(*view.dims, 1), steps=(*view.steps, 0))
    if kind == PANELS_TRANSPOSED:
        view = replace(view, dims=view.dims[::-1], steps=view.steps[::-1])
    lead, (depth, columns) = view.dims[:-2], view.dims[-2:]
    k_step, n_step = view.steps[-2:]
    count = -(-columns // BLOCK)
    code = _opened(function, name)
    code.add(f"const int n = i % {count} * {BLOCK};")
    terms = _places(code, lead, view.steps, count)
    code.add(f"const float *x = {linear([(view.source, 1), *terms, ('n', n_step)], view.offset)};")
    code.add(f"float *out = y + (long)i * {depth * BLOCK};")
    rest = columns % BLOCK
    if rest:
        code.add(f"const int full = n + {BLOCK} <= {columns} ? {BLOCK} : {rest};")
        code.add(f"if (full < {BLOCK}) __builtin_memset(out, 0, {depth * BLOCK} * sizeof *out);")
    bound = "full" if rest else str(BLOCK)
    with code.block(f"for (int k = 0; k < {depth}; k++)"):
        code.add(
            f"for (int c = 0; c < {bound}; c++) out[k * {BLOCK} + c] = x[{linear([('k', k_step), ('c', n_step)])}];"
        )
    return _closed(code, function, name, count * prod(lead))


def join(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """Concatenation: an item copies what one index of the axes before the joined one takes from every operand."""
    op = function.ops[0]
    types = function.types()
    if op.kind != "concat" or len(function.ops) > 1 or any(types[v].layout for v in (*op.operands, op.result)):
        return None
    axis = op.int_("axis")
    inner = prod(op.out.dims[axis + 1 :])
    code = _opened(function, name)
    start, whole = 0, op.out.dims[axis] * inner
    for operand in op.operands:
        size = types[operand].dims[axis] * inner
        code.add(
            f"__builtin_memcpy(y + (long)i * {whole} + {start}, {operand} + (long)i * {size}, {size} * sizeof *y);"
        )
        start += size
    return _closed(code, function, name, prod(op.out.dims[:axis]))


@dataclass(frozen=True, slots=True)
class _Loops:
    """Axes of the result with adjacent ones merged wherever every view allows it; ``views[0]`` is y's."""

    dims: tuple[int, ...]
    views: tuple[View, ...]


def _merged(dims: Sequence[int], views: Sequence[View]) -> _Loops:
    size, steps = joined_axes(dims, views)
    if not size:
        size, steps = [1], [[1] if n == 0 else [0] for n in range(len(views))]
    shape = tuple(size)
    return _Loops(shape, tuple(replace(v, dims=shape, steps=tuple(s)) for v, s in zip(views, steps, strict=True)))


def strided(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """Moves, then elementwise operations, then transposes or reshapes, on plain values."""
    ops = function.ops
    begin = next((i for i, op in enumerate(ops) if op.kind not in MOVES and op.kind != "copy"), len(ops))
    end = begin
    while end < len(ops) and ops[end].kind in ELEMENTWISE and ops[end].kind != "affine":
        end += 1
    if any(t.layout for t in function.types().values()) or any(op.out.layout for op in ops):
        return None
    if any(op.kind not in ("transpose", "reshape") for op in ops[end:]):
        return None
    chain_ops = ops[begin:end]
    dims = chain_ops[-1].out.dims if chain_ops else ops[-1].out.dims
    if any(op.out.dims != dims for op in chain_ops):
        return None
    y = written_view(ops[end:], dims)
    views = views_of([op for op in ops if op.kind != "copy"], {v.id: v.type for v in function.inputs})
    if y is None:
        return None
    if not chain_ops:
        source = ops[-1].operands[0] if ops[-1].kind == "copy" else ops[-1].result
        if source not in views:
            return None
        return _copy(function, name, isa, _merged(dims, [y, views[source]]))
    chain = PlainChain(function, chain_ops, dims, Vec(isa))
    if not chain.possible:
        return None
    loops = _merged(dims, [y, *(o.view for o in chain.operands.values())])
    if any(v.steps[-1] not in (0, 1) for v in loops.views[1:]) or loops.views[0].steps[-1] != 1:
        return None
    for (key, operand), view in zip(list(chain.operands.items()), loops.views[1:], strict=True):
        chain.operands[key] = replace(operand, view=view)
    return _elementwise(function, name, isa, loops, chain)


def _copy(function: Graph, name: str, isa: Isa, loops: _Loops) -> Kernel:
    y, x = loops.views
    code = _opened(function, name)
    items, inner = _begin(code, loops)
    terms = _places(code, loops.dims[:-1], x.steps, 1 if len(loops.dims) > 1 else items)
    out = _places(code, loops.dims[:-1], y.steps, 1 if len(loops.dims) > 1 else items, declare=False)
    code.add(f"const float *x = {linear([(x.source, 1), *terms, ('first', x.steps[-1])], x.offset)};")
    code.add(f"float *out = {linear([('y', 1), *out, ('first', y.steps[-1])], y.offset)};")
    code.add(
        f"for (int c = 0; c < {inner}; c++) out[{linear([('c', y.steps[-1])])}] = x[{linear([('c', x.steps[-1])])}];"
    )
    return _closed(code, function, name, items)


def _begin(code: Code, loops: _Loops) -> tuple[int, str]:
    """Declare ``first``, the item's first index of the last axis; the number of items and of indices in an item."""
    size = loops.dims[-1]
    if len(loops.dims) > 1:
        code.add("const int first = 0;")
        return prod(loops.dims[:-1]), str(size)
    chunk = min(CHUNK, size)
    code.add(f"const int first = i * {chunk};")
    if size % chunk:
        code.add(f"const int count = first + {chunk} <= {size} ? {chunk} : {size % chunk};")
    return -(-size // chunk), "count" if size % chunk else str(chunk)


def _elementwise(function: Graph, name: str, isa: Isa, loops: _Loops, chain: PlainChain) -> Kernel:
    vec, y = Vec(isa), loops.views[0]
    code = _opened(function, name)
    items, inner = _begin(code, loops)
    repeat = 1 if len(loops.dims) > 1 else items
    out = _places(code, loops.dims[:-1], y.steps, repeat)
    code.add(f"float *out = {linear([('y', 1), *out, ('first', 1)], y.offset)};")
    for operand in chain.operands.values():
        view = operand.view
        terms = _places(code, loops.dims[:-1], view.steps, repeat, declare=False)
        address = linear([(view.source, 1), *terms, ("first", view.steps[-1])], view.offset)
        code.add(f"const float *{operand.pointer} = {address};")
    if isa.lanes > 1:
        code.add("int c = 0;")
        with code.block(f"for (; c + {isa.lanes} <= {inner}; c += {isa.lanes})"):
            lines, result = chain.statements("", "", "0", "c", isa.lanes)
            code.add(*lines, vec.store("out + c", result))
        size = loops.dims[-1]
        if size % isa.lanes == 0 and (len(loops.dims) > 1 or CHUNK % isa.lanes == 0):
            return _closed(code, function, name, items)
        with code.block(f"if (c < {inner})"):
            code.add(f"const int rest = {inner} - c;")
            lines, result = _partial(chain, vec)
            code.add(*lines, partial_store(vec, "out + c", result, "rest"))
        return _closed(code, function, name, items)
    with code.block(f"for (int c = 0; c < {inner}; c++)"):
        lines, result = chain.statements("", "", "0", "c", 1)
        code.add(*lines, vec.store("out + c", result))
    return _closed(code, function, name, items)


def _partial(chain: PlainChain, vec: Vec) -> tuple[list[str], str]:
    """The chain on the last, partly filled vector, whose number of lanes is the C variable ``rest``."""
    lines: list[str] = []
    for operand in chain.operands.values():
        if operand.view.steps[-1]:
            lines.append(partial_load(vec, f"{operand.pointer}_v", f"{operand.pointer} + c", "rest"))
        else:
            lines.append(f"const {vec.type} {operand.pointer}_v = {vec.set1(f'*{operand.pointer}')};")
    result = ""
    for op in chain.ops:
        found = [chain.operands.get(o) for o in op.operands]
        arguments = [f"{f.pointer}_v" if f else o for f, o in zip(found, op.operands, strict=True)]
        lines.append(vec.statement(op, arguments))
        result = op.result
    return lines, result


def _opened(function: Graph, name: str) -> Code:
    code = Code()
    for op in function.ops:
        code.add(*(f"/* {line.strip()} */" for line in format_op(op)))
    params = ", ".join(f"const float *{v.id}" for v in function.inputs)
    code.add(f"static void {name}({params}, float *y, int begin, int end) {{")
    code.add("    for (int i = begin; i < end; i++) {")
    code.depth = 2
    return code


def _closed(code: Code, function: Graph, name: str, items: int) -> Kernel:
    code.depth = 0
    code.add("    }", "}")
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), items)


def _places(
    code: Code, lead: Sequence[int], steps: Sequence[int], below: int, declare: bool = True
) -> list[tuple[str, int]]:
    """Index terms of the leading axes of item ``i``, of which ``below`` share the same ones; declares their indices."""
    terms: list[tuple[str, int]] = []
    for axis, size in enumerate(lead):
        under = below * prod(lead[axis + 1 :])
        if size == 1:
            continue
        if declare:
            first = axis == next(a for a, s in enumerate(lead) if s > 1)
            code.add(f"const int n{axis} = i{f' / {under}' if under > 1 else ''}{'' if first else f' % {size}'};")
        terms.append((f"n{axis}", steps[axis]))
    return terms
