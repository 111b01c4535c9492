"""What stands behind a pseudonym: ``$CUVIL_HOME/trace/identifiers.sqlite``, mode 0600 in a folder of mode 0700.

The only place where raw identifiers lie. Forgetting overwrites the row (``secure_delete``) and the rollback journal
that saw it, before the journal is removed. Copies in backups, snapshots, journals of the file system and worn flash
cells are out of reach.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path

from evidence.audit_store import REMEDY, locked, overwrite
from evidence.sessions.pseudonym import TAGS, Identifiers, canonical_id, canonical_uid, is_pseudonym
from evidence.sessions.pseudonym_keys import FOLDER
from evidence.verifier.errors import UsageError

_VERSION = 1
_WAIT_S = 30.0
_TABLE = f"""
CREATE TABLE image (
  pseudonym TEXT PRIMARY KEY NOT NULL,
  epoch INTEGER NOT NULL,
  first_seen TEXT NOT NULL,
  {", ".join(f"{field} TEXT NOT NULL" for field in TAGS)}
) WITHOUT ROWID;
CREATE INDEX image_study ON image (study);
CREATE INDEX image_patient ON image (patient);
PRAGMA user_version = {_VERSION};
"""


@dataclass(frozen=True)
class Entry:
    """One pseudonym with its epoch, the UTC time it was first made (RFC 3339) and the identifiers behind it."""

    pseudonym: str
    epoch: int
    first_seen: str
    subject: Identifiers


class IdentifierStore:
    """The store below ``home``; it appears with its first entry. Safe for several processes and threads."""

    def __init__(self, home: Path) -> None:
        self.path = home / FOLDER / "identifiers.sqlite"

    def add(self, pseudonym: str, epoch: int, subject: Identifiers) -> None:
        """Keep ``subject`` under ``pseudonym``, durable when this returns; nothing happens when it is there."""
        if self.find(pseudonym) is not None:
            return
        with locked(self.path.parent), self._open(write=True) as database:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            database.execute(
                "INSERT OR IGNORE INTO image (pseudonym, epoch, first_seen, study, series, instance, patient) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (pseudonym, epoch, now, *map(_stored, astuple(subject))),
            )

    def find(self, pseudonym: str) -> Entry | None:
        """What stands behind ``pseudonym``."""
        return next(iter(self._select({"pseudonym": pseudonym})), None)

    def search(self, *, study: str = "", series: str = "", instance: str = "", patient: str = "") -> list[Entry]:
        """The entries with all the given identifiers (at least one), oldest first: whose records to look for."""
        given = {
            "study": canonical_uid(study),
            "series": canonical_uid(series),
            "instance": canonical_uid(instance),
            "patient": canonical_id(patient),
        }
        wanted = {field: value for field, value in given.items() if value}
        if not wanted:
            raise UsageError("no identifier is given; name a patient, a study, a series or an instance")
        return self._select(wanted)

    def forget(self, subject: str) -> list[str]:
        """Erase every entry of a patient, given by PatientID or by one of the pseudonyms, and return the pseudonyms.

        An empty list where the store knows nobody of that name. What the archive holds under these pseudonyms can then
        be joined to the patient only by who has the key and all four identifiers of an image; `cuvil trace keys
        destroy` ends that too.
        """
        patient = canonical_id(subject)
        entry = self.find(subject) if is_pseudonym(subject) else None
        if entry is not None:
            patient = entry.subject.patient
        found = self._select({"patient": patient}) if patient else [entry] if entry else []
        if not found:
            return []
        self.remove([item.pseudonym for item in found])
        return [item.pseudonym for item in found]

    def remove(self, pseudonyms: Iterable[str]) -> int:
        """Erase these entries, and say how many there were."""
        found = [item for item in map(self.find, pseudonyms) if item is not None]
        if not found:
            return 0
        with locked(self.path.parent):
            with self._open(write=True) as database:
                database.executemany("DELETE FROM image WHERE pseudonym = ?", [(item.pseudonym,) for item in found])
            journal = self.path.with_name(f"{self.path.name}-journal")
            if journal.exists():
                overwrite(journal, bytes)  # zeros: a journal that begins with them is none to roll back
                journal.unlink()
        return len(found)

    def count(self) -> int:
        """Number of entries."""
        if not self._there():
            return 0
        with self._open() as database:
            return int(database.execute("SELECT count(*) FROM image").fetchone()[0])

    def _select(self, wanted: dict[str, str]) -> list[Entry]:
        if not self._there():
            return []
        where = " AND ".join(f"{field} = ?" for field in wanted)
        with self._open() as database:
            rows = database.execute(
                "SELECT pseudonym, epoch, first_seen, study, series, instance, patient FROM image "
                f"WHERE {where} ORDER BY first_seen, pseudonym",
                tuple(_stored(value) for value in wanted.values()),
            ).fetchall()
        return [Entry(row[0], row[1], row[2], Identifiers(*map(_loaded, row[3:]))) for row in rows]

    def _there(self) -> bool:
        """Whether the first transaction has happened; a crash before it leaves an empty file."""
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False

    @contextmanager
    def _open(self, write: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction; who writes holds the lock of the folder. ``UsageError`` where the file is open to others,
        damaged, or another program's."""
        try:
            if write:
                # SQLite itself would make the file with the umask's mode; its journal takes over the file's mode.
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            if self.path.stat().st_mode & 0o077:
                raise UsageError(f"{self.path}: identifiers are open to others; run `chmod 600 {self.path}`")
            with closing(sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)) as database:
                database.execute("PRAGMA secure_delete = ON")
                database.execute("PRAGMA synchronous = FULL")
                if write:
                    # The journal stays, so that ``forget`` can overwrite it; without that its blocks would be freed.
                    database.execute("PRAGMA journal_mode = PERSIST")
                database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                self._check_version(database, write)
                try:
                    yield database
                except BaseException:
                    database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise UsageError(f"{self.path}: cannot be used as the store of identifiers ({error}); {REMEDY}") from None

    def _check_version(self, database: sqlite3.Connection, write: bool) -> None:
        if database.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
            return
        if not write or database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise UsageError(f"{self.path}: is not a store of identifiers of this version; {REMEDY}")
        for statement in _TABLE.split(";"):
            database.execute(statement)


def _stored(value: str) -> str | bytes:
    """SQLite takes no lone surrogates as text; such a value is kept as its bytes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def _loaded(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")
