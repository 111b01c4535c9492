"""The child process that converts ``net.py:Net`` and ``net.pt2``: the only place where a user's code is executed.

``python -m compiler_kernels.doors.torch_file ANSWER-FOLDER`` reads a request (JSON) on standard input.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler_kernels.doors import torch_door
from compiler_kernels.doors.converted import Sizes, write_answer, write_refusal
from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError

SEED = 0
"""torch's seed before the user's file runs: weights that nobody loads or seeds are at least the same every time."""


def main() -> int:
    folder = Path(sys.argv[1])
    request = json.load(sys.stdin)
    path, name = Path(request["path"]), request["entry"]
    shapes = {key: tuple(sizes) for key, sizes in request["shapes"].items()}
    try:
        model = convert_program(path) if name is None else convert_module(path, name, shapes)
        write_answer(folder, model, torch_door.exporter_facts())
    except CuvilError as error:
        write_refusal(folder, error)
    return 0


def convert_program(path: Path) -> bytes:
    """ONNX bytes of a program saved by ``torch.export.save``."""
    torch = torch_door._torch()
    try:
        program = torch.export.load(str(path))
    except Exception as error:  # zip, JSON and schema errors of many classes
        raise UsageError(
            f"{path.name}: is not a program that torch {torch.__version__} can load ({torch_door.first_line(error)}); "
            "save it again with torch.export.save"
        ) from error
    return torch_door.export_program(program)


def convert_module(path: Path, name: str, shapes: Mapping[str, Sizes]) -> bytes:
    """Execute the file ``path`` in this process, and export the class, factory or module ``name`` of it."""
    torch = torch_door._torch()
    torch.manual_seed(SEED)
    file = _execute(path)
    found = getattr(file, name, None)
    if found is None:
        raise UsageError(f"{path.name}: executing it defines no {name!r}; name a class, a factory or a module in it")
    if not isinstance(found, torch.nn.Module):
        found = _guarded(path, f"{name}()", found)
    if not isinstance(found, torch.nn.Module):
        raise UsageError(f"{path.name}:{name} gives a {type(found).__name__}, not a torch.nn.Module")
    args, kwargs, dynamic = _examples(path, file, found, shapes)
    try:
        return torch_door.export_module(found, args, kwargs, dynamic)
    except UnsupportedError as error:
        where = _line_in(path, error.__cause__)
        raise UnsupportedError(f"{path.name}:{name}: {error}{where}") from error


def _execute(path: Path) -> Any:
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    loader = spec.loader
    _guarded(path, "the file", lambda: loader.exec_module(module))
    return module


def _guarded(path: Path, what: str, call: Any) -> Any:
    try:
        return call()
    except BaseException as error:  # user code: SystemExit and KeyboardInterrupt are failures of it too
        where = _line_in(path, error)
        raise UsageError(
            f"{path.name}: {what} fails with {type(error).__name__}: {torch_door.first_line(error)}{where}"
        ) from error


def _line_in(path: Path, error: BaseException | None) -> str:
    """``, at line 12`` for the innermost place in the user's file, if the error passed through it."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path] if error else []
    return f", at line {frames[-1].lineno}" if frames else ""


def _examples(
    path: Path, file: Any, module: Any, shapes: Mapping[str, Sizes]
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Example arguments and dynamic shapes: the file's ``example_inputs`` and ``dynamic_shapes``, else by shape."""
    torch = torch_door._torch()
    given = getattr(file, "example_inputs", None)
    if given is not None:
        given = _guarded(path, "example_inputs()", given) if callable(given) else given
        dynamic = getattr(file, "dynamic_shapes", None)
        if isinstance(given, torch.Tensor):
            given = (given,)
        if isinstance(given, Mapping):
            return (), dict(given), dynamic
        if not isinstance(given, tuple | list):
            kind = type(given).__name__
            raise UsageError(f"{path.name}: example_inputs is a {kind}; give a tuple or dict of tensors")
        return tuple(given), {}, dynamic
    parameters = inspect.signature(module.forward).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    wanted = [p.name for p in parameters if p.name in named and (p.default is p.empty or p.name in shapes)]
    for name in shapes:
        if name not in named:
            raise UsageError(f"a shape is given for {name!r}, but forward takes {', '.join(named) or 'nothing'}")
    missing = [name for name in wanted if name not in shapes]
    if missing:
        raise UsageError(
            f"{path.name}: the shape of {missing[0]!r} is not known; add --input-shape {missing[0]}=SIZE,SIZE,... or "
            "define example_inputs in the file"
        )
    dims: dict[str, Any] = {}
    kwargs, dynamic = {}, {}
    for name in wanted:
        sizes = shapes[name]
        kwargs[name] = torch.zeros([_example(size, axis) for axis, size in enumerate(sizes)])
        marks = {a: dims.setdefault(s, torch.export.Dim(s)) for a, s in enumerate(sizes) if isinstance(s, str)}
        dynamic[name] = marks or None
    return (), kwargs, dynamic if dims else None


def _example(size: int | str, axis: int) -> int:
    """The size an example has along a symbolic dimension: not 0 or 1, which torch.export would take as fixed."""
    return size if isinstance(size, int) else (2 if axis == 0 else 64)


if __name__ == "__main__":
    sys.exit(main())
