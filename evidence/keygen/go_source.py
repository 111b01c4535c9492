"""Canonical form of Go source: its tokens, and the comments that the toolchain reads.

Source: The Go Programming Language Specification, "Lexical elements"; build constraints and directives as in the
documentation of the commands go, compile and cgo.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from evidence.keygen.text import Unreadable, decode, line_of

_OPERATORS: Final = (
    "<<= >>= &^= ... && || <- ++ -- == != <= >= := += -= *= /= %= &= |= ^= << >> &^ + - * / % & | ^ < > = ! ~ ( ) [ ] "
    "{ } , ; . :"
).split()
_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t\r\n]+)"
    r"|(?P<line>//[^\n]*)"
    r"|(?P<block>/\*.*?\*/)"
    r"|(?P<raw>`[^`]*`)"
    r'|(?P<text>"(?:[^"\\\n]|\\[^\n])*")'
    r"|(?P<rune>'(?:[^'\\\n]|\\[^\n])[^'\\\n]*')"
    r"|(?P<number>(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]+)?|0[bBoO][0-9_]+"
    r"|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)i?)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<mark>(?!/\*)(?:" + "|".join(re.escape(o) for o in _OPERATORS) + "))",
    re.DOTALL,
)
_DIRECTIVE: Final = re.compile(r"//(?:line |extern |export |[a-z0-9]+:[a-z0-9])|/\*line ")
_PLUS_BUILD: Final = re.compile(r"//[ \t]*\+build\b")
_KEYWORDS: Final = frozenset(
    "break case chan const continue default defer else fallthrough for func go goto if import interface map package "
    "range return select struct switch type var".split()
)
_ENDS_LINE: Final = frozenset(["break", "continue", "fallthrough", "return", "++", "--", ")", "]", "}"])
_CLOSES: Final = {")": "(", "]": "[", "}": "{"}


@dataclass
class _Token:
    text: str
    start: int
    gap: str = ""
    """What lies before the token in the source: blanks and comments."""
    directive: bool = False


def canonical(data: bytes) -> bytes:
    """The canonical form. Raises ``Unreadable`` for what is no token of Go, and for brackets that do not match."""
    source = decode(data)
    tokens = _scan(source)
    code = [t for t in tokens if not t.directive]
    if not code or code[0].text != "package":
        raise Unreadable("does not begin with a package clause", line_of(source, code[0].start) if code else 1)
    _check_brackets(code, source)
    kept = _without_optional_marks(tokens)
    preambles = _cgo_preambles(kept)
    lines, current = [], ""
    for token in kept:
        if id(token) in preambles:
            lines += [current, f"/*cgo {len(token.gap.encode())}*/", token.gap]
            current = ""
        if token.directive:
            lines += [current, token.text]
            current = ""
            continue
        current += (" " if current else "") + token.text
        if token.text in (";", "{", "}"):
            lines.append(current)
            current = ""
    return ("\n".join(line for line in [*lines, current] if line) + "\n").encode()


def _scan(source: str) -> list[_Token]:
    """Tokens with the semicolons that the specification inserts, and directives in their places."""
    tokens: list[_Token] = []
    position, after, ends = 0, 0, False
    package = _package_clause(source)

    def end_line() -> None:
        nonlocal ends
        if ends:
            tokens.append(_Token(";", position))
        ends = False

    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise Unreadable(_fault(source, position), line_of(source, position))
        kind, text = str(match.lastgroup), match[0]
        if kind in ("blank", "line", "block"):
            if kind != "blank":
                kept = _directive(source, match, package)
                if kept:
                    tokens.append(_Token(kept, position, directive=True))
            if "\n" in text or kind == "line":
                end_line()
        else:
            if kind == "raw":
                text = text.replace("\r", "")
            tokens.append(_Token(text, position, source[after:position]))
            ends = text in _ENDS_LINE or (kind != "mark" and text not in _KEYWORDS)
            after = match.end()
        position = match.end()
    end_line()
    return tokens


def _package_clause(source: str) -> int:
    """Where the package clause begins: build constraints stand before it."""
    position = 0
    while match := _TOKEN.match(source, position):
        if match.lastgroup not in ("blank", "line", "block"):
            return position
        position = match.end()
    return position


def _directive(source: str, match: re.Match[str], package: int) -> str:
    """A comment that the toolchain reads, or the empty string."""
    text = match[0].rstrip()
    if _DIRECTIVE.match(text):
        return text
    if match.start() < package and _PLUS_BUILD.match(text):
        # Such a line is a constraint only with a blank line between it and the package clause.
        counts = re.search(r"\n[ \t\r]*\n", source[match.end() : package]) is not None
        return "// " + " ".join(text[2:].split()) + ("" if counts else " (part of the package comment)")
    return ""


def _fault(source: str, position: int) -> str:
    names = {"`": "raw string", '"': "string", "'": "rune"}
    if source.startswith("/*", position):
        return "is not valid Go (a comment is not closed)"
    if source[position] in names:
        return f"is not valid Go (a {names[source[position]]} is not closed on its line)"
    return f"is not valid Go ({source[position]!r} begins no token)"


def _check_brackets(tokens: list[_Token], source: str) -> None:
    opened: list[_Token] = []
    for token in tokens:
        if token.text in ("(", "[", "{"):
            opened.append(token)
        elif token.text in _CLOSES and (not opened or opened.pop().text != _CLOSES[token.text]):
            raise Unreadable(f"is not valid Go ({token.text} closes nothing)", line_of(source, token.start))
    if opened:
        raise Unreadable(f"is not valid Go ({opened[-1].text} is not closed)", line_of(source, opened[-1].start))


def _without_optional_marks(tokens: list[_Token]) -> list[_Token]:
    """Without a semicolon or comma just before ``)`` or ``}``, which only says where a line ended.

    A comma before ``]`` stays: it tells a type parameter from an array length.
    """
    kept: list[_Token] = []
    for token in tokens:
        if token.text in (")", "}") and kept and kept[-1].text in (";", ","):
            kept.pop()
        kept.append(token)
    return kept


def _cgo_preambles(tokens: list[_Token]) -> set[int]:
    """Tokens of ``import "C"`` before which a comment stands: it is C source, and blank lines tell where it begins."""
    found: set[int] = set()
    declaration: list[_Token] = []
    depth = 0
    for token in tokens:
        if token.directive:
            continue
        if token.text == "import" and not declaration and depth == 0:
            declaration = [token]
        elif declaration:
            declaration.append(token)
            if token.text in ('"C"', "`C`"):
                found |= {id(t) for t in declaration if "//" in t.gap or "/*" in t.gap}
        depth += token.text in ("(", "[", "{")
        depth -= token.text in (")", "]", "}")
        if token.text == ";" and depth == 0:
            declaration = []
    return found
