"""Binding an image to a trace: its pseudonym goes into ``tracestate``, its identifiers into the protected store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evidence.sessions.identifier_store import Entry, IdentifierStore
from evidence.sessions.pseudonym import Identifiers, pseudonym
from evidence.sessions.pseudonym_keys import PseudonymKeys
from evidence.sessions.trace_context import TraceContext
from evidence.verifier.errors import UsageError


def bind(home: Path, context: TraceContext, subject: Identifiers, strict: bool = False) -> TraceContext:
    """``context`` with the pseudonym of ``subject``, which the store then knows; without one in strict mode, or for an
    image that has no identifiers. A pseudonym of an image before it is removed.

    ``UsageError`` where this home has no key, or where key or store cannot be used; nothing is bound then.
    """
    if strict or not subject:
        return context.with_pseudonym(None)
    keys = PseudonymKeys(home)
    epoch = keys.current()
    if epoch is None or epoch.key is None:
        raise UsageError(f"{keys.folder}: holds no key of pseudonyms; run `cuvil trace keys init`")
    value = pseudonym(epoch.key, subject)
    IdentifierStore(home).add(value, epoch.number, subject)
    return context.with_pseudonym(value)


def forget(home: Path, subject: str) -> list[str]:
    """Erase what stands behind the pseudonyms of a patient (PatientID, or one of the pseudonyms); the pseudonyms."""
    return IdentifierStore(home).forget(subject)


@dataclass(frozen=True)
class Recomputed:
    """The pseudonym that ``subject`` has in an epoch, whether or not the store knows it."""

    epoch: int
    pseudonym: str
    entry: Entry | None


def recompute(home: Path, subject: Identifiers) -> list[Recomputed]:
    """The pseudonyms of ``subject`` in every epoch whose key is left: how records are found without the store."""
    store = IdentifierStore(home)
    found = []
    for epoch in PseudonymKeys(home).epochs():
        if epoch.key is not None:
            value = pseudonym(epoch.key, subject)
            found.append(Recomputed(epoch.number, value, store.find(value)))
    return found
