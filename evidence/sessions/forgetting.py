"""Erasing the identifiers of an archive's subject, beside what the archive itself keeps about it."""

from __future__ import annotations

from pathlib import Path

from evidence.sessions.archive import Archive
from evidence.sessions.binding import forget
from evidence.sessions.identifier_store import IdentifierStore
from evidence.sessions.inputs import vault_of
from evidence.sessions.record import INFERENCE
from evidence.sessions.trace_context import MEMBER, read_tracestate


def forget_subject(home: Path, archive: Archive, name: str) -> int:
    """Erase what stands behind a subject of ``archive`` (name or token): images of the patient of that name, and images
    that the subject's records name. How many there were; call it before the subject itself is erased."""
    vault = vault_of(home, archive)
    token = vault.token_of(name) if vault is not None else None
    if vault is None or token is None:
        return 0
    subject = vault.subjects().get(token)
    count = len(forget(home, subject.name)) if subject is not None else 0
    states = [item.fields["trace"] for item in archive.records() if item.kind == INFERENCE and item.subject == token]
    members = [dict(read_tracestate(str(trace["state"] or "")) or ()) for trace in states if isinstance(trace, dict)]
    return count + IdentifierStore(home).remove({item[MEMBER] for item in members if MEMBER in item})
