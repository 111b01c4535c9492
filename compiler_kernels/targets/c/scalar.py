"""One C function per kernel, plain scalar code: ``name(p0, ..., y, begin, end)`` over independent work items.

The item range is the seam for threads, for CUDA (one thread per item) and for the vector kernels that replace these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Final

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.text import format_op
from compiler_kernels.passes.fuse import ELEMENTWISE
from compiler_kernels.targets.c import (
    generators,
    indexing,
    movement,
    ordering,
    products,
    quantized,
    recurrent,
    reductions,
    rows,
    runtime_checks,
    runtime_moves,
    trees,
    windows,
)
from compiler_kernels.targets.c.elementwise import body_lines
from compiler_kernels.targets.c.writer import Code, Kernel, c_type, decode, root_of

Emitter = Callable[[Graph, Code], None]

# Emitters of one output element (``t0``) ...
_POINT: Final[Mapping[str, Emitter]] = {
    "conv": products.conv,
    "conv_transpose": products.conv_transpose,
    "gemm": products.gemm,
    "matmul": products.matmul,
    "max_pool": windows.pool,
    "average_pool": windows.pool,
    "global_average_pool": windows.global_pool,
    "global_max_pool": windows.global_pool,
    "resize": windows.resize,
    **dict.fromkeys((f"reduce_{kind}" for kind in "mean sum max min prod".split()), reductions.reduce),
    "conv_integer": quantized.conv_integer,
    "matmul_integer": quantized.matmul_integer,
    "transpose": movement.transpose,
    "slice": movement.slice_,
    "concat": movement.concat,
    "pad": movement.pad,
    "expand": movement.expand,
    "reshape": movement.copy,
    "copy": movement.copy,
    **indexing.POINT,
    **ordering.POINT,
    **generators.POINT,
}
# ... and of a whole row per item.
_ROW: Final[Mapping[str, tuple[Emitter, Callable[[Graph], int]]]] = {
    "softmax": (rows.softmax, rows.softmax_items),
    "log_softmax": (rows.softmax, rows.softmax_items),
    "layer_normalization": (rows.norm, rows.norm_items),
    "rms_normalization": (rows.norm, rows.norm_items),
    "instance_normalization": (rows.norm, rows.norm_items),
    "group_normalization": (rows.norm, rows.norm_items),
    **dict.fromkeys(("lstm", "gru", "rnn"), (recurrent.recurrent, recurrent.recurrent_items)),
    "checked": (runtime_checks.checked, runtime_checks.items),
    "by_axes": (runtime_checks.by_axes, runtime_checks.items),
    "slice_at": (runtime_moves.slice_at, runtime_moves.row_items),
    "pad_by": (runtime_moves.pad_by, runtime_moves.row_items),
    "range": (runtime_moves.range_, runtime_moves.element_items),
    "col2im": (runtime_moves.col2im, runtime_moves.element_items),
    **indexing.ROW,
    **ordering.ROW,
    **trees.ROW,
    **generators.ROW,
}
MAX_ITEMS: Final = 2**31 - 1


def emit_kernel(function: Graph, name: str = "") -> Kernel:
    """C text of one L2 function. ``UnsupportedError`` for an operation or a size this generator has no kernel for."""
    root = root_of(function)
    name = name or function.name
    items = prod(root.out.dims)
    for ttype in function.types().values():
        if ttype.layout:
            raise UnsupportedError(f"operator {root.kind}: scalar code knows no layout {ttype.layout!r}")
        if ttype.count > MAX_ITEMS:
            raise UnsupportedError(f"operator {root.kind}: a tensor of {ttype.count} elements exceeds {MAX_ITEMS}")
    code = Code()
    for op in function.ops:
        code.add(*(f"/* {line.strip().replace('*/', '* /')} */" for line in format_op(op)))
    params = "".join(f"const {c_type(v.type)} *{v.id}, " for v in function.inputs)
    with (
        code.block(f"CA1_DEVICE static void {name}({params}{c_type(function.ops[-1].out)} *y, int begin, int end)"),
        code.block("for (int i = begin; i < end; i++)"),
    ):
        if root.kind in _ROW:
            emit, count = _ROW[root.kind]
            items = count(function)
            emit(function, code)
        elif root.kind in ELEMENTWISE or root.kind == "affine":
            lines, coordinates = body_lines(function, skip_root=False)
            code.add(*(decode(root.out.dims) if coordinates else ()), *lines, f"y[i] = {function.ops[-1].result};")
        elif root.kind in _POINT:
            _POINT[root.kind](function, code)
            lines, coordinates = body_lines(function, skip_root=True)
            declared = any(line.lstrip().startswith("const int i0 ") for line in code.lines)
            code.add(*(decode(root.out.dims) if coordinates and not declared else ()), *lines)
            code.add(f"y[i] = {function.ops[-1].result};")
        else:
            raise UnsupportedError(f"operator {root.kind} has no kernel generator")
    return Kernel(name, "\n".join(without_unused_coordinates(code.lines)) + "\n", len(function.inputs), items)


_COORDINATE: Final = re.compile(r"\s*const int (i\d+) = ")


def without_unused_coordinates(lines: list[str]) -> list[str]:
    """Lines without declarations of output coordinates that nothing reads (an axis of size one, a global pool...)."""
    used = "\n".join(line.partition(" = ")[2] if _COORDINATE.match(line) else line for line in lines)
    found = set(re.findall(r"\bi\d+\b", used))
    return [line for line in lines if not (m := _COORDINATE.match(line)) or m.group(1) in found]
