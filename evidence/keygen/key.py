"""The cache key of several files: docs/keygen.md is its specification."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from evidence.keygen.files import Found, find_files
from evidence.keygen.kinds import RAW, canonical_form, kind_of
from evidence.keygen.text import Unreadable

KEY_FORMAT: Final = "cuvil-cachekey/1"
FORM_FORMAT: Final = "cuvil-canonical/1"
LINK: Final = "link"
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Entry:
    """One file of a key. ``canonical``: its canonical form, ``None`` where that is the file itself."""

    name: str
    mode: str
    kind: str
    form_sha256: str
    sha256: str
    size: int
    canonical: bytes | None

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "mode": self.mode,
            "kind": self.kind,
            "canonical_sha256": self.form_sha256,
            "sha256": self.sha256,
            "size": self.size,
        }


@dataclass(frozen=True)
class CacheKey:
    """``key`` is ``sha256:`` and 64 hex digits."""

    key: str
    entries: tuple[Entry, ...]

    def to_json(self) -> dict[str, Json]:
        return {"key": self.key, "format": KEY_FORMAT, "files": [entry.to_json() for entry in self.entries]}


def cache_key(
    paths: Sequence[Path], raw: Sequence[Path] = (), progress: Callable[[int, int], None] = lambda done, total: None
) -> CacheKey:
    """The key over ``paths``, files and folders in any order. ``progress(done, total)`` is called before each file.

    Raises ``UsageError`` for a file that cannot be read, or is not what its name says.
    """
    files = find_files(paths, raw)
    entries = []
    for index, item in enumerate(files):
        progress(index, len(files))
        entries.append(_entry(item))
    progress(len(files), len(files))
    return CacheKey(key_over(entries), tuple(entries))


def key_over(entries: Sequence[Entry]) -> str:
    """The key of ``entries``, which are in the order of their names."""
    digest = hashlib.sha256(framed(KEY_FORMAT.encode()))
    for entry in entries:
        digest.update(framed(entry.name.encode()) + framed(entry.mode.encode()) + framed(entry.kind.encode()))
        digest.update(framed(bytes.fromhex(entry.form_sha256)))
    return f"sha256:{digest.hexdigest()}"


def form_digest(kind: str, form: bytes) -> str:
    """SHA-256 of a canonical form under its kind, lower-case hex."""
    return hashlib.sha256(_form_prefix(kind) + form).hexdigest()


def framed(data: bytes) -> bytes:
    """``data`` with its length before it, 8 bytes big-endian: two lists of such never run into each other."""
    return len(data).to_bytes(8, "big") + data


def _form_prefix(kind: str) -> bytes:
    return framed(FORM_FORMAT.encode()) + framed(kind.encode())


def _entry(item: Found) -> Entry:
    try:
        if item.mode == "l":
            target = os.fsencode(item.path.readlink())
            return _made(item, LINK, target, target)
        kind = RAW if item.raw else kind_of(item.path.name)
        if kind == RAW:
            return _streamed(item)
        data = item.path.read_bytes()
    except OSError as error:
        raise UsageError(f"{item.shown}: cannot be read ({error.strerror}); make it readable") from None
    try:
        return _made(item, kind, data, canonical_form(kind, data, item.path.parent))
    except Unreadable as error:
        line = f":{error.line}" if error.line else ""
        raise UsageError(
            f"{item.shown}{line}: {error.why}; correct it, or take it by its bytes with --raw {item.shown}"
        ) from None


def _made(item: Found, kind: str, data: bytes, form: bytes) -> Entry:
    exact = hashlib.sha256(data).hexdigest()
    return Entry(item.name, item.mode, kind, form_digest(kind, form), exact, len(data), form)


def _streamed(item: Found) -> Entry:
    """A file by its bytes, without holding it in memory."""
    form, exact, size = hashlib.sha256(_form_prefix(RAW)), hashlib.sha256(), 0
    with item.path.open("rb") as stream:
        while block := stream.read(_CHUNK):
            form.update(block)
            exact.update(block)
            size += len(block)
    return Entry(item.name, item.mode, RAW, form.hexdigest(), exact.hexdigest(), size, None)
