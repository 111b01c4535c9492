"""Trace propagation for the Python files of a pipeline: what would change, as a diff."""

from __future__ import annotations

import difflib
import io
import os
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evidence.tracing.edit import Text, Unplaced, edited, parsed
from evidence.tracing.sites import READERS, Found, Said, find_sites
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small

_HINTS = (b"pydicom", *(name.rpartition(".")[2].encode() for name in READERS))
_NOT_OURS = frozenset({"site-packages", "node_modules", "__pycache__", "venv", "env"})
_LARGEST = 16 << 20
NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(frozen=True)
class Plan:
    """One file: its bytes now and as they would be, calls edited now and before, and what is said about it."""

    path: Path
    old: bytes
    new: bytes
    encoding: str
    reads: int
    starts: int
    done: int
    refused: tuple[Said, ...]
    notes: tuple[Said, ...]

    @property
    def changed(self) -> bool:
        return self.old != self.new

    def diff(self) -> str:
        """A unified diff with ``a/`` and ``b/`` before the path, as ``patch -p1`` and ``git apply`` take it."""
        name = self.path.as_posix().lstrip("/")
        old, new = (Text.of(data.decode(self.encoding)).lines for data in (self.old, self.new))
        made = []
        for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"):
            made.append(line if line.endswith(("\n", "\r")) else f"{line}\n{NO_NEWLINE}")
        return "".join(made)


def plan(place: Path, strict: bool = False) -> list[Plan]:
    """The plans of ``place``: a file, or a folder's Python files that mention pydicom, in the order of their names.

    Raises ``UsageError`` for what cannot be read or is no Python of this interpreter.
    """
    if place.is_dir():
        plans = [plan_file(path, strict) for path in _python_files(place) if _may_matter(path)]
        if not plans:
            raise UsageError(f"{place}: no Python file in it mentions pydicom; give the folder or file of the pipeline")
        return plans
    if place.suffix not in (".py", ".pyw"):
        raise UsageError(f"{place}: is no Python file (.py) or folder; a notebook has to be exported to one first")
    return [plan_file(place, strict)]


def plan_file(path: Path, strict: bool = False) -> Plan:
    """The plan of one file; the same errors."""
    data = read_small(path, "Python file", "give a file or folder of the pipeline", _LARGEST)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
        tree = parsed(text)
    except SyntaxError as error:
        place = f", line {error.lineno}" if error.lineno else ""
        raise UsageError(f"{path}{place}: is no Python that this interpreter reads ({error.msg}); correct it") from None
    except (UnicodeDecodeError, LookupError, ValueError) as error:
        raise UsageError(f"{path}: cannot be decoded ({error}); state its encoding in its first line") from None
    except (RecursionError, MemoryError):
        raise UsageError(f"{path}: is nested too deeply to be read; split its expressions") from None
    try:
        found = find_sites(tree, Text.of(text).lines)
        new = edited(text, tree, found, strict)
    except Unplaced as error:
        found, new = Found(refused=[error.said]), text
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply to be read; split its expressions") from None
    made = new.encode(encoding) if new != text else data
    return Plan(
        path,
        data,
        made,
        encoding,
        len(found.reads),
        len(found.starts),
        found.done,
        *map(_ordered, (found.refused, found.notes)),
    )


def _ordered(said: list[Said]) -> tuple[Said, ...]:
    return tuple(sorted(set(said), key=lambda item: (item.line, item.sentence)))


def _python_files(folder: Path) -> Iterator[Path]:
    """Files of the folder's own source: not hidden, not a virtual environment's, not behind a link."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NOT_OURS)
        if (Path(root) / "pyvenv.cfg").exists():
            folders[:] = []
            continue
        yield from (Path(root) / name for name in sorted(files) if name.endswith(".py"))


def _may_matter(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    data = read_small(path, "Python file", "make it readable", _LARGEST)
    return any(hint in data for hint in _HINTS)
