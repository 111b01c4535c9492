"""Values of the interpretation (arrays of the graph, everything else a constant) and the graph under construction.

Shapes and element types are NumPy's own: every operation is also applied to stand-ins of the same shape and type, so
promotion, broadcasting and their errors are not described a second time here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from compiler_kernels.errors import UnsupportedError, UsageError

OPSET = 20
IR_VERSION = 10
NODE_LIMIT = 100_000
"""Unrolled loops make nodes; a graph beyond this is refused instead of filling the memory."""


class NotPure(UnsupportedError):
    """Something outside the subset; the interpreter adds file, line and column."""


@dataclass(frozen=True)
class Array:
    """A tensor of the graph. Views of one array share its ``buffer``: an in-place change would show in all of them."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    buffer: int

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def stand_in(value: Any) -> Any:
    """A NumPy value of the same shape and type (ones, in no memory); constants and containers of them pass through."""
    if isinstance(value, Array):
        return np.broadcast_to(np.ones((), value.dtype), value.shape)
    if isinstance(value, list | tuple):
        return type(value)(stand_in(item) for item in value)
    return value


def holds_array(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(holds_array(item) for item in value)
    if isinstance(value, dict):
        return any(holds_array(item) for item in value.values())
    return isinstance(value, Array)


class Graph:
    """Nodes and initialisers in the making. ``where`` is the line being read, for the nodes' names."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.where = 0
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self._used: set[str] = set()
        self._buffers = 0

    def name(self, wanted: str) -> str:
        result, number = wanted, 0
        while result in self._used:
            number += 1
            result = f"{wanted}_{number}"
        self._used.add(result)
        return result

    def array(self, name: str, shape: Sequence[int], dtype: Any, view_of: Array | None = None) -> Array:
        self._buffers += 1
        buffer = self._buffers if view_of is None else view_of.buffer
        return Array(name, tuple(int(n) for n in shape), np.dtype(dtype), buffer)

    def input(self, name: str, shape: Sequence[int], dtype: Any) -> Array:
        self.inputs.append(helper.make_tensor_value_info(self.name(name), onnx_type(np.dtype(dtype)), list(shape)))
        return self.array(name, shape, dtype)

    def constant(self, value: Any, dtype: Any) -> str:
        """An initialiser with ``value``; returns its name."""
        name = self.name(f"{self.function}_constant")
        self.initializers.append(numpy_helper.from_array(np.array(value, dtype=dtype, order="C"), name))
        return name

    def operand(self, value: Any, dtype: Any) -> str:
        """``value`` as an input of a node, of the element type ``dtype``."""
        if not isinstance(value, Array):
            return self.constant(value, dtype)
        if value.dtype == dtype:
            return value.name
        return self.emit("Cast", [value.name], value.shape, dtype, to=onnx_type(np.dtype(dtype))).name

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        dtype: Any,
        view_of: Array | None = None,
        **attrs: Any,
    ) -> Array:
        """One node with one output of the given shape and type."""
        if len(self.nodes) >= NODE_LIMIT:
            raise NotPure(f"makes more than {NODE_LIMIT} nodes; use array operations instead of loops over elements")
        onnx_type(np.dtype(dtype))
        output = self.name(f"{self.function}_v{len(self.nodes)}")
        node = helper.make_node(
            op, list(inputs), [output], self.name(f"/{self.function}/line{self.where}/{op}"), **attrs
        )
        self.nodes.append(node)
        return self.array(output, shape, dtype, view_of)

    def reshaped(self, value: Array, shape: Sequence[int]) -> Array:
        """``value`` with another shape: a view in NumPy."""
        if tuple(shape) == value.shape:
            return value
        return self.emit("Reshape", [value.name, self.constant(list(shape), np.int64)], shape, value.dtype, value)

    def model(self, outputs: Sequence[tuple[str, Any]]) -> onnx.ModelProto:
        """The finished model; every output gets the name it is listed with."""
        infos = []
        for wanted, value in outputs:
            name = self.name(wanted)
            dtype = value.dtype if isinstance(value, Array) else np.asarray(value).dtype
            shape = value.shape if isinstance(value, Array) else np.shape(value)
            self.nodes.append(
                helper.make_node("Identity", [self.operand(value, dtype)], [name], f"/{self.function}/{name}")
            )
            infos.append(helper.make_tensor_value_info(name, onnx_type(np.dtype(dtype)), list(shape)))
        graph = helper.make_graph(self.nodes, self.function, self.inputs, infos, self.initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="cuvil"
        )
        onnx.checker.check_model(model)
        return model


def onnx_type(dtype: np.dtype[Any]) -> int:
    """ONNX's number of an element type; ``NotPure`` for complex numbers, strings, dates and objects."""
    if dtype.kind not in "biuf":
        raise NotPure(f"has elements of the type {dtype}; use booleans, integers or floats")
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def by_example(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> NDArray[Any]:
    """What NumPy makes of stand-ins: shape and type of the result mean something. ``UsageError`` where it refuses."""
    with np.errstate(all="ignore"):
        try:
            return np.asarray(function(*stand_in(tuple(args)), **(kwargs or {})))
        except Exception as error:  # NumPy's own complaint about shapes, axes or types
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise UsageError(f"is refused by NumPy for these shapes and types ({first})") from None
