"""Statements, as they would run: constant branches taken, constant loops unrolled, side effects left out and listed."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.doors.functions.effects import Opaque, Removed, only_effects, writes
from compiler_kernels.doors.functions.expressions import Expressions
from compiler_kernels.doors.functions.module import Source, member
from compiler_kernels.doors.functions.table import cast
from compiler_kernels.doors.functions.values import Array, Graph, by_example, holds_array
from compiler_kernels.errors import UsageError

_DEPTH_LIMIT = 50
_LOOP_LIMIT = 100_000
_BREAK, _CONTINUE = object(), object()


@dataclass(frozen=True)
class _Return:
    value: Any


@dataclass
class _Frame:
    function: str
    names: dict[str, Any]
    globals: set[str] = field(default_factory=set)


class Interpreter(Expressions):
    """Reads a function of ``source`` and leaves its nodes in ``graph``; ``removed`` lists what they do not do."""

    def __init__(self, source: Source, graph: Graph) -> None:
        super().__init__(source, graph)
        self.frames: list[_Frame] = []
        self.removed: list[Removed] = []
        self._constants: dict[str, Any] = {}

    def run(self, function: ast.FunctionDef, names: dict[str, Any]) -> Any:
        """What ``function`` returns when its parameters have the values ``names``."""
        self.frames.append(_Frame(function.name, names))
        try:
            found = self._block(function.body)
        finally:
            self.frames.pop()
        return found.value if isinstance(found, _Return) else None

    def lookup(self, node: ast.Name) -> Any:
        frame = self.frames[-1] if self.frames else None
        name = node.id
        if frame is not None and name in frame.names:
            return frame.names[name]
        if name in self.source.changed:
            raise self.refuse(node, "is state that lives between calls; pass it as a parameter")
        if name in self._constants:
            return copy.deepcopy(self._constants[name])
        if name in self.source.constants:
            frames, self.frames = self.frames, []
            try:
                self._constants[name] = self.value(self.source.constants[name])
            finally:
                self.frames = frames
            return copy.deepcopy(self._constants[name])
        if name in self.source.modules:
            try:
                return member(self.source.modules[name])
            except KeyError:
                raise self.refuse(node, f"is {self.source.modules[name]}, which is not in the subset") from None
        if name in ("float", "int", "bool"):
            return {"float": float, "int": int, "bool": bool}[name]
        raise UsageError(str(self.refuse(node, "is not defined here")))

    def call_function(self, node: ast.Call, function: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if len(self.frames) >= _DEPTH_LIMIT:
            raise self.refuse(node, "calls itself without end as far as constants tell; use a loop over a range")
        if function.decorator_list:
            raise self.refuse(node, f"calls {function.name}, which has a decorator; call the function it wraps")
        where = self.graph.where
        found = self.run(function, self.bind(node, function, args, kwargs))
        self.graph.where = where
        return found

    def bind(self, node: ast.AST, function: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Parameters to values, with the defaults; ``UsageError`` as Python's ``TypeError``."""
        spec = function.args
        if spec.vararg or spec.kwarg:
            raise self.refuse(function, "takes * or ** parameters; write them out")
        positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        names = [*positional, *(a.arg for a in spec.kwonlyargs)]
        bound = dict(zip(positional, args, strict=False))
        wrong = next((k for k in kwargs if k not in names or k in bound), None)
        if len(args) > len(positional) or wrong is not None:
            raise UsageError(str(self.refuse(node, f"does not fit the parameters of {function.name}")))
        bound.update(kwargs)
        defaults = dict(zip(positional[::-1], spec.defaults[::-1], strict=False))
        defaults.update({a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None})
        for name in names:
            if name not in bound:
                if name not in defaults:
                    raise UsageError(str(self.refuse(node, f"leaves out the parameter {name!r} of {function.name}")))
                bound[name] = self.value(defaults[name])
        return bound

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        frame = self.frames[-1] if self.frames else _Frame("", {})
        self.frames.append(_Frame(frame.function, dict(frame.names)))
        try:
            return self._generate(node, 0)
        finally:
            self.frames.pop()

    def _generate(self, node: ast.ListComp | ast.GeneratorExp, level: int) -> list[Any]:
        if level == len(node.generators):
            return [self.value(node.elt)]
        part, found = node.generators[level], []
        for item in self._iterable(part.iter):
            self._assign(part.target, item)
            tests = (self.constant_truth(t, "a choice", "use np.where") for t in part.ifs)
            if all(tests):
                found += self._generate(node, level + 1)
        return found

    def remove(self, node: ast.stmt, what: str) -> None:
        entry = Removed(node.lineno, what)
        if entry not in self.removed:
            self.removed.append(entry)

    def _block(self, body: list[ast.stmt]) -> Any:
        for node in body:
            method = getattr(self, f"_do_{type(node).__name__.lower()}", None)
            if method is None:
                raise self.refuse(node, "is not in the subset of Python that is compiled (docs/doors.md lists it)")
            signal = method(node)
            if signal is not None:
                return signal
        return None

    def _do_pass(self, node: ast.Pass) -> None:
        pass

    def _do_import(self, node: ast.Import) -> None:
        pass

    def _do_importfrom(self, node: ast.ImportFrom) -> None:
        pass

    def _do_break(self, node: ast.Break) -> Any:
        return _BREAK

    def _do_continue(self, node: ast.Continue) -> Any:
        return _CONTINUE

    def _do_return(self, node: ast.Return) -> Any:
        return _Return(None if node.value is None else self.value(node.value))

    def _do_global(self, node: ast.Global) -> None:
        self.frames[-1].globals.update(node.names)

    def _do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            call = node.value
            if writes(call, self.source.modules, self.source.loggers):
                self.remove(node, self._text(node))
                return
            owner = call.func.value if isinstance(call.func, ast.Attribute) else None
            if isinstance(owner, ast.Name) and owner.id in self.source.changed:
                self.remove(node, self._text(node))
                return
            if any(k.arg == "out" for k in call.keywords):
                raise self.refuse(node, "writes into an array with out=; assign the result instead")
        if isinstance(self.value(node.value), Opaque):
            self.remove(node, self._text(node))

    def _do_assert(self, node: ast.Assert) -> None:
        remedy = "guard the input in the policy (inputs.NAME.range, finite), which the engine enforces"
        if not self.constant_truth(node.test, "an assertion", remedy):
            raise UsageError(str(self.refuse(node, "does not hold for the given shapes")))

    def _do_raise(self, node: ast.Raise) -> None:
        raise UsageError(str(self.refuse(node, "is reached for the given shapes")))

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self._assign(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self.value(node.value))

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            if target.id in self.frames[-1].globals:
                self.removed.append(Removed(target.lineno, f"assignment to the global {target.id}"))
            self.frames[-1].names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            if any(isinstance(item, ast.Starred) for item in target.elts):
                raise self.refuse(target, "unpacks with *; name every item")
            items = [a for _, a in self._rows(value)] if isinstance(value, Array) else list(value)
            if len(items) != len(target.elts):
                raise UsageError(str(self.refuse(target, f"takes {len(target.elts)} values and gets {len(items)}")))
            for item, part in zip(target.elts, items, strict=True):
                self._assign(item, part)
        else:
            self._assign_inside(target, value)

    def _assign_inside(self, target: ast.expr, value: Any) -> None:
        """``x[0] = v`` and ``x.a = v``: on globals a side effect, on constants done, on arrays of the graph refused."""
        owner: ast.expr = target
        while isinstance(owner, ast.Subscript | ast.Attribute):
            owner = owner.value
        if isinstance(owner, ast.Name) and owner.id not in self.frames[-1].names and owner.id in self.source.changed:
            self.removed.append(Removed(target.lineno, f"assignment to the global {owner.id}"))
            return
        if not isinstance(target, ast.Subscript):
            raise self.refuse(target, "is assigned to; assign to plain names")
        holder, index = self.value(target.value), self.value(target.slice)
        inside = index if isinstance(holder, list | dict) else [index, value]
        if not isinstance(holder, list | dict | np.ndarray) or holds_array(inside):
            raise self.refuse(target, "changes part of an array; build it with np.where, np.concatenate or np.stack")
        holder[index] = value

    def _do_augassign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.refuse(node, "changes part of an array; build it with np.where, np.concatenate or np.stack")
        read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        before = self.value(read)
        if isinstance(before, list) and isinstance(node.op, ast.Add):
            before.extend(self.value(node.value))  # in place, as in Python: other names of the list see it
            return
        after = self.value(ast.copy_location(ast.BinOp(read, node.op, node.value), node))
        if isinstance(before, Array | np.ndarray) and not isinstance(after, Opaque):
            result = by_example(lambda a, b: a.astype(b.dtype, casting="same_kind"), (after, before))
            if result.shape != before.shape:
                raise UsageError(str(self.refuse(node, f"would change the shape {before.shape} to {result.shape}")))
            self._check_aliases(node, node.target.id, before)
            after = cast(self.graph, after, before.dtype) if isinstance(after, Array) else after.astype(before.dtype)
        self._assign(node.target, after)

    def _check_aliases(self, node: ast.AugAssign, name: str, before: Array | NDArray[Any]) -> None:
        for frame in self.frames:
            for other, value in frame.names.items():
                if (frame is not self.frames[-1] or other != name) and _sees(value, before):
                    raise self.refuse(
                        node, f"changes an array in place that {other!r} sees too; write {name} = {name} ... instead"
                    )
        if (
            isinstance(before, Array)
            and len(self.frames) == 1
            and before.name in {info.name for info in self.graph.inputs}
        ):
            self.remove(node, f"change of the caller's array {name}")

    def _do_if(self, node: ast.If) -> Any:
        modules, loggers = self.source.modules, self.source.loggers
        if only_effects(node.body + node.orelse, modules, loggers):
            self.remove(node, f"branch that only writes: if {self._text(node.test)}")
            return None
        chosen = self.constant_truth(
            node.test, "control flow", "use np.where(condition, a, b), which computes both branches"
        )
        return self._block(node.body if chosen else node.orelse)

    def _do_for(self, node: ast.For) -> Any:
        if only_effects(node.body + node.orelse, self.source.modules, self.source.loggers):
            self.remove(node, "loop that only writes")
            return None
        for item in self._iterable(node.iter):
            self._assign(node.target, item)
            signal = self._block(node.body)
            if signal is _BREAK:
                return None
            if isinstance(signal, _Return):
                return signal
        return self._block(node.orelse)

    def _iterable(self, node: ast.expr) -> list[Any]:
        value = self.value(node)
        if isinstance(value, Opaque):
            raise self.refuse(node, f"loops over {value.source}; loop over a constant range")
        if isinstance(value, Array):
            return [item for _, item in self._rows(value)]
        items = value if isinstance(value, range | list | tuple) else list(value)
        if len(items) > _LOOP_LIMIT:
            raise self.refuse(node, f"loops more than {_LOOP_LIMIT} times; use array operations")
        return list(items)

    def _do_while(self, node: ast.While) -> None:
        raise self.refuse(node.test, "is a while loop; use for over a range with constant bounds")

    def _do_with(self, node: ast.With) -> Any:
        for item in node.items:
            value = self.value(item.context_expr)
            if not isinstance(value, Opaque | np.errstate):
                raise self.refuse(item.context_expr, "opens a context that is not in the subset")
            if isinstance(value, Opaque):
                self.remove(node, self._text(item.context_expr))
            if isinstance(item.optional_vars, ast.Name):
                self._assign(item.optional_vars, value)
        return self._block(node.body)

    def _text(self, node: ast.AST) -> str:
        text = " ".join((ast.get_source_segment(self.source.text, node) or "").split())
        return text if len(text) <= 80 else text[:77] + "..."


def _sees(value: Any, array: Array | NDArray[Any]) -> bool:
    """Whether ``value`` is, or holds, the memory of ``array``."""
    if isinstance(value, list | tuple):
        return any(_sees(item, array) for item in value)
    if isinstance(value, dict):
        return any(_sees(item, array) for item in value.values())
    if isinstance(value, Array) and isinstance(array, Array):
        return value.buffer == array.buffer
    return isinstance(value, np.ndarray) and isinstance(array, np.ndarray) and np.shares_memory(value, array)
