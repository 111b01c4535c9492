"""Reading and writing small files with errors that name the file and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

from evidence.verifier.errors import UsageError


def read_small(path: Path, what: str, remedy: str, limit: int = 64 << 20) -> bytes:
    """All bytes of ``path``; ``UsageError`` naming file and ``remedy`` when missing, unreadable or over ``limit``."""
    try:
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such {what}; {remedy}") from None
    except OSError as error:
        raise UsageError(f"{path}: the {what} cannot be read ({error.strerror}); {remedy}") from None
    if len(data) > limit:
        raise UsageError(f"{path}: the {what} is larger than {limit} bytes; {remedy}")
    return data


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Create ``path`` with exactly ``mode`` whatever the umask, write and fsync; fails when it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
