"""Canonical forms of go.mod, go.work and go.sum: one line per directive or checksum, sorted, each once.

Source: Go Modules Reference, "go.mod files", "Workspaces" and "go.sum files".
"""

from __future__ import annotations

import re
from typing import Final

from evidence.keygen.text import Unreadable, decode, quoted

_TOKEN: Final = re.compile(
    r'[ \t\r]+|(?P<comment>//.*)|(?P<raw>`[^`]*`)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<mark>=>|[()\[\],])'
    r"|(?P<word>(?:(?!//)[^\s()\[\],\"`])+)"
)
_DIRECTIVES: Final = frozenset("module go toolchain godebug require exclude replace retract tool ignore use".split())
_INDIRECT: Final = re.compile(r"//\s*indirect\b.*")


def canonical_module(data: bytes) -> bytes:
    """Canonical form of go.mod or go.work: blocks are spelt out, comments go except ``// indirect``.

    Raises ``Unreadable`` for an unknown directive, a block that is not closed, a string that is not closed.
    """
    found: set[str] = set()
    block, opened = "", 0
    for number, line in enumerate(decode(data).split("\n"), 1):
        words, comment = _words(line, number)
        if not words:
            continue
        if block and words == [")"]:
            block = ""
            continue
        directive = block or words.pop(0)
        if directive not in _DIRECTIVES:
            raise Unreadable(f"has the unknown directive {directive[:40]!r}", number)
        if not block and words == ["("]:
            block, opened = directive, number
            continue
        if not words or "(" in words or ")" in words:
            raise Unreadable(f"has a malformed {directive} directive", number)
        if directive == "require" and _INDIRECT.fullmatch(comment):
            words.append("// indirect")
        found.add(" ".join([directive, *(w if w in ("=>", "[", "]", ",") else quoted(w) for w in words)]))
    if block:
        raise Unreadable(f"does not close the block {block}", opened)
    if not found:
        raise Unreadable("holds no directive", 1)
    return ("\n".join(sorted(found, key=str.encode)) + "\n").encode()


def _words(line: str, number: int) -> tuple[list[str], str]:
    """Tokens of one line, strings without their quotes, and the comment at its end."""
    words: list[str] = []
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None:
            raise Unreadable("has a string that is not closed", number)
        position = match.end()
        if match.lastgroup == "comment":
            return words, match[0].rstrip()
        if match.lastgroup == "text":
            words.append(re.sub(r"\\(.)", r"\1", match[0][1:-1]))
        elif match.lastgroup is not None:
            words.append(match[0].strip("`"))
    return words, ""


def canonical_sums(data: bytes) -> bytes:
    """Canonical form of go.sum. Raises ``Unreadable`` for a line that is not module, version and checksum."""
    found = set()
    for number, line in enumerate(decode(data).split("\n"), 1):
        fields = line.split()
        if fields and len(fields) != 3:
            raise Unreadable("has a line that is not module, version and checksum", number)
        if fields:
            found.add(" ".join(fields))
    return "".join(f"{line}\n" for line in sorted(found, key=str.encode)).encode()
