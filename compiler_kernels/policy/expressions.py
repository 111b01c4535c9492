"""The expressions of the policy: text to syntax tree.

Two kinds share one grammar (docs/clinical.md): a *quantity* is a number computed from tensors, a *condition* is true or
false. Both are written as in Python:

    condition  := conjunction ("or" conjunction)*
    conjunction:= negation ("and" negation)*
    negation   := "not" negation | comparison
    comparison := sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
    sum        := product (("+" | "-") product)*
    product    := sign (("*" | "/") sign)*
    sign       := "-" sign | primary
    primary    := number | "(" condition ")" | function "(" condition ("," condition)* ")" | name ["[" axes "]"]
    name       := [("inputs" | "outputs") "."] (identifier | "`" any text "`")
    axes       := axis ("," axis)*          axis := number | [number] ":" [number]

What a name means, and which kind stands where, is decided later (``compiler_kernels.policy.logic``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

FUNCTIONS: Final = ("area", "argmax", "at_least", "fraction", "max", "mean", "min", "percentile", "sum")
COMPARISONS: Final = ("<=", ">=", "==", "!=", "<", ">")
RESERVED: Final = (*FUNCTIONS, "and", "inputs", "not", "or", "outputs")
LONGEST: Final = 4000
DEEPEST: Final = 40

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<quoted>`[^`]+`)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign><=|>=|==|!=|[-+*/<>()\[\],:.])|(?P<bad>\S))"
)


class ExpressionError(ValueError):
    """What is wrong with an expression, in words that follow the name of a field."""


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal literal; its value is the nearest binary64 number."""

    text: str

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True, slots=True)
class Name:
    """A name, with ``space`` "inputs" or "outputs" where that was written."""

    text: str
    space: str = ""

    def __str__(self) -> str:
        return f"{self.space}.{self.text}" if self.space else self.text


@dataclass(frozen=True, slots=True)
class Axis:
    """Positions ``start`` to before ``stop`` of one axis; ``None`` is the end of the axis. ``single``: an index."""

    start: int
    stop: int | None
    single: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    tensor: Name
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Negative:
    operand: Tree


@dataclass(frozen=True, slots=True)
class Binary:
    """``+ - * /`` of two quantities."""

    sign: str
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Comparison:
    sign: str
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Negation:
    operand: Tree


@dataclass(frozen=True, slots=True)
class Junction:
    """``word`` is "and" or "or"; two or more ``operands`` in the order written."""

    word: str
    operands: tuple[Tree, ...]


Tree = Number | Name | Index | Call | Negative | Binary | Comparison | Negation | Junction


