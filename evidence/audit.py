"""The audit log of a machine: what was built, verified, approved and signed, when, with proofs that outlive erasure.

``$CUVIL_HOME/audit/events.jsonl`` holds one event a line and is only ever appended to, ``checkpoints.jsonl`` signed
heads. Personal fields lie outside (``audit_erase``). Formats and checks: ``evidence.verifier.audit``. Events record the
real UTC time; nothing of this log enters a build artefact, whose only time is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from evidence.audit_check import AuditReport, check_log
from evidence.audit_erase import Vault
from evidence.audit_store import LineFile, locked
from evidence.verifier.audit import (
    CHECKPOINT_TYPE,
    ERASURE,
    NO_LEAF,
    REPAIR,
    AuditCheckpoint,
    Event,
    check_signatures,
    encode_line,
    encode_proof,
    leaf_data,
    read_checkpoint,
    read_event,
    read_kind,
)
from evidence.verifier.canonical import Json, MalformedError, expect_map, signable
from evidence.verifier.dsse import Envelope, Signature
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.merkle import consistency_path, inclusion_path, leaf_hash, root_hash
from evidence.verifier.signing import Signer, key_id
from evidence.verifier.trust import TrustRoot

FOLDER = "audit"
Fields = Mapping[str, Json]


class AuditLog:
    """The log under ``home``; it appears with its first event."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER
        self.events_file = LineFile(self.folder / "events.jsonl")
        self.checkpoints_file = LineFile(self.folder / "checkpoints.jsonl")
        self.vault = Vault(self.folder)

    def append(self, event: str, fields: Fields, personal: Mapping[str, Fields] | None = None) -> Event:
        """Record ``event`` (a kind) with ``fields``; durable when this returns.

        ``personal`` maps a subject to fields about that person; they are encrypted under the subject's own key, and so
        is the subject's name. Floats become strings (``signable``). Raises ``UsageError`` when the log cannot be
        written or the fields have no RFC 8785 form, ``VerificationFailed`` ``audit-event`` when its end is damaged.
        """
        kind = read_kind(event)
        if kind in (ERASURE, REPAIR):
            raise UsageError(f"the log itself writes events of kind {kind!r}; choose another kind")
        with locked(self.folder):
            self._recover()
            return self._append(kind, fields, personal or {})

    def erase(self, subject: str) -> Event:
        """Destroy key, salt and ciphertexts of ``subject`` (name or token); ``UsageError`` when there is none.

        The event names the subject's random token only. After a crash the next writer finishes what began.
        """
        with locked(self.folder):
            self._recover()
            token = self.vault.token_of(subject)
            if token is None:
                raise UsageError(
                    "the audit log holds no personal data of that subject; `cuvil audit show` lists tokens"
                )
            self.vault.begin_erasure(token)
            return self._finish_erasure(token)

    def lines(self) -> list[bytes]:
        """The whole lines, oldest first, unchecked."""
        return self.events_file.read()[0]

    def events(self) -> list[Event]:
        """All events, oldest first; ``VerificationFailed`` ``audit-event`` names the first that cannot be read."""
        return [self._event(line, index) for index, line in enumerate(self.lines())]

    def personal(self, event: Event) -> dict[str, dict[str, Json] | None]:
        """Personal fields of ``event`` by subject; an erased subject appears as its token with ``None``."""
        subjects = self.vault.subjects()
        found: dict[str, dict[str, Json] | None] = {}
        for item in event.personal:
            subject = subjects.get(item.subject)
            if subject is None:
                found[item.subject] = None
                continue
            sealed = self.vault.sealed(subject).get(item.commitment)
            if sealed is None:
                raise VerificationFailed(
                    "audit-personal", f"{self.vault.personal}: the personal data of event {event.index} was changed"
                )
            try:
                found[subject.name] = subject.open(event.index, sealed)
            except MalformedError as error:
                raise VerificationFailed("audit-personal", f"personal data of event {event.index} {error}") from None
        return found

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Audit path of event ``index`` in the tree of ``size`` events (all if absent); ``IndexError`` out of range."""
        return inclusion_path(self._leaves()[:size], index)

    def consistency(self, old_size: int, size: int | None = None) -> list[bytes]:
        """Proof that the tree of ``size`` events continues that of ``old_size``; ``IndexError`` out of range."""
        return consistency_path(self._leaves()[:size], old_size)

    def root(self, size: int | None = None) -> bytes:
        """Root (32 bytes) over the first ``size`` events."""
        return root_hash(self._leaves()[:size])

    def checkpoint(self, signers: Sequence[Signer], trust_root: TrustRoot) -> AuditCheckpoint:
        """Sign the present head.

        Raises ``VerificationFailed`` when the last signed head does not hold under ``trust_root``
        (``audit-checkpoint``) or the events no longer continue it (``audit-rewritten``).
        """
        with locked(self.folder):
            self._recover()
            rest = self.checkpoints_file.tail()[1]
            if rest:
                self.checkpoints_file.repair(rest, b"")
                self._append(REPAIR, _dropped("checkpoints.jsonl", rest), {})
            lines = self.lines()
            if not lines:
                raise UsageError("the audit log has no event yet; nothing to sign")
            leaves = [leaf_hash(leaf_data(line)) for line in lines]
            last = self.checkpoints_file.tail()[0]
            if last is not None:
                self._continues(last, leaves, trust_root)
            head = AuditCheckpoint(len(lines), root_hash(leaves), leaf_data(lines[-1]).hex(), _now())
            bare = Envelope(CHECKPOINT_TYPE, head.encode(), ())
            signatures = tuple(Signature(key_id(item.spki), item.sign(bare.signed_bytes)) for item in signers)
            line = encode_line(Envelope(CHECKPOINT_TYPE, bare.payload, signatures))
            self.checkpoints_file.append(line[:-1])
        return head

    def prove(self, index: int) -> bytes:
        """The inclusion proof of event ``index`` under the last signed head; ``UsageError`` when none covers it."""
        line = self.checkpoints_file.tail()[0]
        lines = self.lines()
        try:
            size = read_checkpoint(line)[0].size if line is not None else 0
        except MalformedError as error:
            raise VerificationFailed("audit-checkpoint", f"the last checkpoint {error}") from None
        if line is None or not 0 <= index < size:
            raise UsageError(f"no signed head covers event {index} ({size} are covered); run `cuvil audit checkpoint`")
        if size > len(lines):
            raise VerificationFailed("audit-truncated", f"a signed head covers {size} events and {len(lines)} are left")
        return encode_proof(lines[index], size, self.inclusion(index, size), line)

    def check(self, trust_root: TrustRoot, *, personal: bool = True, against: bytes | None = None) -> AuditReport:
        """Recompute everything; the report names the first bad event. ``against``: a checkpoint line kept elsewhere."""
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder}: no audit log there; it appears with the first build")
        return check_log(self.events_file, self.checkpoints_file, self.vault if personal else None, trust_root, against)

    def _append(self, kind: str, fields: Fields, personal: Mapping[str, Fields]) -> Event:
        last = self.events_file.tail()[0]
        before = None if last is None else self._event(last, None)
        index = 0 if before is None else before.index + 1
        previous = NO_LEAF if last is None else leaf_data(last).hex()
        checked = expect_map(signable(dict(fields)), "fields")
        # Refuse what has no form before anything about a person is written.
        Event(index, _now(), kind, checked, (), previous).encode()
        kept = tuple(self.vault.add(index, name, dict(personal[name])) for name in sorted(personal))
        event = Event(index, _now(), kind, checked, kept, previous)
        self.events_file.append(event.encode())
        return event

    def _recover(self) -> None:
        """Finish what a crash interrupted: a cut-off line, an erasure."""
        self.vault.tidy()
        last, rest = self.events_file.tail()
        if rest:
            before = None if last is None else self._event(last, None)
            index = 0 if before is None else before.index + 1
            previous = NO_LEAF if last is None else leaf_data(last).hex()
            event = Event(index, _now(), REPAIR, _dropped("events.jsonl", rest), (), previous)
            self.events_file.repair(rest, event.encode())
        for token in self.vault.unfinished():
            self._finish_erasure(token)

    def _finish_erasure(self, token: str) -> Event:
        self.vault.destroy(token)
        done = [item for item in self.events() if item.kind == ERASURE and item.fields.get("subject") == token]
        event = done[0] if done else self._append(ERASURE, {"subject": token}, {})
        self.vault.forget(token)
        return event

    def _continues(self, line: bytes, leaves: list[bytes], trust_root: TrustRoot) -> None:
        try:
            head, envelope = read_checkpoint(line)
            check_signatures(envelope, trust_root)
        except MalformedError as error:
            raise VerificationFailed(
                "audit-checkpoint", f"the last checkpoint {error}; run `cuvil audit check`"
            ) from None
        if head.size > len(leaves) or root_hash(leaves[: head.size]) != head.root:
            raise VerificationFailed(
                "audit-rewritten",
                f"the events no longer are those of the checkpoint over {head.size}; run `cuvil audit check`",
            )

    def _event(self, line: bytes, index: int | None) -> Event:
        try:
            event = read_event(line)
            if index is not None and event.index != index:
                raise MalformedError(f"says it is number {event.index}")
        except MalformedError as error:
            where = "the last event" if index is None else f"event {index}"
            raise VerificationFailed(
                "audit-event",
                f"{self.events_file.path}: {where} {error}; keep the file as evidence and restore the log",
            ) from None
        return event

    def _leaves(self) -> list[bytes]:
        return [leaf_hash(leaf_data(line)) for line in self.lines()]


def _dropped(file: str, rest: bytes) -> dict[str, Json]:
    return {"file": file, "dropped_bytes": len(rest), "dropped_sha3_512": hashlib.sha3_512(rest).hexdigest()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
