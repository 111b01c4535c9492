"""Resize of blocked values along spatial axes, nearest or linear: the nested two-tap form on four channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compiler_kernels.arithmetic.resize import is_two_tap, resize_tables
from compiler_kernels.ir.graph import Graph
from compiler_kernels.targets.c.writer import Code, c_float
from compiler_kernels.targets.cuda.families.positions import QUAD, Blocked, blocked_root, quad
from compiler_kernels.targets.cuda.families.text import ONE, computes_floats
from compiler_kernels.targets.cuda.gpu import Gpu
from compiler_kernels.targets.cuda.kernel import CudaKernel
from compiler_kernels.targets.vector.access import full_access

MOST_ENTRIES: Final = 1 << 16
"""Of a table, which is text."""


def resize(function: Graph, gpu: Gpu, name: str) -> CudaKernel | None:
    """The kernel of a ``resize`` from blocked to blocked, with what is fused behind it."""
    op = function.ops[0]
    if op.kind != "resize" or not computes_floats(function) or not blocked_root(function) or not is_two_tap(op):
        return None
    x_type = function.types()["p0"]
    missing = 5 - len(x_type.dims)
    tables = {t.axis - 2 + missing: t for t in resize_tables(op, x_type.dims)}
    outside = any(any(t.outside) for t in tables.values())
    if outside or any(a < 0 or len(t.low) > MOST_ENTRIES for a, t in tables.items()):
        return None
    x, frame = full_access("p0", x_type), Blocked(function, name)
    for axis, table in tables.items():
        columns: dict[str, tuple[str, Sequence[str]]] = {"low": ("int", [str(v) for v in table.low])}
        if table.weight_low:
            columns["high"] = ("int", [str(v) for v in table.high])
            columns["wl"] = ("float", [c_float(v) for v in table.weight_low])
            columns["wh"] = ("float", [c_float(v) for v in table.weight_high])
        for label, (ctype, values) in columns.items():
            frame.head.append(f"CA1_CONSTANT {ctype} {name}_{label}{axis}[] = {{{', '.join(values)}}};")

    def nested(code: Code, axis: int, terms: list[tuple[str, int]]) -> str:
        """Name of the value over the axes from ``axis`` on, innermost finished first."""
        if axis == 3:
            found = f"v{sum('float4 v' in line for line in code.lines)}"
            code.add(f"const float4 {found} = {quad('from', terms)};")
            return found
        index, step = "dhw"[axis], x.spatial[axis]
        table = tables.get(axis)
        if table is None:
            return nested(code, axis + 1, [*terms, (index, step)])
        low = nested(code, axis + 1, [*terms, (f"{name}_low{axis}[{index}]", step)])
        if not table.weight_low:
            return low
        high = nested(code, axis + 1, [*terms, (f"{name}_high{axis}[{index}]", step)])
        found = f"m{sum('float4 m' in line for line in code.lines)}"
        code.add(f"float4 {found};")
        wl, wh = (f"{name}_{w}{axis}[{index}]" for w in ("wl", "wh"))
        for part in QUAD:
            lower = f"{ONE('mul')}({wl}, {low}.{part})"
            code.add(f"{found}.{part} = {ONE.fma(wh, f'{high}.{part}', lower)};")
        return found

    def body(code: Code) -> None:
        code.add(f"const float *from = {x.at('n', 'cb', ['0', '0', '0'])} + q * 4;")
        code.add(f"const float4 value = {nested(code, 0, [])};")

    return frame.emit(body)
