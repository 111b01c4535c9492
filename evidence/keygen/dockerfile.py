"""Canonical form of a Dockerfile: one line per instruction, without comments, blank lines and continuations.

Source: the Dockerfile reference and BuildKit's parser, as far as they say how lines are joined, which comments are
parser directives, and where here-documents end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from evidence.keygen.text import Unreadable, decode

INSTRUCTIONS: Final = frozenset(
    "ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER VOLUME "
    "WORKDIR".split()
)
_EXEC_FORM: Final = frozenset("ADD CMD COPY ENTRYPOINT RUN SHELL VOLUME".split())
_SHELL_FORM: Final = frozenset("CMD ENTRYPOINT HEALTHCHECK RUN".split())
_HEREDOC_IN: Final = frozenset("ADD COPY RUN".split())
_DIRECTIVE: Final = re.compile(r"#[ \t]*(syntax|escape|check)[ \t]*=[ \t]*(.+?)[ \t]*", re.IGNORECASE)
_HEREDOC: Final = re.compile(r"[0-9]*<<(-?)([^<]+)")
_FLAGS: Final = re.compile(r"(?:--\S+[ \t]+)*")


def canonical(data: bytes) -> bytes:
    """The canonical form. Raises ``Unreadable`` for an unknown instruction, an open here-document, no instruction."""
    lines = decode(data).split("\n")
    directives, start = _directives(lines)
    escape = next((v for k, v in directives if k == "escape"), "\\")
    if escape not in ("\\", "`"):
        raise Unreadable(f"sets escape={escape}, which is neither \\ nor `", 1)
    out = [f"# {key}={value}" for key, value in directives]
    # Where the quoting rules are not those of a POSIX shell, runs of blanks are kept: they may lie inside a quotation.
    posix = escape == "\\"
    known = not any(key == "syntax" for key, _ in directives)
    for first, text, body in _instructions(lines, start, escape):
        keyword, rest = _keyword(text, first, known)
        out.append(f"{keyword} {_arguments(keyword, rest, posix)}".rstrip(" "))
        out += body
        posix = posix and keyword != "SHELL"
    if len(out) == len(directives):
        raise Unreadable("holds no instruction", 1)
    return ("\n".join(out) + "\n").encode()


def _directives(lines: list[str]) -> tuple[list[tuple[str, str]], int]:
    """Parser directives: only in the first lines, before any other comment, blank line or instruction."""
    found: list[tuple[str, str]] = []
    for index, line in enumerate(lines):
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            return found, index
        found.append((match[1].lower(), match[2]))
    return found, len(lines)


def _instructions(lines: list[str], start: int, escape: str) -> Iterator[tuple[int, str, list[str]]]:
    """``(first line, joined text, here-documents as canonical lines)`` of each instruction."""
    joins = re.compile(rf"((?:.*[^{re.escape(escape)}])?){re.escape(escape)}[ \t]*", re.DOTALL)
    index = start
    while index < len(lines):
        text = lines[index].rstrip("\r").lstrip(" \t")
        index += 1
        if not text or text.startswith("#"):
            continue
        first = index
        while match := joins.fullmatch(text):
            text = match[1]
            while index < len(lines) and _is_skipped(lines[index]):
                index += 1
            if index == len(lines):
                break
            text += lines[index].rstrip("\r")
            index += 1
        body: list[str] = []
        for name, chomp in _heredocs(text):
            body.append(f"<<{name}")
            while True:
                if index == len(lines):
                    raise Unreadable(f"has no line {name} that ends the here-document", first)
                line = lines[index]
                index += 1
                ends = line.rstrip("\r")
                if (ends.lstrip("\t") if chomp else ends) == name:
                    break
                body.append(f"|{line}")
        yield first, text, body


def _is_skipped(line: str) -> bool:
    text = line.strip()
    return not text or text.startswith("#")


def _keyword(text: str, line: int, known: bool) -> tuple[str, str]:
    keyword, *rest = text.split(None, 1)
    if not re.fullmatch(r"[A-Za-z]+", keyword) or (known and keyword.upper() not in INSTRUCTIONS):
        raise Unreadable(f"has {keyword[:40]!r} where an instruction belongs", line)
    return keyword.upper(), rest[0].strip() if rest else ""


def _arguments(keyword: str, rest: str, posix: bool) -> str:
    if keyword == "ONBUILD" and rest:
        inner, *more = rest.split(None, 1)
        return f"{inner.upper()} {_arguments(inner.upper(), more[0] if more else '', posix)}".rstrip(" ")
    # `ENV NAME value` takes all that follows the name, blanks included.
    if keyword == "MAINTAINER" or (keyword in ("ENV", "LABEL") and "=" not in rest.partition(" ")[0]):
        return rest
    if keyword in _EXEC_FORM:
        flags = _FLAGS.match(rest)
        assert flags is not None
        listed = _exec_form(rest[flags.end() :])
        if listed is not None:
            return " ".join([*flags[0].split(), listed])
    if (keyword in _SHELL_FORM and not posix) or "`" in rest or "$'" in rest:
        return rest
    text = one_blank(rest)
    if keyword == "FROM":
        words = text.split(" ")
        if len(words) >= 3 and words[-2].upper() == "AS":
            words[-2] = "AS"
        return " ".join(words)
    return text


def _exec_form(text: str) -> str | None:
    """The JSON form of an instruction, or ``None``: Docker takes what is no JSON list of strings for shell form."""
    if not text.startswith("["):
        return None
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        return None
    return json.dumps(items, separators=(",", ":"))


def one_blank(text: str) -> str:
    """``text`` with one space for each run of spaces and tabs outside quotations."""
    return " ".join(_words(text))


def _words(text: str) -> list[str]:
    """Split at blanks outside POSIX quotations; quotes and escapes stay in the words."""
    words: list[str] = []
    word, quote, index = "", "", 0
    while index < len(text):
        char = text[index]
        step = 2 if char == "\\" and quote != "'" else 1
        if not quote and char in " \t":
            if word:
                words.append(word)
            word = ""
        else:
            word += text[index : index + step]
            if step == 1 and char in "'\"":
                quote = "" if quote == char else quote or char
        index += step
    return [*words, word] if word else words


def _heredocs(text: str) -> list[tuple[str, bool]]:
    """``(terminator, whether tabs before it are ignored)`` of each here-document that ``text`` opens."""
    words = _words(text)
    if words and words[0].upper() == "ONBUILD":
        words = words[1:]
    if not words or words[0].upper() not in _HEREDOC_IN:
        return []
    found = []
    for word in words[1:]:
        match = _HEREDOC.fullmatch(word)
        name = re.sub(r"[\"']", "", match[2]) if match else ""
        if match and name:
            found.append((name, bool(match[1])))
    return found
