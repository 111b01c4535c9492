"""The schema of a registry in a SQLite file: made when the file is new, upgraded after a copy when it is old."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from evidence.audit_store import sync_folder
from fhir_registry.store.migrate import TABLE, check_known, engine_of, revision_of, revisions, upgrade


def connect(path: Path) -> sqlite3.Connection:
    """A connection on which nothing begins a transaction by itself; it may pass from thread to thread."""
    found = sqlite3.connect(path, isolation_level=None, timeout=30.0, check_same_thread=False)
    found.execute("PRAGMA journal_mode = WAL")
    # A commit is durable when it returns: the log is synced each time, and several writes share one commit.
    found.execute("PRAGMA synchronous = FULL")
    # 32 MB of log before it is copied into the file: the same pages change again and again, and are copied once.
    found.execute("PRAGMA wal_autocheckpoint = 8000")
    return found


def revision(path: Path) -> str:
    """The revision of the file; empty for a new one."""
    with closing(connect(path)) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]

        def read() -> str:
            row = database.execute(f"SELECT version_num FROM {TABLE}").fetchone()
            return str(row[0]) if row else ""

        return revision_of(tables, read)


def bring_up(path: Path) -> tuple[str, str]:
    """Make the schema or bring it to the newest revision; the revision before (empty: a new file) and after.

    A file with an older schema is copied to ``NAME.before-REVISION`` beside it first. ``UsageError`` for a newer one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    found, newest = revision(path), revisions()[-1]
    if found == newest:
        return found, newest
    check_known(found)
    engine = engine_of("sqlite://", lambda: connect(path), "BEGIN IMMEDIATE")
    return upgrade(engine, lambda old: _copy(path, old))


def _copy(path: Path, old: str) -> None:
    """Called while the upgrade holds the write lock, so nothing is written to the file between copy and change."""
    kept = path.with_name(f"{path.name}.before-{revisions()[revisions().index(old) + 1]}")
    unfinished = kept.with_name(f"{kept.name}.tmp")
    unfinished.unlink(missing_ok=True)
    with closing(connect(path)) as source, closing(sqlite3.connect(unfinished)) as target:
        source.backup(target)
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(kept)
    sync_folder(kept.parent)
