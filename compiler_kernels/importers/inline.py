"""Importing the nodes of a subgraph or function body in the place of the node that holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import onnx

from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.node import Node, make_node


def live_names(nodes: Sequence[Node], outputs: Iterable[str]) -> frozenset[str]:
    """Tensor names that some of ``outputs`` depends on; subgraphs read outer names too."""
    live = set(outputs)
    for node in reversed(nodes):
        if any(o in live for o in node.outputs):
            live.update(name for name in node.inputs if name)
            for attr in node.proto.attribute:
                for sub in (attr.g, *attr.graphs):
                    live.update(_reads(sub))
    return frozenset(live)


def _reads(graph: onnx.GraphProto) -> set[str]:
    """Names the nodes and outputs of ``graph``, and of graphs inside it, refer to."""
    found = {o.name for o in graph.output}
    for node in graph.node:
        found.update(name for name in node.input if name)
        for attr in node.attribute:
            for sub in (attr.g, *attr.graphs):
                found |= _reads(sub)
    return found


def import_body(
    ctx: Context,
    nodes: Sequence[Node],
    bindings: Mapping[str, Tensor],
    outputs: Sequence[str],
    prefix: str,
) -> list[Tensor]:
    """Import ``nodes`` with ``bindings`` (name -> tensor) visible beside all outer tensors; the tensors of ``outputs``.

    Names the body defines are forgotten afterwards, so a body can be imported many times. ``prefix`` goes before every
    node's name. The current node is restored.
    """
    outer_tensors, outer_live, outer_node = dict(ctx.tensors), ctx.live, ctx.node
    assert outer_node is not None
    ctx.tensors.update(bindings)
    ctx.live = live_names(nodes, outputs)
    try:
        for node in nodes:
            if any(o in ctx.live for o in node.outputs):
                ctx.node = replace(node, name=f"{prefix}{node.name}", seen=set())
                ctx.dispatch(ctx, ctx.node)
        for name in outputs:
            if name not in ctx.tensors:
                outer_node.invalid(f"holds a graph whose output {name!r} nothing computes")
        return [ctx.tensors[name] for name in outputs]
    finally:
        ctx.tensors, ctx.live, ctx.node = outer_tensors, outer_live, outer_node


def subgraph_nodes(ctx: Context, graph: onnx.GraphProto) -> list[Node]:
    """The nodes of an If, Loop or Scan body, of the opset of the node that holds it."""
    version = ctx.at.version
    return [
        make_node(p, i, version if p.domain in ("", "ai.onnx") else ctx.domains.get(p.domain, 0))
        for i, p in enumerate(graph.node)
    ]
