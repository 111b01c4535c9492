"""Edits of a Python text that leave every other character in place, and the check that they changed nothing else."""

from __future__ import annotations

import ast
import copy
import io
import re
import tokenize
import warnings
from dataclasses import dataclass

from evidence.tracing.scopes import Scopes
from evidence.tracing.sites import HELPER, Found, Said

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_SPACING = frozenset({tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT})
ALIAS = "cuvil_trace"
_LAST = 1 << 30


class Unplaced(Exception):
    """An edit has no place; ``said`` is why."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.said = Said(line, sentence)


@dataclass(frozen=True)
class Text:
    """A Python text in lines (with their ends) as the language counts them."""

    lines: list[str]

    @staticmethod
    def of(text: str) -> Text:
        return Text([line for line in _LINE.findall(text) if line])

    def column(self, line: int, offset: int) -> int:
        """Characters before the UTF-8 ``offset`` that a node states, in ``line`` (from 1)."""
        return len(self.lines[line - 1].encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "surrogatepass"))


def parsed(text: str) -> ast.Module:
    """The syntax tree of ``text``, whatever Python has to remark about its style; ``SyntaxError`` as ``ast.parse``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def edited(text: str, tree: ast.Module, found: Found, strict: bool) -> str:
    """``text`` with the calls of ``found`` bound, and one line for the import where the file has none yet.

    Only characters within lines are added, and one line. Raises ``Unplaced`` when no place is left for the import, or
    when the result, without the additions, is not the program it was.
    """
    if not found.reads and not found.starts:
        return text
    lines = Text.of(text)
    name, new = _alias(tree, min(call.lineno for call in (*found.reads, *found.starts)))
    additions: list[tuple[int, int, int, str]] = []
    for number, call in enumerate(found.reads):
        assert call.end_lineno is not None and call.end_col_offset is not None
        start = (call.lineno, lines.column(call.lineno, call.col_offset))
        end = (call.end_lineno, lines.column(call.end_lineno, call.end_col_offset))
        # Of several that begin at one place the outer one comes first in `reads`; of several that end, last.
        additions.append((*start, number, f"{name}.bind_dicom("))
        additions.append((*end, -number, ", strict=True)" if strict else ")"))
    for call in found.starts:
        additions += _environment(lines, call, name)
    made = list(lines.lines)
    for line, column, _, added in sorted(additions, reverse=True):
        made[line - 1] = made[line - 1][:column] + added + made[line - 1][column:]
    if new:
        at = _place(tree, lines)
        ending = next((end for end in ("\r\n", "\r", "\n") if lines.lines[0].endswith(end)), "\n")
        if at and not made[at - 1].endswith(("\r", "\n")):
            made[at - 1] += ending
        made.insert(at, f"from cuvil import trace as {name}{ending}")
    result = "".join(made)
    _check(tree, result, name, new, len(found.reads) + len(found.starts))
    return result


def _alias(tree: ast.Module, before: int) -> tuple[str, bool]:
    """The name of the helper in this file, and whether it has to be imported: unless a statement of the module, before
    line ``before``, has done so under a name that means nothing else anywhere."""
    scopes = Scopes(tree)
    bound: dict[str, list[object]] = {}
    for scope in {id(scope): scope for scope in scopes.scope_of.values()}.values():
        for name, values in scope.bindings.items():
            bound.setdefault(name, []).extend(values)
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom) and statement.lineno < before:
            for item in statement.names:
                if bound.get(item.asname or item.name) == [HELPER]:
                    return item.asname or item.name, False
    used = bound.keys() | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    name = ALIAS
    while name in used:
        name = f"_{name}"
    return name, True


def _place(tree: ast.Module, lines: Text) -> int:
    """How many lines stand before the new import: behind the imports the file begins with, or its docstring."""
    at: int | None = None
    body = tree.body
    for number, statement in enumerate(body):
        head = isinstance(statement, ast.Import | ast.ImportFrom)
        head = head or (number == 0 and isinstance(statement, ast.Expr) and ast.get_docstring(tree) is not None)
        if number == 0 and not head:
            decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
            return min(statement.lineno, *(item.lineno for item in decorators), statement.lineno) - 1
        if not head:
            break
        assert statement.end_lineno is not None
        following = body[number + 1].lineno if number + 1 < len(body) else statement.end_lineno + 1
        future = isinstance(body[number + 1], ast.ImportFrom) if number + 1 < len(body) else False
        future = future and getattr(body[number + 1], "module", "") == "__future__"
        if following > statement.end_lineno and not future:
            at = statement.end_lineno
    if at is None:
        raise Unplaced(
            body[0].lineno,
            f"no place is left for the import of {HELPER}: put the first statements on lines of their own",
        )
    return at


def _environment(lines: Text, call: ast.Call, name: str) -> list[tuple[int, int, int, str]]:
    """The additions that give a started program the context in its environment."""
    given = next((word.value for word in call.keywords if word.arg == "env"), None)
    if given is not None:
        assert given.end_lineno is not None and given.end_col_offset is not None
        return [
            (given.lineno, lines.column(given.lineno, given.col_offset), 0, f"{name}.environment("),
            (given.end_lineno, lines.column(given.end_lineno, given.end_col_offset), 0, ")"),
        ]
    assert call.end_lineno is not None and call.end_col_offset is not None
    plain = "".join(line.rstrip("\r\n") + "\n" for line in lines.lines)
    end = (call.end_lineno, lines.column(call.end_lineno, call.end_col_offset) - 1)  # the closing parenthesis
    before = None
    for token in tokenize.generate_tokens(io.StringIO(plain).readline):
        if token.start >= end:
            break
        if token.type not in _SPACING:
            before = token
    assert before is not None
    comma = before.string == ","
    added = f" env={name}.environment()," if comma else f", env={name}.environment()"
    return [(*before.end, _LAST, added)]  # behind the end of a call of pydicom that is the last argument


def _check(tree: ast.Module, result: str, name: str, new: bool, added: int) -> None:
    """The result, less the additions, is the same program; else ``Unplaced``, and nothing is written."""
    remedy = "write each call on lines of its own"
    try:
        made = parsed(result)
    except SyntaxError as error:
        raise Unplaced(error.lineno or 1, f"an edit would break the program here: {remedy}") from None
    before, after = _Bare(name), _Bare(name)
    old = ast.dump(before.visit(copy.deepcopy(tree)))
    if new:
        wanted = ast.dump(ast.parse(f"from {HELPER.partition('.')[0]} import trace as {name}").body[0])
        made.body.remove(next(item for item in made.body if ast.dump(item) == wanted))
    if ast.dump(after.visit(made)) != old or after.taken != before.taken + added:
        raise Unplaced(1, f"the edits would change more of the program than they should: {remedy}")


class _Bare(ast.NodeTransformer):
    """Takes the helper's calls out of a tree; ``taken`` counts them."""

    def __init__(self, name: str) -> None:
        self.name, self.taken = name, 0

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        kept = []
        for word in node.keywords:
            if word.arg == "env" and self._is(word.value, "environment") and isinstance(word.value, ast.Call):
                self.taken += 1
                if not word.value.args:
                    continue
                word.value = word.value.args[0]
            kept.append(word)
        node.keywords = kept
        if self._is(node, "bind_dicom") and len(node.args) == 1:
            self.taken += 1
            return node.args[0]
        return node

    def _is(self, node: ast.expr, function: str) -> bool:
        name = node.func if isinstance(node, ast.Call) else None
        return (
            isinstance(name, ast.Attribute)
            and name.attr == function
            and isinstance(name.value, ast.Name)
            and name.value.id == self.name
        )
