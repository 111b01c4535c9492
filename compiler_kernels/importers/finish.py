"""From the importer's list of operations to a tidy module: distinct outputs, no dead code, dense numbering."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import onnx

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.importers.context import Context
from compiler_kernels.importers.node import make_node
from compiler_kernels.ir.dims import product
from compiler_kernels.ir.graph import Graph, Module, Op, Value, Weight
from compiler_kernels.ir.symbols import interval, prover
from compiler_kernels.ir.text import format_type

LARGEST: Final = 2**31 - 1
"""Most elements of one tensor: engines index with 32-bit counts wherever they can."""


def finish(ctx: Context, inputs: list[Value], outputs: list[str], meta: Mapping[str, str]) -> Module:
    """Build the L0 module. An output that is an input, a constant or another output is copied by a ``reshape``,
    so that every output is computed by exactly one operation."""
    results: list[str] = []
    for name in outputs:
        tensor = ctx.tensors[name]
        if tensor.sym is not None:
            raise UnsupportedError(
                f"output {name!r} holds sizes that depend on symbols, which engines have no values for; pin them"
            )
        if tensor.const is not None or tensor.id in results or tensor.id in {v.id for v in inputs}:
            if ctx.node is None:  # no node of the model is needed
                ctx.node = make_node(onnx.helper.make_node("Identity", [name], [name], name=name), 0, 0)
            tensor = ctx.emit("reshape", [tensor], shape=tensor.shape)
            ctx.ops[-1] = replace(ctx.ops[-1], tensor=name)
        results.append(tensor.id)
    ops = _alive(ctx.ops, results)
    for op in ops:
        least, most = interval(product(op.out.extents), prover().symbols)
        if op.out.is_static and most <= LARGEST:
            continue  # an output, or a value that is only checked, may be empty
        if not 0 < least <= most <= LARGEST and not _within(op):
            size = "an empty tensor" if least <= 0 else f"more than {LARGEST} elements"
            size = size if op.out.is_static else f"{size} for some sizes"
            raise UnsupportedError(f"node {op.node!r} computes {size}, {format_type(op.out)}, which is not compiled")
    names = {v.id: v.id for v in inputs}
    weights: list[Weight] = []
    final: list[Op] = []
    for op in ops:
        for operand in op.operands:
            if operand in ctx.weights and operand not in names:
                names[operand] = f"w{len(weights)}"
                weights.append(replace(ctx.weights[operand], id=names[operand]))
        names[op.result] = f"v{len(final)}"
        operands = tuple(names[o] if o else "" for o in op.operands)
        final.append(replace(op, operands=operands, result=names[op.result]))
    title = re.sub(r"[^A-Za-z0-9_.]", "_", meta["model"])
    graph = Graph(title, tuple(inputs), tuple(weights), tuple(final), tuple(names[r] for r in results), tuple(outputs))
    return Module("l0", (graph,), tuple(sorted(meta.items())))


def _within(op: Op) -> bool:
    """Whether the result has 1 to ``LARGEST`` elements for all sizes, where intervals alone do not show it."""
    count = product(op.out.extents)
    return prover().proves("<=", 1, count) and prover().proves("<=", count, LARGEST)


def _alive(ops: list[Op], results: list[str]) -> list[Op]:
    """Operations some result depends on, in order."""
    needed = set(results)
    kept: list[Op] = []
    for op in reversed(ops):
        if op.result in needed:
            needed.update(op.operands)
            kept.append(op)
    return kept[::-1]
