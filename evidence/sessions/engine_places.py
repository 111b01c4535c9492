"""Where the engines lie that made records on this machine: ``$CUVIL_HOME/sessions/engines``, for replay only."""

from __future__ import annotations

from pathlib import Path

from evidence.audit_store import make_folder
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small, write_new


def remember(home: Path, config_digest: str, engine: Path) -> None:
    """Note that ``engine`` states this configuration; a note that cannot be written is left out."""
    place = _place(home, config_digest)
    text = str(engine.resolve()).encode("utf-8", "surrogateescape")
    draft = place.with_suffix(".tmp")
    try:
        if place.is_file() and place.read_bytes() == text:
            return
        make_folder(place.parent)
        draft.unlink(missing_ok=True)
        write_new(draft, text, 0o600)
        draft.replace(place)
    except (OSError, UsageError):
        draft.unlink(missing_ok=True)


def find(home: Path, config_digest: str) -> Path:
    """The engine noted last; ``UsageError`` when there is none any more."""
    place = _place(home, config_digest)
    if place.is_file():
        text = read_small(place, "note of an engine", "give --engine", 1 << 16)
        path = Path(text.decode("utf-8", "surrogateescape"))
        if path.is_file():
            return path
    raise UsageError("this machine does not know where the engine of that record lies; give it with --engine")


def _place(home: Path, config_digest: str) -> Path:
    return home / "sessions" / "engines" / config_digest.removeprefix("sha3-512:")
