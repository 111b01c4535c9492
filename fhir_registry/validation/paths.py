"""FHIRPath 2.0 (HL7): what FHIR's own definitions use most as plain functions, the rest by fhirpathpy.

A path engine that walks a syntax tree for each value takes most of the time of a create. What is plain here: members,
choices, literals, ``exists empty not where first startsWith matches ofType all``, ``and or xor implies``, ``= !=`` on
texts and booleans, ``|``. Whatever the plain functions meet beyond that, in the expression or in the data (extended
primitives, other kinds of values), raises ``_UnsureError`` within, and fhirpathpy answers instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from fhir_registry.definitions.types import r5

Path = Callable[..., list[Any]]
Step = Callable[[list[Any]], list[Any]]
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<number>\d+(?:\.\d+)?)|(?P<op><=|>=|!=|!~|\S))"
)
# FHIRPath 2.0, section 8: from the weakest operator to the strongest.
_LEVELS: Final = (
    ("implies",),
    ("or", "xor"),
    ("and",),
    ("in", "contains"),
    ("=", "!=", "~", "!~"),
    ("<", ">", "<=", ">="),
    ("|",),
    ("is", "as"),
    ("+", "-", "&"),
    ("*", "/", "div", "mod"),
)


class _UnsureError(Exception):
    """The plain functions cannot answer this."""


def evaluate(expression: str, value: Any, context: dict[str, Any]) -> list[Any] | None:
    """What ``expression`` finds in ``value``; ``None`` when no engine can tell. ``context``: ``%`` names."""
    plain = _plain(expression)
    if plain is not None:
        try:
            return plain([value])
        except _UnsureError:
            pass
    path = compiled(expression)
    if path is None:
        return None
    try:
        return list(path(value, context))
    except Exception:  # whatever a path engine raises on a construct it lacks
        return None


@lru_cache(maxsize=4096)
def compiled(expression: str) -> Path | None:
    """The expression as a function of a value and a context by fhirpathpy; ``None`` when it cannot be parsed."""
    from fhirpathpy import compile as compile_path
    from fhirpathpy.models import models

    try:
        found: Path = compile_path(_untraced(expression), models["r5"])
    except Exception:  # a parser of another project: any error means the same here
        return None
    return found


def _untraced(expression: str) -> str:
    """trace() prints in this engine, and says nothing that is needed here."""
    return re.sub(r"\.trace\('[^']*'\)", "", expression)


@lru_cache(maxsize=4096)
def _plain(expression: str) -> Step | None:
    """The plain function of an expression; ``None`` when all of it is beyond them."""
    parser = _Parser(_untraced(expression))
    try:
        step = parser.expression(0)
    except (_UnsureError, IndexError):
        return None
    return step if parser.at == len(parser.tokens) and step is not _unsure else None


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            assert match is not None
            self.tokens.append((str(match.lastgroup), match[match.lastgroup or 0]))
            at = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        found = self.tokens[self.at][1]
        if wanted and found != wanted:
            raise _UnsureError
        self.at += 1
        return found

    def expression(self, level: int) -> Step:
        if level == len(_LEVELS):
            return self.chain()
        left = self.expression(level + 1)
        while self.peek() in _LEVELS[level]:
            operator = self.take()
            right = self.expression(level + 1)
            left = _OPERATORS[operator](left, right) if operator in _OPERATORS else _unsure
        return left

    def chain(self) -> Step:
        step = self.term()
        while self.peek() in (".", "["):
            if self.take() == "[":
                self.expression(0)
                self.take("]")
                step = _unsure
                continue
            name = self.take()
            step = _after(step, self.function(name) if self.peek() == "(" else self.member(name))
        return step

    def term(self) -> Step:
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "text":
            plain = text[1:-1].replace("\\\\", "")  # without the escaped backslashes of a regular expression
            return _unsure if "\\" in plain else _constant(text[1:-1].replace("\\\\", "\\"))
        if kind == "name":
            if self.peek() == "(":
                return self.function(text)
            if text in ("true", "false"):
                return _constant(text == "true")
            return _root(text) if text[0].isupper() else self.member(text)
        if text == "(":
            step = self.expression(0)
            self.take(")")
            return step
        if text == "$" and self.take() == "this":
            return _same
        if text == "%":
            self.take()
        elif kind != "number":
            raise _UnsureError
        return _unsure

    def member(self, name: str) -> Step:
        """A member, or a choice with its type: ``value.ofType(string)`` is valueString."""
        following = [text for _, text in self.tokens[self.at : self.at + 5]]
        if following[:3] == [".", "ofType", "("] and following[4:] == [")"]:
            self.at += 5
            return _choice(name, following[3])
        return _member(name)

    def function(self, name: str) -> Step:
        self.take("(")
        arguments: list[Step] = []
        while self.peek() != ")":
            arguments.append(self.expression(0))
            if self.peek() == ",":
                self.take()
        self.take(")")
        made = _FUNCTIONS.get((name, len(arguments)))
        return made(*arguments) if made is not None else _unsure


def _unsure(items: list[Any]) -> list[Any]:
    raise _UnsureError


def _same(items: list[Any]) -> list[Any]:
    return items


def _constant(value: Any) -> Step:
    found = [value]
    return lambda items: found


def _after(first: Step, second: Step) -> Step:
    return lambda items: second(first(items))


def _root(name: str) -> Step:
    def step(items: list[Any]) -> list[Any]:
        if any(type(item) is not dict or "resourceType" not in item for item in items):
            raise _UnsureError
        return items if name in ("Resource", "DomainResource") else [i for i in items if i["resourceType"] == name]

    return step


def _member(name: str) -> Step:
    extended, size = f"_{name}", len(name)

    def step(items: list[Any]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            if type(item) is not dict or extended in item:
                raise _UnsureError
            value = item.get(name)
            if type(value) is list:
                found += value
            elif value is not None:
                found.append(value)
            elif any(key.startswith(name) and key[size : size + 1].isupper() for key in item):
                # a choice, by any of its types; valueSet beside value[x] is none
                found += [item[key] for key in item if key in r5().choices.get(name, ())]
        return found

    return step


def _choice(name: str, kind: str) -> Step:
    wanted = f"{name}{kind[0].upper()}{kind[1:]}"
    extended = f"_{wanted}"

    def step(items: list[Any]) -> list[Any]:
        found: list[Any] = []
        for item in items:
            if type(item) is not dict or name in item or extended in item:
                raise _UnsureError
            value = item.get(wanted)
            if type(value) is list:
                raise _UnsureError
            if value is not None:
                found.append(value)
        return found

    return step


def _truth(items: list[Any]) -> bool | None:
    """A boolean; ``None`` for nothing."""
    if not items:
        return None
    if len(items) != 1 or type(items[0]) is not bool:
        raise _UnsureError
    return items[0]


def _answer(value: bool | None) -> list[Any]:
    return [] if value is None else [value]


def _and(left: Step, right: Step) -> Step:
    def step(items: list[Any]) -> list[Any]:
        a = _truth(left(items))
        if a is False:
            return [False]
        b = _truth(right(items))
        return [False] if b is False else _answer(True if a and b else None)

    return step


def _or(left: Step, right: Step) -> Step:
    def step(items: list[Any]) -> list[Any]:
        a = _truth(left(items))
        if a:
            return [True]
        b = _truth(right(items))
        return [True] if b else _answer(None if a is None or b is None else False)

    return step


def _xor(left: Step, right: Step) -> Step:
    def step(items: list[Any]) -> list[Any]:
        a, b = _truth(left(items)), _truth(right(items))
        return _answer(None if a is None or b is None else a is not b)

    return step


def _implies(left: Step, right: Step) -> Step:
    def step(items: list[Any]) -> list[Any]:
        a = _truth(left(items))
        if a is False:
            return [True]
        b = _truth(right(items))
        return _answer(b) if a else _answer(True if b else None)

    return step


def _equal(wanted: bool) -> Callable[[Step, Step], Step]:
    def made(left: Step, right: Step) -> Step:
        def step(items: list[Any]) -> list[Any]:
            a, b = left(items), right(items)
            if not a or not b:
                return []
            if len(a) != 1 or len(b) != 1 or type(a[0]) is not type(b[0]) or type(a[0]) not in (str, bool):
                raise _UnsureError
            return [(a[0] == b[0]) is wanted]

        return step

    return made


def _union(left: Step, right: Step) -> Step:
    def step(items: list[Any]) -> list[Any]:
        a, b = left(items), right(items)
        if len(a) + len(b) < 2:
            return a or b
        found: list[Any] = []
        for item in (*a, *b):  # without doubles
            if item not in found:
                found.append(item)
        return found

    return step


def _where(condition: Step) -> Step:
    return lambda items: [item for item in items if _truth(condition([item]))]


def _all(condition: Step) -> Step:
    # every item is looked at: one that cannot be judged makes the whole answer unsure
    return lambda items: [None not in (found := {_truth(condition([item])) for item in items}) and False not in found]


def _not(items: list[Any]) -> list[Any]:
    found = _truth(items)
    return [] if found is None else [not found]


def _text(items: list[Any]) -> str:
    if len(items) != 1 or type(items[0]) is not str:
        raise _UnsureError
    return items[0]


def _starts_with(start: Step) -> Step:
    return lambda items: [_text(items).startswith(_text(start(items)))] if items else []


def _matches(pattern: Step) -> Step:
    def step(items: list[Any]) -> list[Any]:
        return [re.search(_text(pattern(items)), _text(items), re.DOTALL) is not None] if items else []

    return step


_OPERATORS: Final[dict[str, Callable[[Step, Step], Step]]] = {
    "and": _and,
    "or": _or,
    "xor": _xor,
    "implies": _implies,
    "=": _equal(True),
    "!=": _equal(False),
    "|": _union,
}
_FUNCTIONS: Final[dict[tuple[str, int], Callable[..., Step]]] = {
    ("exists", 0): lambda: lambda items: [bool(items)],
    ("exists", 1): lambda condition: lambda items: [bool(_where(condition)(items))],
    ("empty", 0): lambda: lambda items: [not items],
    ("not", 0): lambda: _not,
    ("first", 0): lambda: lambda items: items[:1],
    ("where", 1): _where,
    ("all", 1): _all,
    ("startsWith", 1): _starts_with,
    ("matches", 1): _matches,
}
