"""The local keys of pseudonyms, one an epoch: ``$CUVIL_HOME/trace/keys/0001.json`` and so on, mode 0600, folder 0700.

The highest epoch makes new pseudonyms, the others are kept to recompute old ones. A destroyed key leaves an empty
``0001.destroyed``, so that its number is never used again: without the key nobody can tell, not even by trying
identifiers, whose image a pseudonym of that epoch was.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evidence.audit_store import REMEDY, locked, make_folder, overwrite, sync_folder
from evidence.sessions.pseudonym import KEY_BYTES
from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_object,
    expect_text,
    strict_base64,
    strict_json,
)
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small, write_new

FOLDER = "trace"
FORMAT = "cuvil-trace-key/1"
DESTROYED = ".destroyed"
_NAME = re.compile(r"(\d{4})\.(json|destroyed)")
_LAST = 9999


@dataclass(frozen=True)
class Epoch:
    """One epoch: its number from 1, when its key was made (RFC 3339), and the key; ``None`` once it is destroyed."""

    number: int
    created: str
    key: bytes | None


class PseudonymKeys:
    """The keys below ``home``; none need be there."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER / "keys"

    def epochs(self) -> list[Epoch]:
        """All epochs in order; ``UsageError`` naming a key file that is damaged or open to others."""
        try:
            paths = sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be read ({error.strerror}); check its owner") from None
        return [self._read(path) for path in paths]

    def current(self) -> Epoch | None:
        """The epoch that makes new pseudonyms: the highest, unless its key is destroyed."""
        epochs = self.epochs()
        return epochs[-1] if epochs and epochs[-1].key is not None else None

    def create(self) -> tuple[Epoch, bool]:
        """The current epoch, and whether it was made now."""
        make_folder(self.folder.parent)  # by itself, for its mode
        with locked(self.folder):
            current = self.current()
            return (current, False) if current is not None else (self._new(), True)

    def rotate(self) -> Epoch:
        """Begin a new epoch; ``UsageError`` when there was none to follow."""
        with locked(self.folder):
            if not self.epochs():
                raise UsageError(f"{self.folder}: holds no key to follow; run `cuvil trace keys init`")
            return self._new()

    def destroy(self, number: int) -> None:
        """Overwrite and remove the key of an epoch, also a damaged one; ``UsageError`` when there is none."""
        with locked(self.folder):
            path = self._path(number)
            grave = path.with_suffix(DESTROYED)
            if not path.exists():
                state = "has already destroyed the key of epoch" if grave.exists() else "has no epoch"
                raise UsageError(f"{self.folder}: {state} {number}; `cuvil trace keys list` shows what there is")
            overwrite(path)
            try:
                path.rename(grave)
                os.truncate(grave, 0)
                sync_folder(self.folder)
            except OSError as error:
                raise UsageError(f"{path}: cannot be removed ({error.strerror}); {REMEDY}") from None

    def _new(self) -> Epoch:
        last = max((epoch.number for epoch in self.epochs()), default=0)
        if last == _LAST:
            raise UsageError(f"{self.folder}: has used all {_LAST} epochs; set CUVIL_HOME elsewhere")
        epoch = Epoch(last + 1, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), secrets.token_bytes(KEY_BYTES))
        assert epoch.key is not None
        document: dict[str, Json] = {
            "format": FORMAT,
            "epoch": epoch.number,
            "created": epoch.created,
            "key": base64.b64encode(epoch.key).decode(),
        }
        path = self._path(epoch.number)
        draft = path.with_suffix(".draft")
        try:
            draft.unlink(missing_ok=True)  # left by a crash
            write_new(draft, canonical_bytes(document) + b"\n", 0o600)
            draft.rename(path)
            sync_folder(self.folder)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise UsageError(f"{path}: cannot be written ({error.strerror}); {REMEDY}") from None
        return epoch

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:04}.json"

    def _read(self, path: Path) -> Epoch:
        number = int(path.stem)
        if path.suffix == DESTROYED:
            return Epoch(number, "", None)
        data = read_small(path, "key of pseudonyms", "restore it", 1 << 16)
        if path.stat().st_mode & 0o077:
            raise UsageError(f"{path}: a key of pseudonyms is open to others; run `chmod 600 {path}`")
        try:
            item = expect_object(strict_json(data), "it", ("format", "epoch", "created", "key"))
            key = strict_base64(expect_text(item["key"], "key"), "key")
            if item["format"] != FORMAT or item["epoch"] != number or len(key) != KEY_BYTES:
                raise MalformedError(f"is no {FORMAT} of this file's name")
            return Epoch(number, expect_text(item["created"], "created"), key)
        except MalformedError as error:
            raise UsageError(
                f"{path}: the key of pseudonyms {error}; restore it, or run `cuvil trace keys destroy {number}`"
            ) from None
