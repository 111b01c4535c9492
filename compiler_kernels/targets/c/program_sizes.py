"""The part of engine.c that knows symbolic sizes: the table of sizes, and ``bind``, which fills it from the inputs.

A host writes the sizes of every input into its ``extents`` and calls ``bind``: it reads each symbol from the axis that
is the symbol, checks the declared bounds and every other axis, and writes the extents of the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.ir.dims import Expr, Size
from compiler_kernels.ir.graph import TensorType, Value
from compiler_kernels.ir.symbols import Bound, Symbols
from compiler_kernels.targets.c.sizes import c_size, most, symbol_places
from compiler_kernels.targets.c.writer import c_string

Outputs = Sequence[tuple[str, TensorType]]


def room(ttype: TensorType) -> TensorType:
    """The static type of a buffer that holds ``ttype`` at every declared size."""
    return ttype if ttype.is_static else TensorType(tuple(most(d) for d in ttype.extents), ttype.dtype)


def extents_of(kind: str, prefix: str, number: int, ttype: TensorType) -> str:
    """C name of the run-time sizes of input or output ``number``; ``0`` where they are fixed."""
    return "0" if ttype.is_static else f"{prefix}_{kind}{number}_extents"


def axes_of(kind: str, prefix: str, number: int, ttype: TensorType) -> str:
    """C name of the texts of the axes; ``0`` where they are numbers."""
    return "0" if ttype.is_static else f"{prefix}_{kind}{number}_axes"


def size_tables(inputs: Sequence[Value], outputs: Outputs, symbols: Symbols, prefix: str) -> list[str]:
    """Definitions of the table of sizes, at the largest ones until ``bind`` is called, of the extents, and of
    what reports say about both."""
    largest = ", ".join(str(b.hi) for b in symbols.values())
    lines = [
        f'__attribute__((visibility("hidden"))) int64_t {prefix}_sizes[] = {{{largest}}}; /* {", ".join(symbols)} */'
    ]
    for kind, types in (("in", [v.type for v in inputs]), ("out", [t for _, t in outputs])):
        for n, ttype in enumerate(types):
            if not ttype.is_static:
                dims = ", ".join(str(d) for d in room(ttype).dims)
                lines.append(f"static int64_t {extents_of(kind, prefix, n, ttype)}[] = {{{dims}}};")
                texts = ", ".join(c_string(str(d)) for d in ttype.shape)
                lines.append(f"static const char *const {axes_of(kind, prefix, n, ttype)}[] = {{{texts}}};")
    rows = ", ".join(f"{{{c_string(s)}, {b.lo}, {b.hi}, {b.step}}}" for s, b in symbols.items())
    return [*lines, f"static const cuvil_symbol {prefix}_symbols[] = {{{rows}}};"]


def bind_function(inputs: Sequence[Value], outputs: Outputs, symbols: Symbols, prefix: str) -> list[str]:
    """``static const char *<prefix>_bind(void)``: NULL, or the sentence that says which size is not taken."""
    places = symbol_places(list(symbols), f"{prefix}_sizes")
    defined: dict[str, str] = {}
    reads, checks = [], []
    for n, value in enumerate(inputs):
        name = value.name or value.id
        for axis, size in enumerate(value.type.extents):
            if value.type.is_static:
                continue
            at = f"{prefix}_in{n}_extents[{axis}]"
            symbol, factor = _multiple(size)
            differs = f"{at} != {c_size(size, places)}"
            if symbol not in symbols or symbol in defined:
                wanted = f"{size}" + (f", like {defined[symbol]}" if symbol in defined else "")
                checks.append(_refuse(differs, f"axis {axis} of input '{name}' must be {wanted}"))
                continue
            defined[symbol] = f"axis {axis} of input '{name}'"
            reads.append(f"{places[symbol]} = {at}{f' / {factor}' if factor != 1 else ''};")
            test = _outside(places[symbol], symbols[symbol]) + (f" || {differs}" if factor != 1 else "")
            checks.append(_refuse(test, _sentence(name, axis, symbol, factor, symbols[symbol])))
    missing = [s for s in symbols if s not in defined]
    if missing:
        raise UnsupportedError(
            f"no axis of an input is the symbol {missing[0]!r} itself, so an engine cannot learn its size; pin it"
        )
    writes = []
    for n, (_, ttype) in enumerate(outputs):
        if not ttype.is_static:
            for axis, size in enumerate(ttype.extents):
                writes.append(f"{prefix}_out{n}_extents[{axis}] = {c_size(size, places)};")
    body = [*reads, *checks, *writes, "return 0;"]
    return [f"static const char *{prefix}_bind(void) {{", *(f"    {line}" for line in body), "}", ""]


def _outside(value: str, bound: Bound) -> str:
    step = f" || {value} % {bound.step} != 0" if bound.step != 1 else ""
    return f"{value} < {bound.lo} || {value} > {bound.hi}{step}"


def _multiple(size: Size) -> tuple[str, int]:
    """``(symbol, factor)`` of a size that is a positive multiple of one symbol."""
    if isinstance(size, Expr) and len(size.terms) == 1:
        monomial, factor = size.terms[0]
        if len(monomial) == 1 and isinstance(monomial[0], str) and factor > 0:
            return monomial[0], factor
    return "", 0


def _sentence(name: str, axis: int, symbol: str, factor: int, bound: Bound) -> str:
    shown = f"{factor} * {symbol}" if factor != 1 else symbol
    step = bound.step * factor
    kind = f"a multiple of {step} " if step != 1 else ""
    return (
        f"axis {axis} of input '{name}' is {shown}, which must be {kind}from {bound.lo * factor} to {bound.hi * factor}"
    )


def _refuse(test: str, sentence: str) -> str:
    return f"if ({test}) return {c_string(sentence)};"
