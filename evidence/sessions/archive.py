"""The files of a session archive, and what the host appends to them.

``session.jsonl`` holds the records, ``seals.jsonl`` signed heads, ``inputs/TOKEN/DIGEST.sealed`` kept inputs and
``archive.json`` the archive's random id. Every writer, the engine too, holds a POSIX record lock on ``session.jsonl``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evidence.audit_store import LineFile, make_folder, sync_folder
from evidence.sessions.record import LONGEST_LINE, REPAIR, Record, encode_record, read_record
from evidence.verifier.audit import NO_LEAF, read_token
from evidence.verifier.canonical import Json, MalformedError, canonical_bytes, expect_object, strict_json
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.files import read_small, write_new

RECORDS, SEALS, INPUTS, IDENTITY = "session.jsonl", "seals.jsonl", "inputs", "archive.json"
ARCHIVE_FORMAT = "cuvil-session-archive/1"


class Archive:
    """The archive in ``folder``; it appears with its first record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = LineFile(folder / RECORDS)
        self.seals = LineFile(folder / SEALS)

    def require(self) -> None:
        """``UsageError`` when there is no archive."""
        if not self.file.path.is_file():
            raise UsageError(
                f"{self.folder}: no session archive there (no {RECORDS}); give the folder that --session named"
            )

    def lines(self) -> tuple[list[bytes], bytes]:
        """The whole lines, oldest first, unchecked, and what follows the last of them."""
        self.require()
        return self.file.read()

    def end(self) -> int:
        """Where in the file the next record will begin, in bytes."""
        try:
            return self.file.path.stat().st_size - len(self.file.tail()[1])
        except FileNotFoundError:
            return 0

    def records(self, start: int = 0) -> list[Record]:
        """All records, or those from the byte ``start`` on, where one begins (:meth:`end`).

        ``VerificationFailed`` ``session-record`` names the first line that is none.
        """
        found = []
        if start:
            self.require()
            with self.file.path.open("rb") as stream:
                stream.seek(start)
                lines = stream.read().split(b"\n")[:-1]
        else:
            lines = self.lines()[0]
        for number, line in enumerate(lines):
            try:
                found.append(read_record(line))
            except MalformedError as error:
                raise VerificationFailed(
                    "session-record", f"{self.file.path}: record {number} {error}; keep the file as evidence"
                ) from None
        return found

    def append(self, kind: str, fields: Mapping[str, Json]) -> Record:
        """Append a record of the host's; durable when this returns.

        What a crash left behind the last record is replaced by a record of that, as an engine does. ``UsageError`` when
        the file cannot be written or its end is no record (`cuvil session verify` says more).
        """
        with self._locked() as descriptor:
            end, rest = self._end(descriptor)
            before = None
            if end:
                try:
                    before = read_record(end)
                except MalformedError as error:
                    raise UsageError(f"{self.file.path}: its last line {error}; keep the file as evidence") from None
            size = os.fstat(descriptor).st_size - len(rest)
            if rest:
                dropped: dict[str, Json] = {
                    "dropped_bytes": len(rest),
                    "dropped_sha3_512": hashlib.sha3_512(rest).hexdigest(),
                }
                before = self._write(descriptor, size, before, REPAIR, dropped)
                size += len(encode_record(before.index, REPAIR, before.previous, dropped)) + 1
                os.ftruncate(descriptor, size)
            return self._write(descriptor, size, before, kind, fields)

    def _write(
        self, descriptor: int, size: int, before: Record | None, kind: str, fields: Mapping[str, Json]
    ) -> Record:
        index, previous = (0, NO_LEAF) if before is None else (before.index + 1, before.leaf)
        line = encode_record(index, kind, previous, fields)
        done = 0
        try:
            while done < len(line) + 1:
                done += os.pwrite(descriptor, (line + b"\n")[done:], size + done)
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, size)
            raise UsageError(f"{self.file.path}: cannot be written ({error.strerror}); free space there") from None
        return read_record(line)

    def identity(self, create: bool = False) -> str:
        """The random id (32 hex digits) under which the home keeps this archive's keys; empty when it has none.

        ``create`` makes one. ``UsageError`` when the file is damaged or cannot be made.
        """
        path = self.folder / IDENTITY
        if create and not path.exists():
            document: dict[str, Json] = {"format": ARCHIVE_FORMAT, "id": secrets.token_hex(16)}
            try:
                make_folder(self.folder)
                write_new(path, canonical_bytes(document) + b"\n", 0o644)
                sync_folder(self.folder)
            except FileExistsError:
                pass
            except OSError as error:
                raise UsageError(
                    f"{path}: cannot be written ({error.strerror}); give a folder that can be written"
                ) from None
        if not path.exists():
            return ""
        data = read_small(path, "archive identity", "restore it", 1 << 12)
        try:
            item = expect_object(strict_json(data), "it", ("format", "id"))
            if item["format"] != ARCHIVE_FORMAT:
                raise MalformedError(f"its format is not {ARCHIVE_FORMAT!r}")
            return read_token(item["id"], "id")
        except MalformedError as error:
            raise UsageError(f"{path}: {error}; restore it from a copy of the archive") from None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            make_folder(self.folder)
            descriptor = os.open(self.file.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(f"{self.file.path}: cannot be opened ({error.strerror}); check its owner") from None
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)

    def _end(self, descriptor: int) -> tuple[bytes, bytes]:
        """The last whole line and what follows it."""
        size = os.fstat(descriptor).st_size
        length = min(size, 2 * LONGEST_LINE)
        *lines, rest = os.pread(descriptor, length, size - length).split(b"\n")
        return (lines[-1] if lines else b""), rest