def parse_expression(text: str) -> Tree:
    """The syntax tree of ``text``. ``ExpressionError`` names what is wrong and at which character (from 1)."""
    if len(text) > LONGEST:
        raise ExpressionError(f"is longer than {LONGEST} characters; name parts of it as decisions or quantities")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str, int]] = []
        for match in _TOKEN.finditer(text.rstrip()):
            kind = str(match.lastgroup)
            place = match.start(kind) + 1
            if kind == "bad":
                raise ExpressionError(f"holds {match[kind]!r} at character {place}, which no expression has")
            self.tokens.append((kind, match[kind], place))
        self.tokens.append(("end", "", len(text.rstrip()) + 1))
        self.at = 0
        self.depth = 0

    def whole(self) -> Tree:
        tree = self.condition()
        if self.tokens[self.at][0] != "end":
            raise self.unexpected("an operator or the end")
        return tree

    def unexpected(self, wanted: str) -> ExpressionError:
        kind, text, place = self.tokens[self.at]
        return ExpressionError(
            f"has {'its end' if kind == 'end' else repr(text)} at character {place} where {wanted} belongs"
        )

    def take(self, *texts: str) -> str:
        """The next token if it is one of ``texts``, else the empty string."""
        kind, text, _ = self.tokens[self.at]
        if text in texts and kind in ("sign", "name"):
            self.at += 1
            return text
        return ""

    def need(self, text: str) -> None:
        if not self.take(text):
            raise self.unexpected(repr(text))

    def condition(self) -> Tree:
        self.depth += 1
        if self.depth > DEEPEST:
            raise ExpressionError(f"is nested more than {DEEPEST} deep; name parts of it")
        operands = [self.conjunction()]
        while self.take("or"):
            operands.append(self.conjunction())
        self.depth -= 1
        return operands[0] if len(operands) == 1 else Junction("or", tuple(operands))

    def conjunction(self) -> Tree:
        operands = [self.negation()]
        while self.take("and"):
            operands.append(self.negation())
        return operands[0] if len(operands) == 1 else Junction("and", tuple(operands))

    def negation(self) -> Tree:
        count = 0
        while self.take("not"):
            count += 1
        if count > DEEPEST:
            raise ExpressionError(f"has more than {DEEPEST} times 'not' in a row")
        tree = self.comparison()
        for _ in range(count):
            tree = Negation(tree)
        return tree

    def comparison(self) -> Tree:
        left = self.sum()
        sign = self.take(*COMPARISONS)
        if not sign:
            return left
        tree = Comparison(sign, left, self.sum())
        if self.tokens[self.at][1] in COMPARISONS:
            place = self.tokens[self.at][2]
            raise ExpressionError(f"compares three values at character {place}; write the two comparisons with 'and'")
        return tree

    def sum(self) -> Tree:
        tree = self.product()
        while sign := self.take("+", "-"):
            tree = Binary(sign, tree, self.product())
        return tree

    def product(self) -> Tree:
        tree = self.sign()
        while sign := self.take("*", "/"):
            tree = Binary(sign, tree, self.sign())
        return tree

    def sign(self) -> Tree:
        count = 0
        while self.take("-"):
            count += 1
        if count > DEEPEST:
            raise ExpressionError(f"has more than {DEEPEST} signs in a row")
        tree = self.primary()
        for _ in range(count):
            tree = Negative(tree)
        return tree

    def primary(self) -> Tree:
        kind, text, place = self.tokens[self.at]
        if self.take("("):
            inner = self.condition()
            self.need(")")
            return inner
        if kind == "number":
            self.at += 1
            if float(text) == float("inf"):
                raise ExpressionError(f"has the number {text} at character {place}, which is past the largest binary64")
            return Number(text)
        if kind == "name" and text in FUNCTIONS and self.tokens[self.at + 1][1] == "(":
            self.at += 2
            arguments = [self.condition()]
            while self.take(","):
                arguments.append(self.condition())
            self.need(")")
            return Call(text, tuple(arguments))
        return self.named()

    def named(self) -> Tree:
        space = ""
        kind, text, _ = self.tokens[self.at]
        if text in ("inputs", "outputs") and self.tokens[self.at + 1][1] == ".":
            space, self.at = text, self.at + 2
            kind, text, _ = self.tokens[self.at]
        if kind not in ("name", "quoted") or (kind == "name" and not space and text in RESERVED):
            raise self.unexpected("a number, a name or '('")
        self.at += 1
        name = Name(text.strip("`"), space)
        if not self.take("["):
            return name
        axes = [self.axis()]
        while self.take(","):
            axes.append(self.axis())
        self.need("]")
        return Index(name, tuple(axes))

    def axis(self) -> Axis:
        start = self.whole_number()
        if not self.take(":"):
            if start is None:
                raise self.unexpected("a position or ':'")
            return Axis(start, start + 1, single=True)
        stop = self.whole_number()
        if stop is not None and stop <= (start or 0):
            raise ExpressionError(f"has the empty range {start or 0}:{stop}; a range is START:STOP with STOP excluded")
        return Axis(start or 0, stop)

    def whole_number(self) -> int | None:
        kind, text, place = self.tokens[self.at]
        if kind != "number":
            return None
        if not text.isdigit() or len(text) > 9:
            raise ExpressionError(f"has {text!r} at character {place} where a position (a whole number) belongs")
        self.at += 1
        return int(text)
