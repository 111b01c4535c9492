"""Values that are moved: between layouts, into panels, joined, cut, padded, resized; one thread for each result.

A thread writes one element (four channels of a blocked value), threads in the order of the result's memory. Plain
elementwise chains with the moves in their body are here too, as they are reads at other places.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.ir.views import MOVES, View, joined_axes, views_of, written_view
from compiler_kernels.passes.fuse import ELEMENTWISE
from compiler_kernels.passes.products import PANELS, PANELS_TRANSPOSED
from compiler_kernels.targets.c.writer import Code, c_float, linear
from compiler_kernels.targets.cuda.families.positions import Blocked
from compiler_kernels.targets.cuda.families.text import ONE, address, computes_floats, kernel_text, launched, split
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import full_access, plain_access, three
from compiler_kernels.targets.vector.moves import axis_places, runs_of

THREADS: Final = 128


def _each(code: Code, items: int) -> None:
    """Declare ``i``, the thread's element, once the launch before has ended."""
    code.add(f"const int i = block * {THREADS} + (int)threadIdx.x;")
    code.add(*([f"if (i >= {items}) return;"] if items % THREADS else []))
    code.add("cuvil_grid_wait();")


def _launch(function: Graph, name: str, code: Code, items: int) -> CudaKernel:
    return launched(function, name, code, -(-items // THREADS), THREADS, independent=True)


def relayout(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The same value in another layout."""
    if function.ops[0].kind != "relayout" or len(function.ops) > 1 or not computes_floats(function):
        return None
    x_type, out = function.types()["p0"], function.ops[0].out
    if out.layout.startswith("c16"):
        return _to_blocks(function, name)
    y = full_access("y", out) if out.layout else plain_access("y", out)
    x = full_access("p0", x_type) if x_type.layout else plain_access("p0", x_type)
    halo = three(out.physical.halo, 0) if out.layout else (0, 0, 0)
    size = three(out.dims[2:], 1)
    padded = [s + 2 * h for s, h in zip(size, halo, strict=True)]
    items = prod(out.dims[:2]) * prod(padded)
    with kernel_text(function, name) as code:
        _each(code, items)
        split(code, "i", [*out.dims[:2], *padded], ["n", "c", "dp", "hp", "wp"])
        code.add(*(f"const int {a} = {a}p - {h}; (void){a};" for a, h in zip("dhw", halo, strict=True)))
        channel, lane = ("c / 16", " + c % 16") if x_type.layout.startswith("c16") else ("c", "")
        value = f"*({x.at('n', f'({channel})', ['d', 'h', 'w'])}{lane})"
        inside = [f"{a} >= 0 && {a} < {s}" for a, s, h in zip("dhw", size, halo, strict=True) if h]
        test = " && ".join(inside)
        code.add(f"y[i] = {test} ? {value} : 0.0f;" if inside else f"y[i] = {value};")
    assert y.batch * out.dims[0] == items
    return _launch(function, name, code, items)


def _to_blocks(function: Graph, name: str) -> CudaKernel:
    x_type = function.types()["p0"]
    x = full_access("p0", x_type) if x_type.layout else plain_access("p0", x_type)

    def body(code: Code) -> None:
        if x_type.layout.startswith("c16"):
            code.add(f"const float4 value = *(const float4 *)({x.at('n', 'cb', ['d', 'h', 'w'])} + q * 4);")
            return
        code.add(f"const float *from = {x.at('n', '(cb * 16 + q * 4)', ['d', 'h', 'w'])};")
        channels, values = x_type.dims[1], []
        for lane in range(4):
            value = f"from[{lane * x.block}]"
            whole = channels % BLOCK == 0
            values.append(value if whole else f"cb * 16 + q * 4 + {lane} < {channels} ? {value} : 0.0f")
        code.add(f"const float4 value = make_float4({', '.join(values)});")

    return Blocked(function, name).emit(body)


def packing(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """A run-time right operand into panels of 16 columns."""
    last = function.ops[-1]
    kind = last.out.layout.split(" ")[1] if last.out.layout.startswith("packed ") else ""
    if last.kind != "copy" or kind not in (PANELS, PANELS_TRANSPOSED) or not computes_floats(function):
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
    panels = -(-columns // BLOCK)
    items = prod(lead) * panels * depth * BLOCK
    with kernel_text(function, name) as code:
        _each(code, items)
        names = [f"n{a}" for a in range(len(lead))]
        split(code, "i", [*lead, panels, depth, BLOCK], [*names, "panel", "k", "c"])
        code.add(f"const int column = panel * {BLOCK} + c;")
        terms = [*zip(names, view.steps[:-2], strict=True), ("k", view.steps[-2]), ("column", view.steps[-1])]
        value = f"*({address(view.source, terms, view.offset)})"
        code.add(f"y[i] = {f'column < {columns} ? {value} : 0.0f' if columns % BLOCK else value};")
    return _launch(function, name, code, items)


def strided(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """Moves, then elementwise operations, then transposes or reshapes, on plain values."""
    ops = function.ops
    begin = next((i for i, op in enumerate(ops) if op.kind not in MOVES and op.kind != "copy"), len(ops))
    end = begin
    while end < len(ops) and ops[end].kind in ELEMENTWISE and ops[end].kind != "affine":
        end += 1
    if not computes_floats(function) or any(t.layout for t in function.types().values()):
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
    read: dict[str, View] = {}
    for op in chain_ops:
        for operand in op.operands:
            if operand in views:
                read[operand] = views[operand].broadcast(dims)
    if not chain_ops:
        source = ops[-1].operands[0] if ops[-1].kind == "copy" else ops[-1].result
        if source not in views:
            return None
        read[source] = views[source]
    made = {op.result for op in chain_ops}
    if any(o not in read and o not in made for op in chain_ops for o in op.operands):
        return None
    order = sorted(range(len(dims)), key=lambda a: (-y.steps[a], a))  # threads follow each other in y
    turned = [
        replace(v, dims=tuple(dims[a] for a in order), steps=tuple(v.steps[a] for a in order))
        for v in (y, *read.values())
    ]
    size, steps = joined_axes([dims[a] for a in order], turned)
    items = prod(dims)
    with kernel_text(function, name) as code:
        _each(code, items)
        names = [f"i{a}" for a in range(len(size))]
        split(code, "i", size, names)
        loaded: dict[str, str] = {}
        for number, (operand, view) in enumerate(read.items()):
            loaded[operand] = f"v{number}"
            terms = list(zip(names, steps[number + 1], strict=True))
            code.add(f"const float v{number} = *({address(view.source, terms, view.offset)});")
        result = next(iter(loaded.values())) if not chain_ops else ""
        for op in chain_ops:
            code.add(ONE.statement(op, [loaded.get(o, o) for o in op.operands]))
            result = op.result
        code.add(f"*({address('y', list(zip(names, steps[0], strict=True)), y.offset)}) = {result};")
    return _launch(function, name, code, items)


def join(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """Concatenation of plain values, or of blocked ones that are whole blocks."""
    op, types = function.ops[0], function.types()
    if op.kind != "concat" or len(function.ops) > 1 or not computes_floats(function):
        return None
    axis = op.int_("axis")
    if op.out.layout.startswith("c16") and axis == 1:
        return _join_blocks(function, name)
    if any(t.layout for t in types.values()):
        return None
    inner, whole = prod(op.out.dims[axis + 1 :]), prod(op.out.dims[axis:])
    with kernel_text(function, name) as code:
        _each(code, op.out.count)
        split(code, "i", [op.out.count // whole, whole], ["outer", "at"])
        start = 0
        for number, operand in enumerate(op.operands):
            size = types[operand].dims[axis] * inner
            value = f"{operand}[{linear([('outer', size), ('at', 1)], -start)}]"
            last = number == len(op.operands) - 1
            code.add(f"{'else ' if number else ''}{'' if last else f'if (at < {start + size}) '}y[i] = {value};")
            start += size
    return _launch(function, name, code, op.out.count)


def _join_blocks(function: Graph, name: str) -> CudaKernel:
    op, types = function.ops[0], function.types()

    def body(code: Code) -> None:
        code.add("float4 value;")
        first = 0
        for number, operand in enumerate(op.operands):
            blocks = types[operand].physical.blocks
            source = full_access(operand, types[operand]).at("n", f"(cb - {first})", ["d", "h", "w"])
            first += blocks
            last = number == len(op.operands) - 1
            test = "" if last else f"if (cb < {first}) "
            code.add(f"{'else ' if number else ''}{test}value = *(const float4 *)({source} + q * 4);")

    return Blocked(function, name).emit(body)


def moves(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """Slice, pad and concatenation of blocked values along spatial axes: every axis is a list of runs."""
    op, types = function.ops[0], function.types()
    if op.kind not in ("slice", "pad", "concat") or not op.out.layout.startswith("c16") or len(function.ops) > 1:
        return None
    if not computes_floats(function) or (op.kind == "concat" and op.int_("axis") == 1):
        return None
    rank = len(op.out.dims)
    accesses = [full_access(o, types[o]) for o in op.operands]
    value = c_float(op.float_("value")) if op.kind == "pad" else "0.0f"

    def body(code: Code) -> None:
        code.add("int source = 0;", "int from[3] = {0, 0, 0};")
        for axis in range(2, rank):
            place = axis + 5 - rank - 2
            name_ = "dhw"[place]
            runs = runs_of(axis_places(op, axis, [types[o].dims[axis] for o in op.operands]))
            for number, run in enumerate(runs):
                test = "" if number == len(runs) - 1 else f"if ({name_} < {run.at + run.count}) "
                start = linear([(f"({name_} - {run.at})", run.step)], run.start)
                pick = f" source = {run.source};" if run.source else ""
                code.add(f"{'else ' if number else ''}{test}{{ from[{place}] = {start};{pick} }}")
        code.add(f"float4 value = make_float4({', '.join([value] * 4)});")
        for number, access in enumerate(accesses):
            at = access.at("n", "cb", ["from[0]", "from[1]", "from[2]"])
            code.add(f"if (source == {number}) value = *(const float4 *)({at} + q * 4);")
        tail = op.out.dims[1] % BLOCK
        if tail and op.kind == "pad":
            for lane, part in enumerate("xyzw"):
                code.add(f"if (cb == {op.out.physical.blocks - 1} && q * 4 + {lane} >= {tail}) value.{part} = 0.0f;")

    return Blocked(function, name).emit(body)
