"""Checks a whole audit log: every event, its link, every signed head, every commitment to personal data."""

from __future__ import annotations

from dataclasses import dataclass

from evidence.audit_erase import Vault
from evidence.audit_store import LineFile
from evidence.verifier.audit import (
    ERASURE,
    NO_LEAF,
    REPAIR,
    AuditCheckpoint,
    Event,
    check_signatures,
    leaf_data,
    read_checkpoint,
    read_event,
)
from evidence.verifier.canonical import Json, MalformedError
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.merkle import leaf_hash, root_hash
from evidence.verifier.trust import TrustRoot


@dataclass(frozen=True)
class AuditReport:
    """What a check found. ``check`` is empty when all holds; else its stable name, with the first bad event if known.

    ``covered`` events lie under the last signed head; later ones rest on the links between events alone.
    """

    events: int
    checkpoints: int
    covered: int
    erased: int
    repairs: tuple[int, ...]
    clock_went_back: tuple[int, ...]
    check: str = ""
    event: int | None = None
    sentence: str = ""

    @property
    def ok(self) -> bool:
        return not self.check

    def to_json(self) -> dict[str, Json]:
        """One object for ``--json``."""
        found: dict[str, Json] = {
            "ok": self.ok,
            "events": self.events,
            "checkpoints": self.checkpoints,
            "covered": self.covered,
            "erased_subjects": self.erased,
            "repairs": list[Json](self.repairs),
            "clock_went_back": list[Json](self.clock_went_back),
        }
        if not self.ok:
            found |= {"error": "VerificationFailed", "check": self.check, "event": self.event, "message": self.sentence}
        return found

    def raise_if_failed(self) -> None:
        """``VerificationFailed`` named after the check that does not hold."""
        if not self.ok:
            raise VerificationFailed(self.check, self.sentence)


class _Bad(Exception):
    def __init__(self, check: str, event: int | None, sentence: str) -> None:
        super().__init__(sentence)
        self.check, self.event, self.sentence = check, event, sentence


class _Checker:
    def __init__(self, root: TrustRoot) -> None:
        self.root = root
        self.events: list[Event] = []
        self.data: list[bytes] = []
        self.heads: list[AuditCheckpoint] = []
        self.covered = 0

    def read_events(self, file: LineFile) -> None:
        lines, rest = file.read()
        for index, line in enumerate(lines):
            try:
                event = read_event(line)
            except MalformedError as error:
                raise _Bad("audit-event", index, f"event {index} {error}") from None
            if event.index != index:
                raise _Bad("audit-event", index, f"line {index + 1} holds event {event.index}, not {index}")
            if event.previous != (self.data[-1].hex() if self.data else NO_LEAF):
                before = max(index - 1, 0)
                raise _Bad(
                    "audit-chain", before, f"event {index} does not follow event {before}: one of the two was changed"
                )
            self.events.append(event)
            self.data.append(leaf_data(line))
        if rest:
            raise _Bad("audit-torn", len(lines), f"event {len(lines)} is cut off; the next event written says so")

    def read_heads(self, file: LineFile) -> None:
        lines, rest = file.read()
        for number, line in enumerate(lines, 1):
            self.head(line, f"{file.path.name} line {number}")
        if rest:
            raise _Bad("audit-checkpoint", None, "the last checkpoint is cut off; `cuvil audit checkpoint` signs anew")

    def head(self, line: bytes, where: str) -> None:
        try:
            head, envelope = read_checkpoint(line)
            check_signatures(envelope, self.root)
        except UsageError as error:
            raise _Bad("audit-checkpoint", None, f"{where} {error}") from None
        self.heads.append(head)

    def compare(self) -> None:
        leaves = [leaf_hash(item) for item in self.data]
        sound = 0
        for head in self.heads:
            if head.size > len(leaves):
                raise _Bad(
                    "audit-truncated",
                    len(leaves),
                    f"a signed head covers {head.size} events and {len(leaves)} are left: its end is missing",
                )
            last = head.size - 1
            if root_hash(leaves[: head.size]) != head.root:
                # The links hold, so either only the last event was changed, or all from some event on.
                if root_hash([*leaves[:last], leaf_hash(bytes.fromhex(head.head))]) == head.root:
                    raise _Bad("audit-rewritten", last, f"event {last} is not the one that a signed head covers")
                raise _Bad(
                    "audit-rewritten",
                    sound,
                    f"events {sound} to {last} are not those that the signed head over {head.size} covers",
                )
            if self.data[last].hex() != head.head:
                raise _Bad("audit-checkpoint", None, f"the signed head over {head.size} names another last event")
            sound = max(sound, head.size)
        self.covered = sound

    def personal(self, vault: Vault) -> None:
        try:
            subjects = vault.subjects()
        except UsageError as error:
            raise _Bad("audit-personal", None, str(error)) from None
        if vault.unfinished():
            raise _Bad("audit-personal", None, "an erasure was interrupted; the next event written finishes it")
        erased = {item.fields.get("subject"): item.index for item in self.events if item.kind == ERASURE}
        kept = {token: vault.sealed(subject) for token, subject in subjects.items()}
        for event in self.events:
            for item in event.personal:
                where = f"the personal data of event {event.index}"
                subject, gone = subjects.get(item.subject), erased.get(item.subject, -1) > event.index
                if subject is None and not gone:
                    raise _Bad("audit-personal", event.index, f"{where} has lost its key without a recorded erasure")
                if subject is not None and gone:
                    raise _Bad("audit-personal", event.index, f"{where} was erased, and its key is there again")
                if subject is None:
                    continue
                sealed = kept[item.subject].get(item.commitment)
                try:
                    if sealed is None:
                        raise MalformedError("is not what the event commits to")
                    subject.open(event.index, sealed)
                except MalformedError as error:
                    raise _Bad("audit-personal", event.index, f"{where} {error}") from None


def check_log(
    events: LineFile, heads: LineFile, vault: Vault | None, root: TrustRoot, against: bytes | None
) -> AuditReport:
    """Check everything that ``events``, ``heads`` and ``vault`` hold; ``UsageError`` only for unreadable files."""
    found = _Checker(root)
    failure: _Bad | None = None
    try:
        found.read_heads(heads)
        if against is not None:
            found.head(against.removesuffix(b"\n"), "the given checkpoint")
        found.read_events(events)
        found.compare()
        if vault is not None:
            found.personal(vault)
    except _Bad as bad:
        failure = bad
    backwards = [b.index for a, b in zip(found.events, found.events[1:], strict=False) if b.time < a.time]
    return AuditReport(
        len(found.events),
        len(found.heads),
        found.covered,
        len({item.fields.get("subject") for item in found.events if item.kind == ERASURE}),
        tuple(item.index for item in found.events if item.kind == REPAIR),
        tuple(backwards),
        failure.check if failure else "",
        failure.event if failure else None,
        failure.sentence if failure else "",
    )
