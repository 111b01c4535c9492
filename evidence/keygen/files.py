"""The files a key is over: arguments and the contents of folders, with names that do not depend on where they lie."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compiler_kernels.errors import UsageError

IGNORED: Final = frozenset([".git", ".hg", ".svn", ".bzr", "_darcs", "CVS", "__pycache__"])
"""Left out of folders: what version control keeps beside the files, and bytecode, which Python makes from them."""


@dataclass(frozen=True)
class Found:
    """One file. ``shown`` is for messages. ``mode``: ``-``, ``x`` (the owner may execute it) or ``l`` (a link)."""

    name: str
    path: Path
    shown: str
    mode: str
    raw: bool = False


def find_files(arguments: Sequence[Path], raw: Sequence[Path] = ()) -> list[Found]:
    """All files below ``arguments``, sorted by the UTF-8 bytes of their names.

    A name is the path from the deepest folder that holds all arguments, with ``/`` and in Unicode's form NFC. An
    argument that is a link is followed; a link in a folder is not. ``raw``: files and folders taken by their bytes.
    Raises ``UsageError`` for what is missing, unreadable, no file, folder or link, or has no name in UTF-8.
    """
    if not arguments:
        raise UsageError("no file is given; name files or folders with -f")
    by_bytes = [_absolute(path) for path in raw]
    found: dict[str, Found] = {}
    for argument in arguments:
        for path, shown, mode in _below(argument):
            known = found.get(os.fspath(path))
            if known is None or known.mode == "l":
                is_raw = any(path == r or path.is_relative_to(r) for r in by_bytes)
                found[os.fspath(path)] = Found("", path, shown, mode, is_raw)
    for path, given in zip(by_bytes, raw, strict=True):
        if not any(item.path == path or item.path.is_relative_to(path) for item in found.values()):
            raise UsageError(f"--raw {given}: is not among the files given with -f; name it there too")
    if not found:
        raise UsageError(f"{arguments[0]}: holds no file; give a folder with files")
    root = os.path.commonpath([os.fspath(a if a.is_dir() else a.parent) for a in map(_absolute, arguments)])
    named: dict[str, Found] = {}
    for item in found.values():
        name = _name(item, root)
        if name in named:
            raise UsageError(
                f"{item.shown}: has the same name as {named[name].shown} in Unicode's form NFC; rename one"
            )
        named[name] = Found(name, item.path, item.shown, item.mode, item.raw)
    return [named[name] for name in sorted(named, key=str.encode)]


def _absolute(path: Path) -> Path:
    """Absolute without following links, so that a link keeps its own name."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow them


def _name(item: Found, root: str) -> str:
    name = unicodedata.normalize("NFC", Path(os.path.relpath(item.path, root)).as_posix())
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{item.shown!r}: the name is not UTF-8 text; rename the file") from None
    return name


def _below(argument: Path) -> Iterator[tuple[Path, str, str]]:
    """``(absolute path, path as the user would write it, mode)`` of ``argument`` or of all files in it."""
    try:
        info = argument.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{argument}: cannot be read ({reason}); give a file or a folder") from None
    if not stat.S_ISDIR(info.st_mode):
        yield _absolute(argument), str(argument), _mode(info.st_mode, argument)
        return
    folders = [argument]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
            for entry in entries:
                path = folder / entry.name
                if entry.name in IGNORED:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    mode = _mode(entry.stat(follow_symlinks=False).st_mode, path)
                    yield _absolute(path), str(path), mode
        except OSError as error:
            raise UsageError(f"{folder}: cannot be read ({error.strerror}); make it readable") from None


def _mode(mode: int, path: Path) -> str:
    if stat.S_ISLNK(mode):
        return "l"
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: is neither file, folder nor link; leave it out")
    return "x" if mode & stat.S_IXUSR else "-"
