"""Slice, pad and concatenation along spatial axes of blocked values: rows made of runs of other rows or a constant."""

from __future__ import annotations

from dataclasses import dataclass

from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.layout import BLOCK
from compiler_kernels.targets.c.writer import Code, Kernel, c_float, linear, root_of
from compiler_kernels.targets.isa import Isa
from compiler_kernels.targets.vector.access import full_access, three
from compiler_kernels.targets.vector.block_rows import Rows


@dataclass(frozen=True, slots=True)
class Run:
    """``count`` positions of the result from ``at`` on: positions ``start``, ``start + step``... of operand ``source``,
    or the constant (``source`` -1)."""

    at: int
    count: int
    source: int
    start: int
    step: int


def runs_of(places: list[tuple[int, int]]) -> list[Run]:
    """``places``, (operand, position) of every position of one axis, joined to runs of constant step."""
    found: list[Run] = []
    for at, (source, position) in enumerate(places):
        last = found[-1] if found else None
        if last is not None and last.source == source:
            step = position - (last.start + (last.count - 1) * last.step)
            if source < 0 or last.count == 1 or step == last.step:
                found[-1] = Run(last.at, last.count + 1, source, last.start, 0 if source < 0 else step)
                continue
        found.append(Run(at, 1, source, position, 1))
    return found


def axis_places(op: Op, axis: int, sizes: list[int]) -> list[tuple[int, int]]:
    """Where each position of the result along ``axis`` (counted with N and C) comes from."""
    out = op.out.dims[axis]
    if op.kind == "slice":
        start, step = op.ints("starts")[axis], op.ints("steps")[axis]
        return [(0, start + i * step) for i in range(out)]
    if op.kind == "concat":
        if axis != op.int_("axis"):
            return [(0, i) for i in range(out)]
        return [(n, i) for n, size in enumerate(sizes) for i in range(size)]
    begin, size, mode = op.ints("pads")[axis], sizes[0], op.str_("mode")
    inside = range(-begin, out - begin)
    if mode == "constant":
        return [(0, i) if 0 <= i < size else (-1, 0) for i in inside]
    if mode == "edge":
        return [(0, min(max(i, 0), size - 1)) for i in inside]
    if mode == "wrap":
        return [(0, i % size) for i in inside]
    period = max(1, 2 * (size - 1))
    return [(0, min(i % period, period - i % period) if size > 1 else 0) for i in inside]


def moves(function: Graph, isa: Isa, name: str) -> Kernel | None:
    """A statement whose every axis is a list of runs; at most one axis mixes operands."""
    op = root_of(function)
    if op.kind not in ("slice", "pad", "concat") or not op.out.layout.startswith("c16") or len(function.ops) > 1:
        return None
    if op.kind == "concat" and op.int_("axis") == 1:
        return None
    rows = Rows(function, isa, name)
    types = function.types()
    accesses = [full_access(o, types[o]) for o in op.operands]
    rank = len(op.out.dims)
    plans = [[Run(0, 1, 0, 0, 1)]] * (5 - rank)
    for axis in range(2, rank):
        plans.append(runs_of(axis_places(op, axis, [types[o].dims[axis] for o in op.operands])))
    value = c_float(op.float_("value")) if op.kind == "pad" else "0.0f"
    depth_runs, height_runs, width_runs = plans
    vec = rows.vec

    def constant(code: Code, at: int, count: int, tail: int) -> None:
        with code.block(f"for (int c = {at}; c < {at + count}; c++)"):
            for lane in range(0, BLOCK, vec.lanes):
                text = vec.set1(value)
                if tail:
                    text = vec.masked(text, tail, lane) if lane < tail else vec.set1("0.0f")
                code.add(vec.store(f"y + c * {BLOCK} + {lane}", text))

    def one(code: Code, tail: int, vertical: tuple[Run, Run], run: Run) -> None:
        sources = {r.source for r in (*vertical, run)}
        if -1 in sources:
            constant(code, run.at, run.count, tail)
            return
        access = accesses[max(sources)]
        places = [linear([(f"({i} - {r.at})", r.step)], r.start) for i, r in zip(("d", "h"), vertical, strict=True)]
        start = access.at("n", "cb", [*(f"({p})" for p in places), str(run.start)])
        if run.step == 1:
            code.add(f"__builtin_memcpy(y + {run.at * BLOCK}, {start}, {run.count * BLOCK * 4});")
            return
        with code.block(f"for (int c = 0; c < {run.count}; c++)"):
            source = f"{start} + c * {run.step * BLOCK}"
            code.add(f"__builtin_memcpy(y + ({run.at} + c) * {BLOCK}, {source}, {BLOCK * 4});")

    def row(code: Code, tail: int) -> None:
        for high in depth_runs:
            with code.block(f"if (d >= {high.at} && d < {high.at + high.count})" if len(depth_runs) > 1 else ""):
                for middle in height_runs:
                    several = len(height_runs) > 1
                    head = f"if (h >= {middle.at} && h < {middle.at + middle.count})" if several else ""
                    with code.block(head):
                        for run in width_runs:
                            one(code, tail, (high, middle), run)

    assert three(op.out.dims[2:], 1) == (rows.depth, rows.height, rows.width)
    return rows.emit(row)
