"""What a name in a Python file stands for: imports followed through the language's scopes.

Read from the syntax tree, nothing is imported or run. ``Scopes.resolve`` answers with qualified names such as
``pydicom.filereader.dcmread``; a name with several bindings has several answers, and one that is bound by anything but
an import or a plain assignment has the answer ``UNKNOWN`` among them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

UNKNOWN = "?"
_DEPTH = 8
"""Assignments followed one behind the other."""

_ADDING = frozenset({"append", "extend"})
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass
class Scope:
    """A module, class, function or comprehension with the names it binds: each to qualified names, to the expressions
    assigned to it, or to ``None`` for anything else."""

    node: ast.AST
    parent: Scope | None = None
    bindings: dict[str, list[str | ast.expr | None]] = field(default_factory=dict)
    elsewhere: dict[str, Scope] = field(default_factory=dict)
    added: dict[str, list[ast.expr]] = field(default_factory=dict)
    """What is added to a list of this name: by ``+=``, ``append`` and ``extend``."""

    def bind(self, name: str, value: str | ast.expr | None) -> None:
        scope = self.elsewhere.get(name, self)
        if scope is self and isinstance(self.node, _Comprehension) and value is not None and self.parent is not None:
            self.parent.bind(name, value)
            return
        scope.bindings.setdefault(name, []).append(value)

    def holder(self, name: str) -> Scope | None:
        """The scope whose binding a use of ``name`` here means; classes are not seen from the functions in them."""
        scope: Scope | None = self.elsewhere.get(name, self)
        while scope is not None:
            if name in scope.bindings and (scope is self or not isinstance(scope.node, ast.ClassDef)):
                return scope
            scope = scope.parent
        return None


class Scopes(ast.NodeVisitor):
    """Scopes and parents of every node of ``tree``."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(tree)
        self.scope_of: dict[ast.AST, Scope] = {}
        self.parent_of: dict[ast.AST, ast.AST] = {}
        self._scope = self.module
        self.visit(tree)

    def resolve(self, expression: ast.AST, depth: int = _DEPTH) -> set[str]:
        """The qualified names that ``expression``, a name or an attribute, may stand for; empty for anything else."""
        if isinstance(expression, ast.Attribute):
            found = self.resolve(expression.value, depth)
            return {name if name == UNKNOWN else f"{name}.{expression.attr}" for name in found}
        if not isinstance(expression, ast.Name):
            return set()
        holder = self.scope_of[expression].holder(expression.id)
        if holder is None:
            return {f"builtins.{expression.id}"}
        names: set[str] = set()
        for value in holder.bindings[expression.id]:
            if isinstance(value, str):
                names.add(value)
            elif value is None or depth == 0:
                names.add(UNKNOWN)
            else:
                names |= self.resolve(value, depth - 1) or {UNKNOWN}
        return names

    def assigned(self, name: ast.Name) -> list[ast.expr]:
        """What was assigned and added to ``name``, anywhere in its scope."""
        holder = self.scope_of[name].holder(name.id)
        if holder is None:
            return []
        plain = [value for value in holder.bindings[name.id] if isinstance(value, ast.expr)]
        return plain + holder.added.get(name.id, [])

    def visit(self, node: ast.AST) -> None:
        self.scope_of[node] = self._scope
        for child in ast.iter_child_nodes(node):
            self.parent_of[child] = node
        super().visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            self._scope.bind(alias.asname or root, alias.name if alias.asname else root)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name != "*":
                self._scope.bind(alias.asname or alias.name, f"{module}.{alias.name}")

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._scope.bind(target.id, node.value)
                self.scope_of[target] = self._scope
                self.parent_of[target] = node
            else:
                self.visit(target)
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and node.value is not None:
            self._scope.bind(node.target.id, node.value)
        else:
            self.visit(node.target)
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._scope.added.setdefault(node.target.id, []).append(node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _ADDING and isinstance(function.value, ast.Name):
            self._scope.added.setdefault(function.value.id, []).extend(node.args)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._scope.bind(node.target.id, node.value)
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._scope.bind(node.id, None)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._scope.bind(node.name, None)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        if node.name:
            self._scope.bind(node.name, None)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self._scope.bind(node.name, None)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self._scope.bind(node.rest, None)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        for name in node.names:
            self._scope.elsewhere[name] = self.module

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        for name in node.names:
            holder = self._scope.parent.holder(name) if self._scope.parent else None
            if holder is not None:
                self._scope.elsewhere[name] = holder

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope.bind(node.name, None)
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._scope.bind(node.name, None)
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.bind(node.name, None)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._within(node, node.body)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._within(node, list(ast.iter_child_nodes(node)))

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # type: ignore[assignment]

    def _function(self, node: _Function) -> None:
        """Decorators, defaults and annotations belong to the scope around; arguments and body to the function's."""
        arguments = node.args
        outside: list[ast.AST] = [*arguments.defaults, *(item for item in arguments.kw_defaults if item is not None)]
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
        outside += [item.annotation for item in named if item.annotation is not None]
        if not isinstance(node, ast.Lambda):
            outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
        for part in ast.walk(arguments):
            self.scope_of[part] = self._scope
            for child in ast.iter_child_nodes(part):
                self.parent_of[child] = part
        for part in outside:
            self.visit(part)
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        self._within(node, body, [item.arg for item in named])

    def _within(self, node: ast.AST, body: list[ast.AST] | list[ast.stmt], names: list[str] | None = None) -> None:
        outer, self._scope = self._scope, Scope(node, self._scope)
        for name in names or []:
            self._scope.bind(name, None)
        for part in body:
            self.visit(part)
        self._scope = outer
