"""What every Triton kernel is written with: lines, addresses, and elementwise operations as expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from compiler_kernels.ir.graph import Graph, Op
from compiler_kernels.ir.text import format_op

MOST_SHARED: Final = 48 * 1024
"""Bytes of shared memory of a kernel, which are declared in its PTX and not asked for at launch."""
SMALLEST_NORMAL: Final = 2.0**-126


class NoForm(Exception):
    """The function, or a part of it, is not said in Triton; the CUDA C++ generator makes its kernel."""


class Lines:
    """Python statements of one function body."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def add(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Statements below ``head``; the block itself where ``head`` is empty."""
        if head:
            self.add(head)
            self.depth += 1
        yield
        if head:
            self.depth -= 1

    def split(self, index: str, sizes: Sequence[int], names: Sequence[str]) -> None:
        """Declare ``names``, the coordinates of ``index`` in a row-major grid of ``sizes``."""
        below = int(np.prod(sizes))
        for position, (size, name) in enumerate(zip(sizes, names, strict=True)):
            below //= size
            part = f"{index} // {below}" if below > 1 else index
            self.add(f"{name} = {part}{f' % {size}' if position else ''}")


def kernel_source(function: Graph, name: str, body: Lines) -> str:
    """The decorated function ``name(p0, ..., y)`` with the operations it implements as comments."""
    parameters = ", ".join([*(v.id for v in function.inputs), "y"])
    comments = [f"    # {line.strip()}" for op in function.ops for line in format_op(op)]
    return "\n".join(["@triton.jit", f"def {name}({parameters}):", *comments, *body.lines]) + "\n"


def number(value: float) -> str:
    """The binary32 value nearest to ``value`` as a Python literal, which Triton reads as binary32.

    ``NoForm`` for subnormal numbers and NaN: Triton takes the former for binary64.
    """
    single = float(np.float32(value))
    if np.isnan(single) or 0.0 < abs(single) < SMALLEST_NORMAL:
        raise NoForm
    return f'float("{single}")' if np.isinf(single) else repr(single)


def linear(terms: Sequence[tuple[str, int]], offset: int = 0) -> str:
    """``a * 3 + b + 7``; "0" where nothing is left."""
    parts = [t if f == 1 else f"{t} * {f}" for t, f in terms if f]
    return " + ".join([*parts, *([str(offset)] if offset or not parts else [])])


def grid_address(pointer: str, rows: str, columns: str) -> str:
    """``pointer`` plus a column of row offsets and a row of column offsets; "0" for one that does not move."""
    parts = [f"({rows})[:, None]"] if rows != "0" else []
    parts += [f"({columns})[None, :]"] if columns != "0" else []
    return " + ".join([pointer, *parts])


_UNARY: Final = {
    "relu": "ca1_relu({0})",
    "neg": "{0} * -1.0",
    "abs": "tl.abs({0})",
    "sqrt": "tl.math.sqrt_rn({0})",
    "reciprocal": "tl.math.div_rn(1.0, {0})",
    "floor": "tl.math.floor({0})",
    "ceil": "tl.math.ceil({0})",
    "exp": "ca1_exp({0})",
    "log": "ca1_log({0})",
    "erf": "ca1_erf({0})",
    "tanh": "ca1_tanh({0})",
    "sigmoid": "ca1_sigmoid({0})",
    "softplus": "ca1_softplus({0})",
    "hard_swish": "ca1_hard_swish({0})",
}
_BINARY: Final = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "tl.math.div_rn({0}, {1})",
    "max": "ca1_max({0}, {1})",
    "min": "ca1_min({0}, {1})",
    "prelu": "ca1_leaky_relu({0}, {1})",
}


def expression(op: Op, arguments: Sequence[str]) -> str:
    """One elementwise operation on binary32 tensors (docs/arithmetic.md, 8). ``NoForm`` for one that has no form."""
    if op.kind in _UNARY:
        return _UNARY[op.kind].format(*arguments)
    if op.kind in _BINARY:
        return _BINARY[op.kind].format(*arguments)
    if op.kind == "affine":
        return f"tl.math.fma({', '.join(arguments)})"
    if op.kind in ("leaky_relu", "elu"):
        return f"ca1_{op.kind}({arguments[0]}, {number(op.float_('alpha'))})"
    if op.kind == "hard_sigmoid":
        return f"ca1_hard_sigmoid({arguments[0]}, {number(op.float_('alpha'))}, {number(op.float_('beta'))})"
    if op.kind == "gelu":
        return f"ca1_gelu{'_tanh' if op.str_('approximate') == 'tanh' else ''}({arguments[0]})"
    if op.kind == "clip":
        found = arguments[0]
        if op.has("lo"):
            found = f"ca1_maxn({found}, {number(op.float_('lo'))})"
        return f"ca1_minn({found}, {number(op.float_('hi'))})" if op.has("hi") else found
    raise NoForm


def chain(lines: Lines, ops: Sequence[Op], names: Mapping[str, str], result: str) -> str:
    """Add ``ops``; the name of the last result, ``result`` where there is none. ``names`` says what operands are
    called that are no results of theirs."""
    known = dict(names)
    for op in ops:
        found = f"v_{op.result}"
        lines.add(f"{found} = {expression(op, [known[o] for o in op.operands])}")
        known[op.result] = result = found
    return result
