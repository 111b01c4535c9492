"""Expressions as text and as C: ``parse_dim(str(e))`` is ``e``, and ``c_text`` is 64-bit integer C."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NoReturn

from compiler_kernels.errors import IRError
from compiler_kernels.ir.dims import Call, Expr, Size, call, floordiv, symbol

_TOKEN: Final = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_.]*)|(//|[-+*%(),]))")
LONGEST: Final = 4000
"""Most characters of one expression."""

C_HELPERS: Final = """\
static inline long long cuvil_dim_div(long long a, long long b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline long long cuvil_dim_min(long long a, long long b) { return a < b ? a : b; }
static inline long long cuvil_dim_max(long long a, long long b) { return a > b ? a : b; }
"""
"""Definitions that :func:`c_text` relies on (C99)."""


class _Parser:
    """Precedence: ``*``, ``//`` and ``%`` bind tighter than ``+`` and ``-``; all of them from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, pos = text, [], 0
        while pos < len(text.rstrip()):
            match = _TOKEN.match(text, pos)
            if match is None:
                self.fail(f"has an unexpected character {text[pos]!r}")
            self.tokens.append(match.group().strip())
            pos = match.end()
        self.pos = 0

    tokens: list[str]

    def fail(self, why: str) -> NoReturn:
        raise IRError(f"the size {self.text!r} {why}")

    @property
    def here(self) -> str:
        return self.tokens[self.pos] if self.pos < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        found = self.here
        if not found or (wanted and found != wanted):
            self.fail(f"has {found!r} where {wanted or 'a number, a name or a parenthesis'} is needed")
        self.pos += 1
        return found

    def sum(self) -> Size:
        total = self.term()
        while self.here in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            total = total + sign * self.term()
        return total

    def term(self) -> Size:
        found = self.factor()
        while self.here in ("*", "//", "%"):
            op, right = self.take(), self.factor()
            if op != "*" and isinstance(right, int) and right == 0:
                self.fail("divides by 0")
            found = found * right if op == "*" else floordiv(found, right) if op == "//" else found % right
        return found

    def factor(self) -> Size:
        token = self.take()
        if token == "-":
            return -self.factor()
        if token == "(":
            found = self.sum()
            self.take(")")
            return found
        if token.isdigit():
            return int(token)
        if not re.match(r"[A-Za-z_]", token):
            self.fail(f"has {token!r} where a number or a name is needed")
        if token in ("min", "max", "ceildiv") and self.here == "(":
            args = self.arguments()
            if token != "ceildiv":
                return call(token, args)
            if len(args) != 2 or (isinstance(args[1], int) and args[1] == 0):
                self.fail("has a ceildiv of other than two numbers, the second not 0")
            return -floordiv(-args[0], args[1])
        return symbol(token)

    def arguments(self) -> list[Size]:
        self.take("(")
        found = [self.sum()]
        while self.here == ",":
            self.take()
            found.append(self.sum())
        self.take(")")
        return found


@lru_cache(maxsize=4096)
def parse_dim(text: str) -> Size:
    """The size that ``text`` says: numbers, symbols, ``+ - * // %``, ``min``, ``max``, ``ceildiv``, parentheses.

    ``IRError`` for anything else.
    """
    if len(text) > LONGEST:
        raise IRError(f"a size of more than {LONGEST} characters is not read")
    parser = _Parser(text)
    try:
        found = parser.sum()
    except RecursionError:
        raise IRError("a size is nested too deeply") from None
    if parser.here:
        parser.fail(f"goes on with {parser.here!r}")
    return found


def c_text(size: Size, names: Mapping[str, str]) -> str:
    """A C expression of type ``long long`` with the symbols written as ``names`` says; it needs ``C_HELPERS``.

    ``KeyError`` names a symbol that ``names`` lacks. Exact as long as no intermediate value leaves 64 bits, which the
    verifier demands of every size in a module (``symbols.magnitude``).
    """
    if isinstance(size, int):
        return f"{size}LL"
    parts = []
    for monomial, factor in size.terms:
        atoms = [names[a] if isinstance(a, str) else _c_call(a, names) for a in monomial]
        parts.append(" * ".join([f"{factor}LL"] * (factor != 1 or not atoms) + atoms))
    return f"({' + '.join(parts)})" if len(parts) > 1 or " * " in parts[0] else parts[0]


def _c_call(atom: Call, names: Mapping[str, str]) -> str:
    args = [c_text(a, names) for a in atom.args]
    name = {"//": "div"}.get(atom.op, atom.op)
    text = args[0]
    for arg in args[1:]:
        text = f"cuvil_dim_{name}({text}, {arg})"
    return text


__all__ = ["C_HELPERS", "Expr", "Size", "c_text", "parse_dim"]
