"""Which statements only have side effects, and which calls have results that are not a function of their arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

_WRITES = frozenset(
    """print warnings.warn warnings.simplefilter warnings.filterwarnings time.sleep json.dump pickle.dump
    sys.stdout.write sys.stderr.write sys.stdout.flush sys.stderr.flush os.makedirs os.mkdir os.remove os.unlink
    shutil.copy shutil.move numpy.save numpy.savez numpy.savez_compressed numpy.savetxt numpy.set_printoptions
    numpy.seterr gc.collect""".split()
)
_WRITING_MODULES = ("logging.", "matplotlib.")
_LOGGER_METHODS = frozenset("debug info warning warn error critical exception log".split())
_FILE_METHODS = frozenset("write writelines write_text write_bytes close flush mkdir unlink touch".split())
_IMPURE = frozenset("open input".split())
_IMPURE_MODULES = ("time.", "os.", "random.", "numpy.random.", "datetime.", "sys.", "logging.", "pathlib.", "uuid.")
_CHANGES = frozenset("append extend insert update add pop remove clear setdefault sort reverse".split())


@dataclass(frozen=True)
class Opaque:
    """The result of a call that is no function of its arguments (a clock, a file, a random number)."""

    source: str
    line: int


@dataclass(frozen=True)
class Removed:
    """A side effect that the graph does not have: where it stood and what it was."""

    line: int
    what: str


def dotted(node: ast.expr, modules: dict[str, str]) -> str | None:
    """``numpy.random.rand`` for ``np.random.rand`` where ``modules`` says what ``np`` is; ``None`` for other calls."""
    if isinstance(node, ast.Name):
        return modules.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        head = dotted(node.value, modules)
        return None if head is None else f"{head}.{node.attr}"
    return None


def writes(call: ast.Call, modules: dict[str, str], loggers: frozenset[str]) -> bool:
    """Whether ``call`` as a statement only prints, logs, draws, sleeps or writes files."""
    name = dotted(call.func, modules)
    if name is not None and (name in _WRITES or name.startswith(_WRITING_MODULES)):
        return True
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        if isinstance(owner, ast.Name) and owner.id in loggers and call.func.attr in _LOGGER_METHODS:
            return True
        return call.func.attr in _FILE_METHODS
    return False


def impure(name: str | None) -> bool:
    """Whether the result of calling ``name`` depends on more than its arguments."""
    return name is not None and (name in _IMPURE or name.startswith(_IMPURE_MODULES))


def only_effects(body: list[ast.stmt], modules: dict[str, str], loggers: frozenset[str]) -> bool:
    """Whether nothing in ``body`` computes: calls that only write, ``pass``, and branches and loops around them."""
    for node in body:
        if isinstance(node, ast.Pass):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if writes(node.value, modules, loggers):
                continue
            return False
        if isinstance(node, ast.If | ast.For | ast.While):
            if only_effects(node.body + node.orelse, modules, loggers):
                continue
            return False
        return False
    return True


def changed_globals(functions: Iterator[ast.FunctionDef]) -> frozenset[str]:
    """Names outside functions that some function assigns or changes: state between calls."""
    found: set[str] = set()
    for function in functions:
        own = {a.arg for a in (*function.args.args, *function.args.kwonlyargs, *function.args.posonlyargs)}
        declared: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                declared.update(node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
        own -= declared
        found |= declared
        for node in ast.walk(function):
            if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                owner = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
                owner = node.func.value
            else:
                continue
            while isinstance(owner, ast.Subscript | ast.Attribute):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id not in own:
                found.add(owner.id)
    return frozenset(found)
