"""A parsed file: its imports, functions and constants. Reading it executes nothing."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler_kernels.doors.functions.effects import changed_globals, dotted
from compiler_kernels.doors.functions.table import TABLE
from compiler_kernels.errors import UsageError

NUMPY_CONSTANT = frozenset(
    """array asarray zeros ones full arange linspace eye prod cumsum sin cos tan outer meshgrid finfo iinfo dtype
    float16 float32 float64 double single half int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ bool intp
    pi e inf nan newaxis ndarray errstate broadcast_shapes amax amin around log10 log2 hypot""".split()
)
"""What NumPy offers to constants beside the functions of the table."""


@dataclass(frozen=True)
class Source:
    """``modules`` maps a name of the file to the module or member it stands for, as in ``np`` to ``numpy``."""

    filename: str
    text: str
    functions: dict[str, ast.FunctionDef]
    constants: dict[str, ast.expr]
    modules: dict[str, str]
    loggers: frozenset[str]
    changed: frozenset[str]


def read_source(data: bytes, filename: str) -> Source:
    """Parse a file. ``UsageError`` when it is not Python."""
    try:
        text = data.decode("utf-8")
        tree = ast.parse(text, filename)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UsageError(
            f"{filename}: is not a Python file ({getattr(error, 'msg', error)}{f' at line {line}' if line else ''})"
        ) from None
    modules: dict[str, str] = {}
    constants: dict[str, ast.expr] = {}
    repeated: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    for statement in tree.body:
        value = getattr(statement, "value", None)
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.expr):
                if target.id in constants or isinstance(statement, ast.AugAssign):
                    repeated.add(target.id)
                constants[target.id] = value
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    loggers = frozenset(n for n, v in constants.items() if isinstance(v, ast.Call) and _is_logger(v, modules))
    changed = changed_globals(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return Source(filename, text, functions, constants, modules, loggers, changed | repeated)


def _is_logger(call: ast.Call, modules: dict[str, str]) -> bool:
    return (dotted(call.func, modules) or "").endswith(("getLogger", "get_logger"))


def member(name: str) -> Any:
    """The object behind ``numpy.x`` or ``math.x`` where the subset has it; ``KeyError`` otherwise."""
    head, _, rest = name.partition(".")
    if head == "numpy" and rest and "." not in rest:
        found = getattr(np, rest, None)
        if rest in NUMPY_CONSTANT or (callable(found) and found in TABLE):
            return found
    if head == "math" and rest and not rest.startswith("_") and hasattr(math, rest):
        return getattr(math, rest)
    raise KeyError(name)
