"""One C function per kernel, plain scalar code: ``name(p0, ..., y, begin, end)`` over independent work items.

The item range is the seam for threads, for CUDA (one thread per item) and for the vector kernels that replace these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Final

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.dims import Size
from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.symbols import Symbols, Unproved
from compiler_kernels.ir.text import format_op
from compiler_kernels.passes.fuse import ELEMENTWISE
from compiler_kernels.targets.c import (
    algebra,
    generators,
    indexing,
    movement,
    ordering,
    products,
    quantized,
    recurrent,
    reductions,
    resizing,
    resizing_runtime,
    rows,
    runtime_checks,
    runtime_moves,
    sampling,
    trees,
    windows,
)
from compiler_kernels.targets.c.elementwise import body_lines
from compiler_kernels.targets.c.row_form import by_rows
from compiler_kernels.targets.c.sizes import c_size, declarations, is_symbolic, local_sizes, localise, most, share
from compiler_kernels.targets.c.writer import Code, Kernel, c_type, decode, root_of

Emitter = Callable[[Graph, Code], None]

# Emitters of one output element (``t0``) ...
_POINT: Final[Mapping[str, Emitter]] = {
    "conv": products.conv,
    "conv_transpose": products.conv_transpose,
    "gemm": products.gemm,
    "matmul": lambda f, code: (products.matmul if "float" in root_of(f).out.dtype else quantized.matmul)(f, code),
    "max_pool": windows.pool,
    "average_pool": windows.pool,
    "global_average_pool": windows.global_pool,
    "global_max_pool": windows.global_pool,
    "resize": resizing.resize,
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
    **sampling.POINT,
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
    "resize_by": (resizing_runtime.resize, resizing_runtime.items),
    **indexing.ROW,
    **ordering.ROW,
    **trees.ROW,
    **algebra.ROW,
    **generators.ROW,
}
# Of these, symbolic sizes need another kernel than numbers do.
_ROW_SYMBOLIC: Final[Mapping[str, tuple[Emitter, Callable[[Graph], int]]]] = {
    "resize": (resizing_runtime.resize, resizing_runtime.items),
}
MAX_ITEMS: Final = 2**31 - 1


def emit_kernel(function: Graph, name: str = "", symbols: Symbols | None = None) -> Kernel:
    """C text of one L2 function. ``UnsupportedError`` for an operation or a size this generator has no kernel for.

    ``symbols`` are the module's, in the order of the engine's table of sizes; a function with symbolic dimensions takes
    that table as its last argument before the item range.
    """
    name = name or function.name
    comments = [f"/* {line.strip().replace('*/', '* /')} */" for op in function.ops for line in format_op(op)]
    if not is_symbolic(function):
        lines, items = _body(function)
        return _kernel(function, name, comments, lines, _bounded(function, items))
    local = localise(function)
    with local_sizes(local, symbols or {}):
        lines, count = _sized_body(function, local.function)
        lines, count = by_rows(local.function, lines) or (lines, count)
        items = _bounded(local.function, count)
        if any(" // " in line for line in lines):  # a size's division, which C would read as a comment
            raise _no_kernel(function)
    named = {name: name for name in local.locals}
    clip: list[str] = [] if isinstance(count, int) else share(f"(int)({c_size(count, named)})", items)
    head = [*declarations(local, list(symbols or {}), "\n".join([*clip, *lines])), *clip]
    return _kernel(function, name, comments, lines, items, head or ["(void)sizes;"])


def _sized_body(function: Graph, local: Graph) -> tuple[list[str], Size]:
    """:func:`_body` in terms of locals; an emitter that needs a number refuses with the operator's name."""
    try:
        return _body(local)
    except Unproved:
        raise _no_kernel(function) from None


def _no_kernel(function: Graph) -> UnsupportedError:
    root = root_of(function)
    shapes = ", ".join(str(list(v.type.shape)) for v in function.inputs)
    return UnsupportedError(
        f"operator {root.kind}{f' (node {root.node!r})' if root.node else ''} has no kernel for the shapes "
        f"{shapes}, whose sizes are known at run time only; pin a symbol in them (policy, shapes)"
    )


def _bounded(function: Graph, items: Size) -> int:
    """Most work items, for the declared sizes; refused where 32 bits cannot index a tensor."""
    for ttype in function.types().values():
        count = most(ttype.count)
        if count > MAX_ITEMS:
            raise UnsupportedError(
                f"operator {root_of(function).kind}: a tensor of {count} elements exceeds {MAX_ITEMS}"
            )
    return most(items)


def _body(function: Graph) -> tuple[list[str], Size]:
    """The lines that compute item ``i``, and how many items there are."""
    root = root_of(function)
    for ttype in function.types().values():
        if ttype.layout:
            raise UnsupportedError(f"operator {root.kind}: scalar code knows no layout {ttype.layout!r}")
    code = Code()
    items: Size = prod(root.out.dims)
    rows = {**_ROW, **_ROW_SYMBOLIC} if is_symbolic(function) else _ROW
    if root.kind in rows:
        emit, count = rows[root.kind]
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
    return without_unused_coordinates(code.lines), items


def _kernel(
    function: Graph, name: str, comments: Sequence[str], lines: Sequence[str], items: int, head: Sequence[str] = ()
) -> Kernel:
    code = Code()
    code.add(*comments)
    params = "".join(f"const {c_type(v.type)} *{v.id}, " for v in function.inputs)
    sizes = "const int64_t *sizes, " if head else ""
    result = c_type(function.ops[-1].out)
    with code.block(f"CA1_DEVICE static void {name}({params}{result} *y, {sizes}int begin, int end)"):
        code.add(*head)
        with code.block("for (int i = begin; i < end; i++)"):
            code.add(*lines)
    return Kernel(name, "\n".join(code.lines) + "\n", len(function.inputs), items, sizes=bool(head))


_COORDINATE: Final = re.compile(r"\s*const int (i\d+) = ")


def without_unused_coordinates(lines: list[str]) -> list[str]:
    """Lines without declarations of output coordinates that nothing reads (an axis of size one, a global pool...)."""
    used = "\n".join(line.partition(" = ")[2] if _COORDINATE.match(line) else line for line in lines)
    found = set(re.findall(r"\bi\d+\b", used))
    return [line for line in lines if not (m := _COORDINATE.match(line)) or m.group(1) in found]
