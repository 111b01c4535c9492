"""Checks a session archive: every record, its place in the chain, every seal, every kept input (docs/sessions.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from evidence.sessions.archive import Archive
from evidence.sessions.record import ERASURE, INFERENCE, REPAIR, Record, leaf_of, read_record
from evidence.sessions.seal import Seal, check_seal, check_stamp
from evidence.verifier.audit import NO_LEAF
from evidence.verifier.canonical import Json, MalformedError
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.trust import TrustRoot

InputCheck = Callable[[Record], str]
"""Of a record whose inputs are kept: an empty text, or what is wrong with them."""


@dataclass(frozen=True)
class SessionReport:
    """What a check found. ``check`` is empty when all holds; else its stable name, with the record if one is known.

    ``sealed`` records lie under the last seal; later ones rest on the chain alone. ``stamped``: the last time that an
    authority of the trust root confirmed (RFC 3161), or nothing.
    """

    records: int
    inferences: int
    seals: int
    sealed: int
    last_seal: str
    stamped: str
    kept: int
    erased: int
    repairs: tuple[int, ...]
    check: str = ""
    record: int | None = None
    sentence: str = ""

    @property
    def ok(self) -> bool:
        return not self.check

    def to_json(self) -> dict[str, Json]:
        """One object for ``--json``."""
        found: dict[str, Json] = {
            "ok": self.ok,
            "records": self.records,
            "inferences": self.inferences,
            "seals": self.seals,
            "sealed_records": self.sealed,
            "last_seal": self.last_seal or None,
            "last_timestamp": self.stamped or None,
            "kept_inputs": self.kept,
            "erased_subjects": self.erased,
            "repairs": list[Json](self.repairs),
        }
        if not self.ok:
            found |= {"error": "VerificationFailed", "check": self.check, "record": self.record}
            found |= {"message": self.sentence}
        return found

    def raise_if_failed(self) -> None:
        """``VerificationFailed`` named after the check that does not hold."""
        if not self.ok:
            raise VerificationFailed(self.check, self.sentence)


class _Bad(Exception):
    def __init__(self, check: str, record: int | None, sentence: str) -> None:
        super().__init__(sentence)
        self.check, self.record = check, record


def check_archive(
    archive: Archive, root: TrustRoot | None, inputs: InputCheck | None = None, against: bytes | None = None
) -> SessionReport:
    """Recompute everything. ``root``: whom seals must be signed by (``None``: an archive with seals then fails).

    ``inputs`` looks at the kept inputs of one record. ``against``: a seal (a line) kept elsewhere, which the archive
    must still hold. Checks: ``session-record``, ``session-replayed``, ``session-swapped``, ``session-removed``,
    ``session-edited``, ``session-seal``, ``session-truncated``, ``session-rewritten``, ``session-torn``,
    ``session-input``.
    """
    lines, rest = archive.lines()
    records: list[Record] = []
    seals: list[Seal] = []
    stamps: list[datetime] = []
    kept = 0
    bad: _Bad | None = None
    try:
        for number, line in enumerate(lines):
            try:
                records.append(read_record(line))
            except MalformedError as error:
                raise _Bad("session-record", number, f"record {number} {error}: it was changed") from None
        _check_chain(records)
        _check_seals(archive, records, root, against, seals, stamps)
        if rest:
            raise _Bad(
                "session-torn",
                len(records),
                f"the last record is incomplete ({len(rest)} bytes): a crash cut it off, or someone did; the next "
                "inference into this archive drops these bytes and records that",
            )
        kept = _check_inputs(records, inputs)
    except _Bad as problem:
        bad = problem
    found = SessionReport(
        len(lines),
        sum(item.kind == INFERENCE for item in records),
        len(seals),
        max((seal.count for seal in seals), default=0),
        seals[-1].time if seals else "",
        f"{stamps[-1]:%Y-%m-%dT%H:%M:%SZ}" if stamps else "",
        kept,
        len(_erased(records)),
        tuple(item.index for item in records if item.kind == REPAIR),
    )
    if bad is None:
        return found
    return replace(found, check=bad.check, record=bad.record, sentence=str(bad))


def _check_chain(records: Sequence[Record]) -> None:
    previous = NO_LEAF
    places: dict[str, int] = {}
    for place, item in enumerate(records):
        if item.index == place and item.previous == previous:
            places[item.leaf] = place
            previous = item.leaf
            continue
        if item.leaf in places:
            raise _Bad("session-replayed", place, f"record {place} is record {places[item.leaf]} once more")
        if item.index < place:
            raise _Bad(
                "session-replayed", place, f"at place {place} stands another record with the number {item.index}"
            )
        if item.index > place:
            later = next((n for n in range(place, len(records)) if records[n].index == place), None)
            if later is not None:
                raise _Bad("session-swapped", place, f"record {place} stands at place {later}, behind others")
            last = item.index - 1
            which = f"record {place} is" if last == place else f"records {place} to {last} are"
            raise _Bad("session-removed", place, f"{which} missing: the next one is number {item.index}")
        if place == 0:
            raise _Bad("session-removed", 0, "the first record follows another one, which is missing")
        raise _Bad(
            "session-edited",
            place - 1,
            f"record {place - 1} is not the one that record {place} follows: one of the two was changed",
        )


def _check_seals(
    archive: Archive,
    records: Sequence[Record],
    root: TrustRoot | None,
    against: bytes | None,
    seals: list[Seal],
    stamps: list[datetime],
) -> None:
    lines, rest = archive.seals.read()
    if rest:
        raise _Bad(
            "session-seal", None, f"the last seal is incomplete ({len(rest)} bytes); seal again after removing it"
        )
    if lines and root is None:
        raise _Bad("session-seal", None, "the archive has seals and no trust root says whose; give --trust-root")
    previous, covered = NO_LEAF, 0
    for number, line in enumerate(lines):
        assert root is not None
        seal = _read(line, root, f"seal {number}")
        if seal.previous != previous or seal.count < covered:
            raise _Bad(
                "session-seal", None, f"seal {number} does not follow the one before it: one is missing or moved"
            )
        _covers(seal, records, f"seal {number}")
        seals.append(seal)
        stamp = _stamp(line, root, f"seal {number}")
        stamps += [stamp] if stamp else []
        previous, covered = leaf_of(line), seal.count
    if against is not None:
        line = against.rstrip(b"\n")
        if root is None:
            raise _Bad("session-seal", None, "--against needs a trust root that says whose seal it is")
        _covers(_read(line, root, "the seal kept elsewhere"), records, "the seal kept elsewhere")
        if line not in lines:
            raise _Bad(
                "session-seal", None, "the seal kept elsewhere is not among those of the archive: it was removed"
            )


def _read(line: bytes, root: TrustRoot, what: str) -> Seal:
    try:
        return check_seal(line, root)
    except MalformedError as error:
        raise _Bad("session-seal", None, f"{what} {error}") from None


def _stamp(line: bytes, root: TrustRoot, what: str) -> datetime | None:
    try:
        return check_stamp(line, root)
    except MalformedError as error:
        raise _Bad("session-seal", None, f"{what} {error}") from None


def _covers(seal: Seal, records: Sequence[Record], what: str) -> None:
    if seal.count > len(records):
        raise _Bad("session-truncated", len(records), f"{what} covers {seal.count} records and {len(records)} are left")
    if records[seal.count - 1].leaf != seal.head:
        raise _Bad(
            "session-rewritten",
            seal.count - 1,
            f"record {seal.count - 1} is not the one that {what} signed, though the chain holds: the archive "
            "was rewritten",
        )


def _check_inputs(records: Sequence[Record], inputs: InputCheck | None) -> int:
    erased = _erased(records)
    kept = 0
    for item in records:
        if item.kind != INFERENCE or not item.fields["kept"] or item.subject in erased:
            continue
        problem = inputs(item) if inputs else ""
        if problem:
            raise _Bad("session-input", item.index, f"record {item.index}: {problem}")
        kept += 1
    return kept


def _erased(records: Sequence[Record]) -> set[str]:
    return {item.subject for item in records if item.kind == ERASURE}
