"""ONNX graphs as the canonical form sees them: what computes what, without names of nodes and intermediate tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import onnx

from evidence.keygen.text import Unreadable

_FIELDS: Final = (
    ("g", onnx.AttributeProto.GRAPH),
    ("t", onnx.AttributeProto.TENSOR),
    ("tp", onnx.AttributeProto.TYPE_PROTO),
    ("sparse_tensor", onnx.AttributeProto.SPARSE_TENSOR),
)


@dataclass
class Node:
    """One node: its message, its graphs by attribute, and the values they take from outside, in order of first use."""

    proto: Any
    graphs: dict[str, list[Graph]] = field(default_factory=dict)
    captured: list[str] = field(default_factory=list)

    def needs(self) -> list[str]:
        return [*(name for name in self.proto.input if name), *self.captured]


@dataclass
class Graph:
    """``order``: nodes in the order a depth-first walk from the outputs finishes them; nodes nothing needs come last.

    ``captured``: names of values from outside, in the order that walk meets them.
    """

    inputs: list[str]
    outputs: list[str]
    weights: Mapping[str, Any]
    order: list[Node]
    captured: list[str]
    proto: Any


def attribute_kind(attribute: Any) -> int:
    """The attribute's type; files of IR version 1 say it only by the field that is set."""
    if attribute.type or attribute.ref_attr_name:
        return int(attribute.type)
    present = {descriptor.name for descriptor, _ in attribute.ListFields()}
    for name, kind in _FIELDS:
        if name in present:
            return int(kind)
    raise Unreadable(f"has the attribute {attribute.name!r} without a type")


def read_graph(proto: Any) -> Graph:
    """A ``GraphProto`` and the graphs inside it. Raises ``Unreadable`` for a value made twice and for a cycle."""
    weights = {t.name: t for t in proto.initializer} | {s.values.name: s for s in proto.sparse_initializer}
    if len(weights) != len(proto.initializer) + len(proto.sparse_initializer):
        raise Unreadable(f"gives a weight of graph {proto.name!r} twice")
    return _ordered([i.name for i in proto.input], [o.name for o in proto.output], weights, proto)


def read_function(proto: Any) -> Graph:
    """A ``FunctionProto``: like a graph, its inputs and outputs have names only."""
    return _ordered(list(proto.input), list(proto.output), {}, proto)


def _ordered(inputs: list[str], outputs: list[str], weights: Mapping[str, Any], proto: Any) -> Graph:
    nodes = [_node(item) for item in proto.node]
    made: dict[str, Node] = {}
    for node in nodes:
        for name in node.proto.output:
            if name and (name in made or name in inputs or name in weights):
                raise Unreadable(f"makes the value {name!r} twice")
            made[name] = node
    given = {*inputs, *weights}
    captured: list[str] = []
    order = _walk([*outputs, *(name for node in nodes for name in node.proto.output if name)], made, given, captured)
    return Graph(inputs, outputs, weights, order, captured, proto)


def _node(proto: Any) -> Node:
    node = Node(proto)
    for attribute in sorted(proto.attribute, key=lambda a: str(a.name)):
        kind = attribute_kind(attribute)
        if kind == onnx.AttributeProto.GRAPH:
            node.graphs[attribute.name] = [read_graph(attribute.g)]
        elif kind == onnx.AttributeProto.GRAPHS:
            node.graphs[attribute.name] = [read_graph(g) for g in attribute.graphs]
    names = (name for graphs in node.graphs.values() for graph in graphs for name in graph.captured)
    node.captured = list(dict.fromkeys(names))
    return node


def _walk(roots: Iterable[str], made: Mapping[str, Node], given: set[str], captured: list[str]) -> list[Node]:
    """Depth first without recursion: a network may be ten thousand nodes deep."""
    order: list[Node] = []
    state: dict[int, bool] = {}
    outside: dict[str, None] = {}
    for root in roots:
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            name, done = stack.pop()
            node = made.get(name)
            if node is None:
                if name not in given:
                    outside[name] = None
                continue
            if done:
                state[id(node)] = True
                order.append(node)
                continue
            if id(node) in state:
                if not state[id(node)]:
                    raise Unreadable(f"has a cycle through the value {name!r}")
                continue
            state[id(node)] = False
            stack.append((name, True))
            stack += [(need, False) for need in reversed(node.needs())]
    captured += outside
    return order
