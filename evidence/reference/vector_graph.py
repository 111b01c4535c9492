"""Builds the reference graph of one ONNX node, operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evidence.reference.graph import RefGraph, RefNode, RefTensor, type_name
from evidence.reference.vector_model import Array, OnnxParts

HALVES = ("float16", "bfloat16")


class GraphOf:
    """The graph of a node under construction: ``types`` and ``shapes`` of every value so far, by name."""

    def __init__(self, parts: OnnxParts) -> None:
        self.parts = parts
        self.arrays = {**parts.graph_inputs, **parts.initializers}
        self.types = {name: type_name(array.dtype) for name, array in self.arrays.items()}
        self.shapes = {name: tuple(array.shape) for name, array in self.arrays.items()}
        self.weights = dict(parts.initializers)
        self.nodes: list[RefNode] = []

    def node(self, op: str, inputs: Sequence[str], shape: Sequence[int], dtype: str = "", **attrs: Any) -> str:
        """Append an operation of docs/ir.md; the result has the first operand's element type, or ``dtype``."""
        name = f"t{len(self.nodes)}"
        self.types[name], self.shapes[name] = dtype or self.types[inputs[0]], tuple(shape)
        self.nodes.append(RefNode(op, tuple(inputs), name, tuple(shape), self.types[name], attrs))
        return name

    def same(self, op: str, *inputs: str, dtype: str = "", **attrs: Any) -> str:
        """An elementwise operation: NumPy broadcasting of the operands' shapes."""
        return self.node(op, inputs, np.broadcast_shapes(*(self.shapes[i] for i in inputs)), dtype, **attrs)

    def constant(self, value: Array) -> str:
        name = f"k{len(self.weights)}"
        self.weights[name], self.types[name], self.shapes[name] = value, type_name(value.dtype), tuple(value.shape)
        return name

    def cast(self, name: str, to: str) -> str:
        """``name`` in element type ``to``: no operation where nothing changes."""
        return name if self.types[name] == to else self.node("cast", [name], self.shapes[name], to, to=to)

    def wide(self, name: str) -> str:
        """``name``, in float32 where it is of a half type."""
        return self.cast(name, "float32") if self.types[name] in HALVES else name

    @property
    def half(self) -> str:
        """The first half type among the node's operands, or the empty string."""
        return next((self.types[name] for name in self.parts.inputs if name and self.types[name] in HALVES), "")

    def finish(self, result: str, dtype: str = "") -> tuple[RefGraph, dict[str, Array]]:
        """The graph whose output "y" is ``result``, a float32 one rounded to ``dtype`` if that is a half type."""
        if dtype in HALVES and self.types[result] == "float32":
            result = self.cast(result, dtype)
        if not self.nodes or self.nodes[-1].output != result:  # an operand itself
            result = self.node("reshape", [result], self.shapes[result])
        self.nodes[-1] = replace(self.nodes[-1], output="y")
        given = dict(self.parts.graph_inputs)
        inputs = tuple(RefTensor(name, name, self.shapes[name], self.types[name]) for name in given)
        return RefGraph("vector", inputs, self.weights, tuple(self.nodes), (("y", "y"),)), given
