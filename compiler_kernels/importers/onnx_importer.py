"""ONNX file to L0 module. Opsets 7 to the newest the onnx package knows; static shapes after pinning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.importers import (
    activations,
    algebra,
    casting,
    classical,
    containers,
    control_flow,
    data_dependent,
    einsum,
    elementwise,
    generators,
    gridded,
    indexing,
    movement,
    normalisations,
    ordering,
    quantized,
    recurrent,
    reductions,
    resizing,
    sampling,
    shaping,
    slicing,
    trees,
    windowed,
)
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.declared import carried_back, stated_types
from compiler_kernels.importers.finish import finish
from compiler_kernels.importers.folding import fold, to_array
from compiler_kernels.importers.functions import expand, function_key, local_functions
from compiler_kernels.importers.inline import live_names
from compiler_kernels.importers.model_file import MIN_OPSET, load, opset_of
from compiler_kernels.importers.node import Node, make_node
from compiler_kernels.importers.refusal import refusal
from compiler_kernels.importers.signature import declared_type, identifier, pin
from compiler_kernels.ir.dtypes import DTYPES, numpy_dtype
from compiler_kernels.ir.graph import Module, TensorType, Value
from compiler_kernels.ir.symbols import Bound, Symbols, Unproved, meta_of, proved_equal, scope
from compiler_kernels.ir.text import format_type
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.proofs.breaks import used_symbols

OPERATORS: dict[str, Callable[[Context], None]] = {
    **elementwise.IMPORTERS,
    **activations.IMPORTERS,
    **casting.IMPORTERS,
    **generators.IMPORTERS,
    **windowed.IMPORTERS,
    **algebra.IMPORTERS,
    **movement.IMPORTERS,
    **containers.IMPORTERS,
    **shaping.IMPORTERS,
    **slicing.IMPORTERS,
    **normalisations.IMPORTERS,
    **reductions.IMPORTERS,
    **gridded.IMPORTERS,
    **resizing.IMPORTERS,
    **sampling.IMPORTERS,
    **recurrent.IMPORTERS,
    **control_flow.IMPORTERS,
    **quantized.IMPORTERS,
    **indexing.IMPORTERS,
    **ordering.IMPORTERS,
    **einsum.IMPORTERS,
    **data_dependent.IMPORTERS,
}
"""Operators of the ai.onnx domain that become L0 operations; others may still be evaluated on constants."""

ML_OPERATORS: dict[str, Callable[[Context], None]] = {
    **indexing.ML_IMPORTERS,
    **trees.IMPORTERS,
    **classical.IMPORTERS,
}
"""Operators of the ai.onnx.ml domain."""


def import_onnx(
    data: bytes,
    *,
    filename: str,
    pins: Mapping[str, tuple[int, ...]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    bounds: Symbols | None = None,
    random_seed: int | None = None,
) -> tuple[Module, WeightStore]:
    """Read an ONNX model into a verified L0 module and its weights.

    ``pins`` gives static shapes for inputs by name (``--input-shape``), ``ranges`` the value ranges a policy guards
    (they bound run-time trip counts), ``bounds`` the range of each symbol that stays variable (the policy's
    ``shapes``); sizes that follow from one are expressions, proved to fit for all its values (docs/shapes.md);
    ``random_seed`` seeds random operators that have no seed of their own.
    ``Module.meta`` records the source signature with its symbols, their bounds, the opset and the producer.
    ``UsageError``: not a valid ONNX model, or pins that contradict it.
    ``UnsupportedError``: an operator, type or shape that cannot be compiled, named with node, domain and opset.
    """
    given = bounds or {}
    try:
        with scope(given):
            return _import(data, filename, pins or {}, ranges or {}, given, random_seed)
    except CuvilError as error:
        if not given:
            raise
        refused = error

    def static(values: Mapping[str, int]) -> None:
        with scope({}):
            _import(data, filename, pins or {}, ranges or {}, {n: Bound(v, v) for n, v in values.items()}, random_seed)

    raise refusal(refused, given, static) from None


def _import(
    data: bytes,
    filename: str,
    pins: Mapping[str, tuple[int, ...]],
    ranges: Mapping[str, tuple[float, float]],
    bounds: Symbols,
    random_seed: int | None,
) -> tuple[Module, WeightStore]:
    model = load(data, filename)
    opset = opset_of(model, filename)
    graph = model.graph
    constants = {t.name for t in graph.initializer}
    declared = {i.name: declared_type(i) for i in graph.input if i.name not in constants}
    for info in graph.input:
        if info.name not in constants and not info.type.HasField("tensor_type"):
            raise UnsupportedError(f"{filename}: input {info.name!r} is not a tensor; only tensors are compiled")
    types = pin(declared, pins, bounds)
    nodes = [make_node(p, i, _version(model, p, opset)) for i, p in enumerate(graph.node)]
    live = live_names(nodes, [o.name for o in graph.output])
    stated = carried_back(nodes, stated_types(graph))
    ctx = Context(WeightStore(), live, dispatch=_import_node, domains=_domains(model), stated=stated)
    ctx.functions = local_functions(model)
    inputs = _inputs(ctx, types)
    ctx.random_seed = random_seed
    ctx.highest = {v.id: ranges[v.name][1] for v in inputs if v.name in ranges}
    for tensor in graph.initializer:
        if tensor.name in live:
            ctx.tensors[tensor.name] = _initializer(tensor, filename)
    for node in nodes:
        if any(o in live for o in node.outputs):
            ctx.node = node
            _import_node(ctx, node)
    outputs = data_dependent.finished(ctx, [o.name for o in graph.output])
    _check_outputs(ctx, graph, filename)
    meta = {
        "model": graph.name or "model",
        "opset": str(opset),
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        **meta_of({name: bound for name, bound in bounds.items() if name in used_symbols(list(types.values()), {})}),
    }
    for value in inputs:
        shown = declared[value.name]
        meta[f"signature.{value.id}"] = format_type(shown) if shown else "float32 of unknown rank"
    return finish(ctx, inputs, outputs, meta), ctx.store


def _version(model: onnx.ModelProto, proto: onnx.NodeProto, opset: int) -> int:
    if proto.domain in ("", "ai.onnx"):
        return opset
    return next((int(o.version) for o in model.opset_import if o.domain == proto.domain), 0)


def _domains(model: onnx.ModelProto) -> dict[str, int]:
    return {o.domain: int(o.version) for o in model.opset_import}


def _inputs(ctx: Context, types: Mapping[str, TensorType]) -> list[Value]:
    values: list[Value] = []
    for name, found in types.items():
        if found.dtype not in DTYPES:
            raise UnsupportedError(
                f"input {name!r} is {format_type(found)}, an element type that is not compiled; the types are "
                f"{', '.join(DTYPES)}"
            )
        value = Value(identifier(name, [v.id for v in values]), found, name)
        values.append(value)
        # a tensor without elements has one value only
        empty = found.is_static and found.count == 0
        known = np.zeros(found.dims, numpy_dtype(found.dtype)) if empty else None
        ctx.tensors[name] = Tensor(found, id=value.id, const=known, name=name)
    return values


def _initializer(tensor: onnx.TensorProto, filename: str) -> Tensor:
    try:
        return constant(to_array(tensor), tensor.name)
    except Exception as error:  # onnx raises several types for contradictory tensor data
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{filename}: the initialiser {tensor.name!r} is corrupt ({first})") from None


def _import_node(ctx: Context, node: Node) -> None:
    try:
        _dispatch(ctx, node)
    except Unproved as error:
        error.where = error.where or node.where
        raise


def _dispatch(ctx: Context, node: Node) -> None:
    for name in node.inputs:
        if name and name not in ctx.tensors:
            node.invalid(f"reads {name!r}, which nothing before it defines")
    if function_key(node.proto) in ctx.functions:
        expand(ctx)
        return
    if node.proto.domain == "ai.onnx.ml" and node.op in ML_OPERATORS:
        ML_OPERATORS[node.op](ctx)
        _finished(ctx, node)
        return
    if node.proto.domain not in ("", "ai.onnx"):
        if expand(ctx):
            return
        node.unsupported("belongs to a domain that is not compiled; export the model with standard operators")
    if fold(ctx):
        return
    found = OPERATORS.get(node.op)
    if found is None and expand(ctx):
        return
    if found is None:
        node.unsupported("is not compiled so far")
    if node.version < MIN_OPSET:
        node.unsupported(f"is older than opset {MIN_OPSET}; convert the model with onnx.version_converter")
    found(ctx)
    _finished(ctx, node)


def _finished(ctx: Context, node: Node) -> None:
    """Every attribute was taken into account and every output that something needs is there."""
    if node.unread():
        node.unsupported(f"has the attribute {node.unread()[0]}, which this release does not know")
    for output in node.outputs:
        if output in ctx.live and output not in ctx.tensors:
            node.unsupported(f"returns the optional output {output!r}, which is not compiled so far")


def _check_outputs(ctx: Context, graph: onnx.GraphProto, filename: str) -> None:
    """Outputs exist, are of a compiled type, and agree with the fixed sizes the model declares for them."""
    if not graph.output:
        raise UsageError(f"{filename}: the model has no output")
    for info in graph.output:
        found = ctx.tensors.get(info.name)
        if found is None:
            raise UsageError(f"{filename}: nothing in the model computes the output {info.name!r}")
        if found.type.dtype not in DTYPES:
            raise UnsupportedError(
                f"output {info.name!r} is {format_type(found.type)}, an element type that is not compiled"
            )
        stated = declared_type(info)
        if stated is None:
            continue
        sizes = zip(stated.shape, found.shape, strict=False)
        if len(stated.shape) != found.rank or any(isinstance(a, int) and not proved_equal(a, b) for a, b in sizes):
            raise UsageError(
                f"{filename}: the output {info.name!r} is declared as {format_type(stated)}, but the graph computes "
                f"{format_type(found.type)} for these input shapes; correct the model or the pinned shapes"
            )
