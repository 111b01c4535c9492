"""Keys of small sources in tests."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from evidence.keygen.key import cache_key
from evidence.keygen.kinds import canonical_form


def form(kind: str, text: str | bytes) -> str:
    """Canonical form of one source as text."""
    data = text.encode() if isinstance(text, str) else text
    return canonical_form(kind, data, Path("nowhere")).decode()


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def key_of(files: Mapping[str, str | bytes]) -> str:
    """The key of a folder with these files."""
    with tempfile.TemporaryDirectory() as folder:
        return cache_key([write(Path(folder), files)]).key
