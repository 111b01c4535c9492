"""Append-only files of lines: locked between processes, synced before success is reported, repaired after a crash.

A line is whole when its line feed is there. What a crash leaves after the last line feed was never reported as
written; ``LineFile.repair`` replaces it by a line that says so.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evidence.verifier.errors import UsageError

REMEDY = "free space or check its owner, or set CUVIL_HOME elsewhere"


def sync_folder(folder: Path) -> None:
    """Make new and removed names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make ``folder`` with mode 0700, durably; ``UsageError`` when that is impossible."""
    try:
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(folder.parent)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror}); {REMEDY}") from None


def overwrite(path: Path, fill: Callable[[int], bytes] = secrets.token_bytes) -> None:
    """Fill ``path`` with random bytes, synced: what it held is gone from its blocks as the file system has them."""
    try:
        with path.open("r+b", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            for start in range(0, size, 1 << 20):
                stream.write(fill(min(1 << 20, size - start)))
            os.fsync(stream.fileno())
    except OSError as error:
        raise UsageError(f"{path}: cannot be overwritten ({error.strerror}); {REMEDY}") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time in ``folder``, threads of this process included; made when it is not there."""
    make_folder(folder)
    path = folder / ".lock"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{path}: cannot be opened ({error.strerror}); {REMEDY}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class LineFile:
    """One file of lines; whoever writes holds the lock of its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[list[bytes], bytes]:
        """Whole lines without their line feeds, and what follows the last of them; ``UsageError`` if unreadable."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return [], b""
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read ({error.strerror}); check its owner") from None
        *lines, rest = data.split(b"\n")
        return lines, rest

    def tail(self) -> tuple[bytes | None, bytes]:
        """The last whole line (``None`` without one) and what follows it, read from the end."""
        try:
            with self.path.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                data, start = b"", size
                while start and data.count(b"\n") < 2:
                    step = min(start, 1 << 13)
                    start -= step
                    stream.seek(start)
                    data = stream.read(step) + data
        except FileNotFoundError:
            return None, b""
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be read ({error.strerror}); check its owner") from None
        *lines, rest = data.split(b"\n")
        return (lines[-1] if lines else None), rest

    def append(self, line: bytes) -> None:
        """Add ``line`` and its line feed durably, or nothing; ``UsageError`` when that is impossible."""
        self._write(line + b"\n", self._append)

    def repair(self, rest: bytes, line: bytes) -> None:
        """Put ``line`` where ``rest``, the cut-off end, begins.

        The line goes first and the cut second: a crash in between leaves a file that still needs a repair, so there is
        never one that lost bytes and does not say so.
        """

        def write(descriptor: int, data: bytes) -> None:
            start = os.fstat(descriptor).st_size - len(rest)
            _write_all(lambda part, done: os.pwrite(descriptor, part, start + done), data)
            os.ftruncate(descriptor, start + len(data))

        self._write(line + b"\n" if line else b"", write, os.O_RDWR)

    def _append(self, descriptor: int, data: bytes) -> None:
        size = os.fstat(descriptor).st_size
        try:
            _write_all(lambda part, _: os.write(descriptor, part), data)
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def _write(
        self, data: bytes, write: Callable[[int, bytes], None], flags: int = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    ) -> None:
        try:
            new = not self.path.exists()
            descriptor = os.open(self.path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                write(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if new:
                sync_folder(self.path.parent)
        except OSError as error:
            raise UsageError(f"{self.path}: cannot be written ({error.strerror}); {REMEDY}") from None


def _write_all(write: Callable[[bytes, int], int], data: bytes) -> None:
    done = 0
    while done < len(data):
        done += write(data[done:], done)
