"""Kernels over sizes known at run time: every symbolic dimension of a function becomes a C local.

The emitters are written for numbers. Inside :func:`local_sizes` the dimensions they see are expressions over the
locals ``n0, n1...``; formatted into C text an expression stands in parentheses. What an emitter cannot decide for all
sizes, or has no form for, is refused (``Unproved``), never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Final

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.dims import Call, Expr, Size, terms_of
from compiler_kernels.ir.dims_text import parse_dim
from compiler_kernels.ir.graph import Attr, Graph, Op, TensorType, sizes_as_expressions
from compiler_kernels.ir.symbols import Bound, Symbols, interval, proved_equal, prover, scope


@dataclass(frozen=True)
class LocalSizes:
    """A function in terms of its locals, and each local with the expression over the module's symbols it stands for."""

    function: Graph
    locals: Mapping[str, Expr]


def is_symbolic(function: Graph) -> bool:
    return any(not t.is_static for t in function.types().values())


def c_size(size: Size, names: Mapping[str, str]) -> str:
    """C expression (64-bit) of ``size``; ``names`` gives the C text of each symbol. ``//`` and the extremes call
    runtime/ca1_typed.h."""
    parts = []
    for monomial, factor in terms_of(size):
        words = [names[a] if isinstance(a, str) else _call(a, names) for a in monomial]
        parts.append(" * ".join([f"INT64_C({factor})", *words] if factor != 1 or not words else words))
    return f"({' + '.join(parts)})" if len(parts) > 1 else parts[0] if parts else "INT64_C(0)"


def _call(atom: Call, names: Mapping[str, str]) -> str:
    function = {"//": "cuvil_floordiv", "min": "cuvil_min", "max": "cuvil_max"}[atom.op]
    first, *rest = [c_size(a, names) for a in atom.args]
    for other in rest:
        first = f"{function}({first}, {other})"
    return first


def symbol_places(symbols: Sequence[str], array: str = "sizes") -> dict[str, str]:
    """C text of every symbol: its element of the engine's table of sizes."""
    return {name: f"{array}[{n}]" for n, name in enumerate(symbols)}


class _Renamer:
    def __init__(self) -> None:
        self.found: dict[str, Expr] = {}

    def dim(self, dim: int | str) -> int | str:
        if isinstance(dim, int):
            return dim
        size = parse_dim(dim)
        if isinstance(size, int):
            return size
        for name, known in self.found.items():
            if known.same(size) or (known.symbols == size.symbols and proved_equal(known, size)):
                return name
        self.found[f"n{len(self.found)}"] = size
        return f"n{len(self.found) - 1}"

    def type(self, ttype: TensorType) -> TensorType:
        return replace(ttype, shape=tuple(self.dim(d) for d in ttype.shape))

    def attr(self, value: Attr) -> Attr:
        """Lists of texts of sizes (the starts of a slice) in terms of locals."""
        if not (isinstance(value, tuple) and value and all(isinstance(v, str) for v in value)):
            return value
        sizes = [parse_dim(str(v)) for v in value]
        return tuple(str(s) if isinstance(s, int) else str(self.start(s)) for s in sizes)

    def start(self, size: Expr) -> Size:
        """An expression in terms of locals where it is one plus a number (``time - 1``), else a local of its own."""
        constant = next((f for m, f in size.terms if not m), 0)
        base = size - constant
        return size if isinstance(base, int) else parse_dim(str(self.dim(str(base)))) + constant

    def op(self, op: Op) -> Op:
        ttype = None if op.type is None else self.type(op.type)
        attrs = tuple((k, self.attr(v) if k == "starts" else v) for k, v in op.attrs)
        return replace(op, type=ttype, attrs=attrs, body=tuple(self.op(o) for o in op.body))


def localise(function: Graph) -> LocalSizes:
    """``function`` with ``n0, n1...`` for its distinct symbolic dimensions; equal sizes share a local."""
    renamer = _Renamer()
    inputs = tuple(replace(v, type=renamer.type(v.type)) for v in function.inputs)
    changed = replace(function, inputs=inputs, ops=tuple(renamer.op(o) for o in function.ops))
    return LocalSizes(changed, renamer.found)


@contextmanager
def local_sizes(local: LocalSizes, symbols: Symbols) -> Iterator[None]:
    """The scope in which emitters run: dimensions are expressions over the locals, within the locals' bounds."""
    bounds = {}
    for name, size in local.locals.items():
        low, high = _span(size, symbols)
        if low < 1:
            raise UnsupportedError(f"a dimension {size} may be empty for the declared sizes; bound them from below")
        bounds[name] = Bound(low, high)
    with scope(bounds), sizes_as_expressions():
        yield


TRIED: Final = 4096
"""Combinations of symbols that are tried where an interval is too wide."""


def _span(size: Expr, symbols: Symbols) -> tuple[int, int]:
    """Lowest and highest value of a size: exact where few combinations of its symbols exist, else its interval."""
    low, high = interval(size, symbols)
    values = [symbols[name].values for name in sorted(size.symbols) if name in symbols]
    if low >= 1 or len(values) < len(size.symbols):
        return low, high
    if prod(len(v) for v in values) > TRIED:
        return (1, high) if prover().proves("<=", 1, size) else (low, high)
    found = [size.evaluate(dict(zip(sorted(size.symbols), one, strict=True))) for one in product(*values)]
    return min(found), max(found)


def most(size: Size) -> int:
    """The largest value of a size for the declared sizes in scope."""
    return size if isinstance(size, int) else interval(size, prover().symbols)[1]


def declarations(local: LocalSizes, symbols: Sequence[str], text: str) -> list[str]:
    """C declarations of the locals that ``text`` uses."""
    places = symbol_places(symbols)
    return [
        f"const int {name} = (int){c_size(size, places)};"
        for name, size in local.locals.items()
        if _mentions(text, name)
    ]


def share(total: str, items: int) -> list[str]:
    """Statements that turn ``begin`` and ``end``, counted for ``items`` at the largest sizes, into those of the
    ``total`` at hand in proportion: threads share the work at every size."""
    return [
        f"const int total = {total};",
        f"begin = (int)((int64_t)begin * total / {max(1, items)});",
        f"end = (int)((int64_t)end * total / {max(1, items)});",
    ]


def _mentions(text: str, name: str) -> bool:
    start = text.find(name)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(name) : start + len(name) + 1]
        if not (before.isalnum() or before == "_") and not (after.isalnum() or after == "_"):
            return True
        start = text.find(name, start + 1)
    return False
