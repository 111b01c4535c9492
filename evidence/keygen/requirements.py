"""Canonical form of pip's requirements files: options in their order, then the requirements as a sorted set.

Source: pip's "Requirements File Format"; the packaging specifications "Names and normalization" and "Dependency
specifiers" (PEP 508).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from evidence.keygen.text import Unreadable, decode

_COMMENT: Final = re.compile(r"(^|\s+)#.*$")
_OPTION: Final = re.compile(r"\s(?=--[a-z])")
_NAMED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*($|[\[(<>=!~;@])")


def canonical(data: bytes) -> bytes:
    """The canonical form. Raises ``Unreadable`` for a line that begins like a requirement and is none."""
    options: list[str] = []
    found: set[str] = set()
    for number, line in _joined(decode(data)):
        text = _COMMENT.sub("", line).strip()
        if text.startswith("-"):
            options.append(" ".join(text.split()))
        elif text:
            found.add(_requirement(text, number))
    return "".join(f"{line}\n" for line in [*options, *sorted(found, key=str.encode)]).encode()


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, as pip joins them: a comment line ends a requirement that goes on."""
    start, parts = 0, list[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        start = start if parts else number
        comment = re.match(r"\s*#", raw) is not None
        if raw.endswith("\\") and not comment:
            parts.append(raw.rstrip("\\"))
            continue
        yield start, "".join([*parts, f" {raw}" if comment else raw])
        parts = []
    if parts:
        yield start, "".join(parts)


def _requirement(text: str, line: int) -> str:
    head, *extra = _OPTION.split(text)
    hashes = sorted({" ".join(o.split()) for o in extra if o.startswith("--hash")})
    others = [" ".join(o.split()) for o in extra if not o.startswith("--hash")]
    return " ".join([_specifier(head.strip(), line), *others, *hashes])


def _specifier(text: str, line: int) -> str:
    if not _NAMED.match(text) or text.endswith((".whl", ".tar.gz", ".zip")):
        return text  # a path or an address
    try:
        given = Requirement(text)
    except InvalidRequirement as error:
        raise Unreadable(f"is not a requirement pip can read ({str(error).splitlines()[0]})", line) from None
    extras = f"[{','.join(sorted(canonicalize_name(e) for e in given.extras))}]" if given.extras else ""
    where = f" @ {given.url}" if given.url else ",".join(sorted(str(s) for s in given.specifier))
    marker = f" ; {given.marker}" if given.marker else ""
    return f"{canonicalize_name(given.name)}{extras}{where}{marker}"
