"""Where a pipeline parses DICOM and starts engines, as its text shows it, and what cannot be placed there.

The standard path is pydicom's ``dcmread`` (``read_file`` before pydicom 3) under whatever name it was imported. An
engine is recognised by the option ``--output-dir``, which every engine and ``cuvil run`` need, in a literal command.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from evidence.tracing.scopes import UNKNOWN, Scopes

HELPER = "cuvil.trace"
READERS = frozenset(
    f"pydicom{module}.{name}"
    for module in ("", ".filereader", ".dicomio")
    for name in ("dcmread", "read_file", "read_partial")
)
STARTERS = frozenset(
    {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")}
    | {"asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"}
)
ENGINE_OPTION = "--output-dir"
LEFT_OUT = "cuvil: not traced"
"""A comment with these words on the line where a call begins leaves the call as it is."""

_MODULES = frozenset({"pydicom", "pydicom.filereader", "pydicom.dicomio"})
_NAMES = frozenset(name.rpartition(".")[2] for name in READERS)


@dataclass(frozen=True)
class Said:
    """A sentence about one line (from 1)."""

    line: int
    sentence: str


@dataclass
class Found:
    """Calls to edit; ``done`` counts those that are edited already. ``refused`` cannot be placed, ``notes`` are for who
    reviews."""

    reads: list[ast.Call] = field(default_factory=list)
    starts: list[ast.Call] = field(default_factory=list)
    done: int = 0
    refused: list[Said] = field(default_factory=list)
    notes: list[Said] = field(default_factory=list)


def find_sites(tree: ast.Module, lines: list[str]) -> Found:
    """Everything in ``tree``, the syntax tree of the text ``lines``, in the order of the text."""
    scopes, found = Scopes(tree), Found()
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr | ast.stmt)]
    nodes.sort(key=lambda node: (node.lineno, node.col_offset))
    for node in nodes:
        if LEFT_OUT in lines[node.lineno - 1]:
            if isinstance(node, ast.Call) and scopes.resolve(node.func) & (READERS | STARTERS):
                found.notes.append(Said(node.lineno, f"is left out, as its comment `{LEFT_OUT}` asks"))
            continue
        _look(node, scopes, found)
    if found.reads or found.done:
        for node in nodes:
            if isinstance(node, ast.Call) and LEFT_OUT not in lines[node.lineno - 1]:
                _look_at_start(node, scopes, found)
        found.notes += _handed_on(found, scopes)
    return found


def _look(node: ast.AST, scopes: Scopes, found: Found) -> None:
    if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module in _MODULES and not node.level:
        found.refused.append(
            Said(node.lineno, f"`from {node.module} import *` hides which names are pydicom's: import them by name")
        )
    elif isinstance(node, ast.Call):
        _look_at_call(node, scopes, found)
    elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        _look_at_mention(node, scopes, found)


def _look_at_call(node: ast.Call, scopes: Scopes, found: Found) -> None:
    names = scopes.resolve(node.func)
    if names & READERS:
        parent = scopes.parent_of.get(node)
        if isinstance(parent, ast.Call) and f"{HELPER}.bind_dicom" in scopes.resolve(parent.func):
            found.done += 1
        elif _in_fstring(node, scopes):
            found.refused.append(
                Said(node.lineno, "the call of pydicom is inside an f-string: assign its result to a name first")
            )
        else:
            found.reads.append(node)
    elif names & {"builtins.exec", "builtins.eval"}:
        text = node.args[0] if node.args else None
        if (
            any(name in str(text.value) for name in _NAMES)
            if isinstance(text, ast.Constant)
            else _imports_pydicom(scopes)
        ):
            found.refused.append(
                Said(node.lineno, "code that `exec` or `eval` runs cannot be read here: write the calls of pydicom out")
            )
    elif names & {"importlib.import_module", "builtins.__import__"}:
        text = node.args[0] if node.args else None
        if isinstance(text, ast.Constant) and str(text.value) in _MODULES:
            found.refused.append(Said(node.lineno, "pydicom is imported by a call: import it by a statement"))
    elif "builtins.getattr" in names and len(node.args) > 1 and scopes.resolve(node.args[0]) & _MODULES:
        text = node.args[1]
        if not isinstance(text, ast.Constant) or text.value in _NAMES:
            found.refused.append(Said(node.lineno, "`getattr` takes a name of pydicom at run time: write it out"))
    elif _called(node.func) == "dcmread":
        found.notes.append(
            Said(
                node.lineno,
                "`dcmread` does not come from pydicom as far as this file shows, and was left alone: where it parses "
                "DICOM, bind its result by hand",
            )
        )


def _look_at_mention(node: ast.Name | ast.Attribute, scopes: Scopes, found: Found) -> None:
    """A reader that is not called: followed through a plain assignment, else handed on to who knows where."""
    parent = scopes.parent_of.get(node)
    if not scopes.resolve(node) & READERS or isinstance(parent, ast.Attribute):
        return
    if isinstance(parent, ast.Call) and parent.func is node:
        return
    target = parent.targets if isinstance(parent, ast.Assign) else [getattr(parent, "target", None)]
    if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr) and all(isinstance(t, ast.Name) for t in target):
        return
    found.refused.append(
        Said(
            node.lineno,
            f"`{ast.unparse(node)}` of pydicom is handed on here and not called: hand on a function that calls it, and "
            "if another thread or process runs that, bind the result where the engine is run",
        )
    )


def _look_at_start(node: ast.Call, scopes: Scopes, found: Found) -> None:
    names = scopes.resolve(node.func)
    if "os.system" in names and any(_is_engine(argument, scopes) for argument in node.args):
        found.refused.append(
            Said(node.lineno, "`os.system` takes no environment for the engine: start it with `subprocess.run`")
        )
    if not names & STARTERS:
        return
    given = [*node.args, *(word.value for word in node.keywords if word.arg == "args")]
    if not any(_is_engine(argument, scopes) for argument in given):
        return
    environment = next((word.value for word in node.keywords if word.arg == "env"), None)
    if isinstance(environment, ast.Call) and f"{HELPER}.environment" in scopes.resolve(environment.func):
        found.done += 1
    elif environment is None and any(word.arg is None for word in node.keywords):
        found.refused.append(
            Said(node.lineno, "`**` may hold the engine's environment: write `env=` out, or leave it to the process")
        )
    elif _in_fstring(node, scopes):
        found.refused.append(Said(node.lineno, "an engine is started inside an f-string: assign its result to a name"))
    else:
        found.starts.append(node)


def _is_engine(command: ast.AST, scopes: Scopes) -> bool:
    """Whether a literal command, or what was assigned and added to the names in it, holds the option engines need."""
    waiting, seen = [command], set[ast.AST]()
    while waiting:
        for part in ast.walk(waiting.pop()):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and ENGINE_OPTION in part.value:
                return True
            if isinstance(part, ast.Name) and part not in seen:
                seen.add(part)
                waiting += scopes.assigned(part)
    return False


def _handed_on(found: Found, scopes: Scopes) -> Iterator[Said]:
    """Functions with a bound call that are handed to something else: a thread's binding ends with the thread."""
    bound = set()
    for call in found.reads:
        node: ast.AST | None = call
        while node is not None:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                bound.add(node.name)
            node = scopes.parent_of.get(node)
    for node, parent in scopes.parent_of.items():
        if (
            isinstance(node, ast.Name)
            and node.id in bound
            and isinstance(parent, ast.Call | ast.keyword)
            and (not isinstance(parent, ast.Call) or parent.func is not node)
            and UNKNOWN in scopes.resolve(node)
        ):
            yield Said(
                node.lineno,
                f"`{node.id}`, which parses DICOM, is handed on: if another thread or process calls it, bind its "
                "result where the engine is run",
            )


def _imports_pydicom(scopes: Scopes) -> bool:
    return any(
        (isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == "pydicom" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "pydicom")
        for node in scopes.scope_of
    )


def _in_fstring(node: ast.AST, scopes: Scopes) -> bool:
    up: ast.AST | None = node
    while up is not None and not isinstance(up, ast.JoinedStr):
        up = scopes.parent_of.get(up)
    return up is not None


def _called(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
