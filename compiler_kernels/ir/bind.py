"""A symbolic module at given sizes: the static module that every pass, generator and reference understands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler_kernels.errors import UsageError
from compiler_kernels.ir.dims import evaluate
from compiler_kernels.ir.dims_text import parse_dim
from compiler_kernels.ir.graph import ANONYMOUS, Attr, Graph, Module, Op, TensorType, make_attrs
from compiler_kernels.ir.symbols import PREFIX, Symbols, symbols_of


def bind(module: Module, values: Mapping[str, int]) -> Module:
    """``module`` with every symbol replaced by its number, without symbols and verified nowhere (callers verify).

    ``UsageError`` when a symbol lacks a value, a value names no symbol, or a value lies outside the declared bounds.
    """
    check_values(symbols_of(module.meta), values)
    return replace(
        module,
        graphs=tuple(_graph(g, values) for g in module.graphs),
        meta=tuple(item for item in module.meta if not item[0].startswith(PREFIX)),
    )


def check_values(symbols: Symbols, values: Mapping[str, int]) -> None:
    """Exactly one value within its bounds for every symbol; ``UsageError`` otherwise."""
    for name in values:
        if name not in symbols:
            raise UsageError(
                f"a size is given for {name!r}, but the model's symbols are {', '.join(symbols) or 'none'}; correct it"
            )
    for name, bound in symbols.items():
        if name not in values:
            raise UsageError(f"no size is given for the symbol {name!r} ({bound}); add one")
        if values[name] not in bound:
            raise UsageError(f"{name} = {values[name]} is outside {bound}; give a size within the declared bounds")


def bind_type(found: TensorType, values: Mapping[str, int]) -> TensorType:
    """``found`` at these sizes; anonymous dimensions stay."""
    if found.is_static:
        return found
    dims = tuple(d if isinstance(d, int) or d == ANONYMOUS else evaluate(parse_dim(d), values) for d in found.shape)
    return replace(found, shape=dims)


def bind_attrs(attrs: Mapping[str, Attr], values: Mapping[str, int]) -> dict[str, Attr]:
    """Attributes of kind ``sizes`` (lists of texts) as numbers; the others as they are."""
    return {
        key: tuple(evaluate(parse_dim(v), values) for v in value if isinstance(v, str))
        if isinstance(value, tuple) and any(isinstance(v, str) for v in value)
        else value
        for key, value in attrs.items()
    }


def _op(op: Op, values: Mapping[str, int]) -> Op:
    return replace(
        op,
        type=None if op.type is None else bind_type(op.type, values),
        attrs=make_attrs(bind_attrs(dict(op.attrs), values)),
        body=tuple(_op(inner, values) for inner in op.body),
    )


def _graph(graph: Graph, values: Mapping[str, int]) -> Graph:
    return replace(
        graph,
        inputs=tuple(replace(v, type=bind_type(v.type, values)) for v in graph.inputs),
        ops=tuple(_op(op, values) for op in graph.ops),
    )
