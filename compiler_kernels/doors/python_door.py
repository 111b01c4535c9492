"""A small function of NumPy arrays to ONNX: ``pre.py:normalise``.

The source is parsed and interpreted with constants and shapes; nothing of it is executed. Arithmetic, NumPy functions
and calls of other functions in the file become nodes; printing, logging, files and assignments to globals are left out
and listed; control flow that the data would decide is refused with line, column and remedy.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from compiler_kernels.doors.converted import Converted, Sizes, stated
from compiler_kernels.doors.functions.effects import Opaque
from compiler_kernels.doors.functions.module import Source, read_source
from compiler_kernels.doors.functions.statements import Interpreter
from compiler_kernels.doors.functions.values import OPSET, Array, Graph, holds_array
from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.stage import Json


def convert_function(data: bytes, filename: str, name: str, shapes: Mapping[str, Sizes]) -> Converted:
    """The ONNX model of the function ``name`` in the file ``data``.

    ``shapes`` gives the sizes of its parameters; parameters with a default that get no shape are constants. The element
    type is the one of the annotation (``NDArray[np.uint8]``), else float32. ``facts["removed"]`` lists side effects.
    ``UnsupportedError`` names what is outside the subset; ``UsageError`` what does not fit.
    """
    source = read_source(data, filename)
    function = source.functions.get(name)
    if function is None:
        raise UsageError(
            f"{filename}: defines no function {name!r}; it defines {', '.join(source.functions) or 'none'}"
        )
    graph = Graph(name)
    interpreter = Interpreter(source, graph)
    if function.decorator_list:
        raise interpreter.refuse(function.decorator_list[0], "decorates the function; name the function it wraps")
    arrays = _parameters(source, function, shapes, graph)
    result = interpreter.run(function, interpreter.bind(function, function, [], arrays))
    outputs = _outputs(filename, function, result)
    model = graph.model(outputs)
    removed: list[Json] = [{"line": item.line, "what": item.what} for item in interpreter.removed]
    facts: dict[str, Json] = {
        "opset": OPSET,
        "exporter": {"numpy": version("numpy"), "onnx": version("onnx")},
        "removed": removed,
    }
    return stated(bytes(model.SerializeToString(deterministic=True)), filename, data, "python", name, facts)


def _parameters(
    source: Source, function: ast.FunctionDef, shapes: Mapping[str, Sizes], graph: Graph
) -> dict[str, Array]:
    spec = function.args
    listed = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    names = [a.arg for a in listed]
    for name in shapes:
        if name not in names:
            raise UsageError(
                f"{source.filename}: a shape is given for {name!r}, but {function.name} takes {', '.join(names)}"
            )
    positional = [*spec.posonlyargs, *spec.args]
    optional = {a.arg for a in positional[len(positional) - len(spec.defaults) :]}
    optional |= {a.arg for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
    found: dict[str, Array] = {}
    for argument in listed:
        name = argument.arg
        if name in shapes:
            sizes = [size for size in shapes[name] if isinstance(size, int)]
            if len(sizes) != len(shapes[name]):
                raise UnsupportedError(f"{source.filename}: {name!r} has a symbolic size; give numbers")
            found[name] = graph.input(name, sizes, _element_type(argument.annotation))
        elif name not in optional:
            raise UsageError(
                f"{source.filename}: the shape of {name!r} is not known; add --input-shape {name}=SIZE,SIZE,..."
            )
    if not found:
        raise UsageError(f"{source.filename}: {function.name} has no array parameter; add --input-shape NAME=SIZE,...")
    return found


def _element_type(annotation: ast.expr | None) -> Any:
    """``np.uint8`` anywhere in the annotation, as in ``NDArray[np.uint8]``; float32 without one."""
    for node in ast.walk(annotation) if annotation is not None else ():
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        kind = getattr(np, name, None)
        if isinstance(kind, type) and issubclass(kind, np.generic) and np.dtype(kind).kind in "biuf":
            return np.dtype(kind)
    return np.dtype(np.float32)


def _outputs(filename: str, function: ast.FunctionDef, result: Any) -> list[tuple[str, Any]]:
    """Names and values: those of a dict; of a tuple or an array by the names of what is returned, where it has one."""
    if isinstance(result, dict):
        items = [(str(key), value) for key, value in result.items()]
    elif isinstance(result, list | tuple):
        items = [(f"output_{number}", value) for number, value in enumerate(result)]
    else:
        items = [("output", result)]
    where = f"{filename}: {function.name}"
    if not holds_array(result):
        raise UnsupportedError(f"{where} returns nothing that depends on its arrays; return the array it computes")
    for name, value in items:
        if isinstance(value, Opaque):
            raise UnsupportedError(f"{where} returns a value of {value.source} (line {value.line}); leave it out")
        if not isinstance(value, Array | int | float | np.ndarray | np.generic):
            raise UnsupportedError(f"{where} returns a {type(value).__name__} as {name!r}; return arrays")
    return items
