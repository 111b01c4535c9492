"""Sizes that depend on symbols, as texts in a frozen graph: ``(height + 1) // 2`` at given sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from evidence.reference.errors import ReferenceError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_BOUND = re.compile(r"(\d+)\.\.(\d+)(?: step (\d+))?")


def bounds_of(document: Mapping[str, Any]) -> dict[str, range]:
    """Sizes each symbol of a frozen graph may take, in the order of the file; empty for a graph without symbols."""
    found = {}
    for name, text in document.get("symbols", {}).items():
        match = _BOUND.fullmatch(text)
        if match is None:
            raise ReferenceError(f"frozen graph: {text!r} is no bound of the symbol {name!r}")
        found[name] = range(int(match[1]), int(match[2]) + 1, int(match[3] or 1))
    return found


def evaluate(size: int | str, values: Mapping[str, int]) -> int:
    """A size as a number. :class:`ReferenceError` for anything but integers, symbols, ``+ - * //``, min and max."""
    if isinstance(size, int):
        return size
    places = {name: f"s{n}" for n, name in enumerate(values)}  # names hold dots and digits as no language allows
    text = _NAME.sub(lambda match: places.get(match[0], match[0]), size)
    try:
        return _value(ast.parse(text, mode="eval").body, {places[name]: value for name, value in values.items()})
    except (SyntaxError, KeyError, ZeroDivisionError) as error:
        raise ReferenceError(f"frozen graph: the size {size!r} cannot be evaluated: {error}") from error


def _value(node: ast.expr, values: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, values), _value(node.right, values)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.FloorDiv):
            return left // right
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        arguments = [_value(a, values) for a in node.args]
        return min(arguments) if node.func.id == "min" else max(arguments)
    raise ReferenceError(f"frozen graph: {ast.unparse(node)!r} is not a size")


def at_sizes(document: Mapping[str, Any], values: Mapping[str, int]) -> dict[str, Any]:
    """The document of a graph with symbols as that of the static graph at these sizes."""

    def sized(entry: Mapping[str, Any]) -> dict[str, Any]:
        found = {**entry, "shape": [evaluate(d, values) for d in entry["shape"]]}
        attrs = entry.get("attrs")
        if attrs is not None:
            found["attrs"] = {
                k: [evaluate(v, values) for v in value] if k == "starts" else value for k, value in attrs.items()
            }
        return found

    for name, allowed in bounds_of(document).items():
        if values.get(name) not in allowed:
            raise ReferenceError(
                f"the symbol {name!r} is {values.get(name)}, the graph takes {document['symbols'][name]}"
            )
    return {
        **document,
        "inputs": [sized(t) for t in document["inputs"]],
        "nodes": [sized(n) for n in document["nodes"]],
    }
