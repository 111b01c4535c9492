"""What ``--model`` may be besides an ONNX file, recognised without executing anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from compiler_kernels.doors.child import python_child, run_child
from compiler_kernels.doors.converted import Converted, Sizes, stated
from compiler_kernels.doors.tensorflow_door import convert_tensorflow, is_tensorflow
from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json

_ENTRY = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")


def is_door(spec: str) -> bool:
    """Whether ``spec`` is no ONNX file but ``file.py:NAME``, a ``.pt2`` program, a Keras file or a SavedModel."""
    return bool(_ENTRY.fullmatch(spec)) or Path(spec).suffix in (".py", ".pt2") or is_tensorflow(Path(spec))


def source_path(spec: str) -> Path:
    """The file that ``spec`` names, without the entry in it."""
    match = _ENTRY.fullmatch(spec)
    return Path(match["file"] if match else spec)


def convert(spec: str, shapes: Mapping[str, Sizes] | None = None) -> Converted:
    """The ONNX model of ``spec``: ``net.py:Net`` (class, factory or module), ``pre.py:function``, ``net.pt2``,
    ``net.keras``, ``net.h5`` or a SavedModel folder.

    ``shapes`` gives sizes by input name where the source leaves them open. Raises ``UsageError`` for what is not there
    or fails when executed, ``UnsupportedError`` for what cannot be translated.
    """
    given = dict(shapes or {})
    match = _ENTRY.fullmatch(spec)
    if match is None and Path(spec).suffix == ".py":
        raise UsageError(f"{spec}: name what to compile in it, as in {Path(spec).name}:Net")
    path = source_path(spec)
    name = match["name"] if match else None
    if match is None and is_tensorflow(path):
        return convert_tensorflow(path, given)
    source = _read(path)
    if name is not None and _kind(path, source, name, given) == "python":
        from compiler_kernels.doors.python_door import convert_function

        return convert_function(source, path.name, name, given)
    request: dict[str, Json] = {"path": str(path), "entry": name, "shapes": {n: list(s) for n, s in given.items()}}
    model, facts = run_child(python_child("torch_file"), request, path.name)
    return stated(model, path.name, source, "torch", name, facts)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a file that exists") from None


def _kind(path: Path, source: bytes, name: str, shapes: Mapping[str, Sizes]) -> str:
    """``python`` for a function of arrays, ``torch`` for a class, a variable, or a function that needs no argument.

    ``UsageError`` when the file does not define ``name`` anywhere: it is not executed to find that out.
    """
    try:
        tree = ast.parse(source, str(path.name))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f" at line {line}" if line else ""
        raise UsageError(f"{path}: is not a Python file ({getattr(error, 'msg', error)}{where})") from None
    defined = list(dict.fromkeys(_defined(tree)))
    if name not in defined:
        raise UsageError(f"{path}: defines no {name!r}; it defines {', '.join(defined[:20]) or 'nothing'}")
    for node in reversed(tree.body):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            spec = node.args
            names = [a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
            optional = len(spec.defaults) + sum(default is not None for default in spec.kw_defaults)
            return "python" if len(names) > optional or any(key in names for key in shapes) else "torch"
    return "torch"


def _defined(tree: ast.AST) -> Iterator[str]:
    """Names that a file gives to something, in functions too: more than exist when it has been executed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
