"""The audit log's events, checkpoints and proofs: reading them strictly and checking them.

An event is one line of RFC 8785 JSON. Its leaf is ``SHA3-512(0x00 || line)``, its place in the log a leaf of the
RFC 6962 tree (``merkle``) over those 64 bytes; each event also names the leaf before it, so that a changed event is
found without any signature. A checkpoint signs size, root and last leaf. Events hold the real UTC time at which they
were written: that is what an audit log is for, and why none of it enters a build artefact.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_hex,
    expect_list,
    expect_map,
    expect_object,
    expect_text,
    strict_json,
)
from evidence.verifier.dsse import Envelope, read_envelope
from evidence.verifier.errors import UsageError
from evidence.verifier.merkle import check_inclusion, leaf_hash
from evidence.verifier.signing import REQUIRED_ALGORITHMS
from evidence.verifier.trust import TrustRoot

EVENT_FORMAT = "cuvil-audit/1"
CHECKPOINT_FORMAT = "cuvil-audit-checkpoint/1"
CHECKPOINT_TYPE = "application/vnd.cuvil.audit-checkpoint+json"
PROOF_FORMAT = "cuvil-audit-proof/1"
NO_LEAF = "00" * 64
"""What the first event names as the leaf before it."""
ERASURE, REPAIR = "erasure", "repair"
LONGEST_LINE = 1 << 16
_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_TOKEN = re.compile(r"[0-9a-f]{32}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@dataclass(frozen=True)
class Personal:
    """Personal fields of one subject outside the log: the subject's random token (32 hex digits) and
    ``SHA3-512(salt || ciphertext)`` (hex)."""

    subject: str
    commitment: str


@dataclass(frozen=True)
class Event:
    """One event; ``time`` is UTC with microseconds, ``previous`` the leaf (hex) of the event before."""

    index: int
    time: str
    kind: str
    fields: dict[str, Json]
    personal: tuple[Personal, ...]
    previous: str

    def encode(self) -> bytes:
        """The line without its line feed; ``MalformedError`` when it has no RFC 8785 form or is over 64 KiB."""
        personal: list[Json] = [{"subject": item.subject, "commitment": item.commitment} for item in self.personal]
        line = canonical_bytes(
            {
                "format": EVENT_FORMAT,
                "index": self.index,
                "time": self.time,
                "event": self.kind,
                "fields": self.fields,
                "personal": personal,
                "previous": self.previous,
            }
        )
        if len(line) >= LONGEST_LINE:
            raise MalformedError(f"an audit event of {len(line)} bytes is longer than {LONGEST_LINE - 1}")
        return line


def leaf_data(line: bytes) -> bytes:
    """64 bytes: ``SHA3-512(0x00 || line)``."""
    return hashlib.sha3_512(b"\x00" + line).digest()


def read_event(line: bytes) -> Event:
    """Read one line strictly; ``MalformedError`` names the fault."""
    value = strict_json(line)
    if canonical_bytes(value) != line:
        raise MalformedError("is not in its RFC 8785 form")
    item = expect_object(value, "it", ("format", "index", "time", "event", "fields", "personal", "previous"))
    if item["format"] != EVENT_FORMAT:
        raise MalformedError(f"its format is not {EVENT_FORMAT!r}")
    time = expect_text(item["time"], "time")
    if not _TIME.fullmatch(time):
        raise MalformedError("time is not a time like 2026-01-31T08:00:00.000000Z")
    personal = []
    for entry in expect_list(item["personal"], "personal"):
        part = expect_object(entry, "an entry of personal", ("subject", "commitment"))
        commitment = expect_hex(part["commitment"], "commitment", 128)
        personal.append(Personal(read_token(part["subject"], "subject"), commitment))
    return Event(
        _count(item["index"], "index"),
        time,
        read_kind(item["event"]),
        expect_map(item["fields"], "fields"),
        tuple(personal),
        expect_hex(item["previous"], "previous", 128),
    )


def read_kind(value: Json) -> str:
    """``value`` as the kind of an event: a lower-case word of letters, digits and hyphens, at most 32."""
    if not isinstance(value, str) or not _KIND.fullmatch(value):
        raise MalformedError(f"the kind of an event is a lower-case word with hyphens, not {value!r}")
    return value


def read_token(value: Json, where: str) -> str:
    """``value`` as a subject's token."""
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise MalformedError(f"{where} is not 32 lower-case hex digits")
    return value


@dataclass(frozen=True)
class AuditCheckpoint:
    """A signed head: ``root`` (32 bytes) over ``size`` events, ``head`` the leaf (hex) of the last of them."""

    size: int
    root: bytes
    head: str
    time: str

    def encode(self) -> bytes:
        """What is signed."""
        return canonical_bytes(
            {
                "format": CHECKPOINT_FORMAT,
                "size": self.size,
                "root": self.root.hex(),
                "head": self.head,
                "time": self.time,
            }
        )


def encode_line(envelope: Envelope) -> bytes:
    """An envelope as one line: RFC 8785 and a line feed."""
    return canonical_bytes(strict_json(envelope.encode())) + b"\n"


def read_checkpoint(line: bytes) -> tuple[AuditCheckpoint, Envelope]:
    """Read one line of ``checkpoints.jsonl`` (without line feed) strictly; its signatures are not checked yet."""
    envelope = read_envelope(line)
    if encode_line(envelope) != line + b"\n" or envelope.verification_material is not None:
        raise MalformedError("is not in its RFC 8785 form")
    if envelope.payload_type != CHECKPOINT_TYPE:
        raise MalformedError("is no checkpoint of an audit log")
    item = expect_object(strict_json(envelope.payload), "it", ("format", "size", "root", "head", "time"))
    checkpoint = AuditCheckpoint(
        _count(item["size"], "size"),
        bytes.fromhex(expect_hex(item["root"], "root", 64)),
        expect_hex(item["head"], "head", 128),
        expect_text(item["time"], "time"),
    )
    if checkpoint.encode() != envelope.payload or checkpoint.size < 1:
        raise MalformedError("is not in its one form")
    return checkpoint, envelope


def check_signatures(envelope: Envelope, root: TrustRoot) -> None:
    """That an SM2 and a P-384 key of ``root`` signed, in this order; ``MalformedError`` otherwise."""
    keys = [root.key(item.key_id) for item in envelope.signatures]
    if tuple(item.algorithm if item else "" for item in keys) != REQUIRED_ALGORITHMS:
        raise MalformedError("is not signed by the SM2 and the P-384 key of the trust root")
    for key, signature in zip(keys, envelope.signatures, strict=True):
        if key is None or not key.verifier().verify(envelope.signed_bytes, signature.value):
            raise MalformedError(f"carries a signature that does not hold ({signature.key_id[:16]}...)")


def encode_proof(line: bytes, size: int, path: Sequence[bytes], checkpoint: bytes) -> bytes:
    """The file of an inclusion proof: RFC 8785 and a line feed. ``checkpoint`` is a line of ``checkpoints.jsonl``."""
    document: dict[str, Json] = {
        "format": PROOF_FORMAT,
        "event": line.decode("utf-8"),
        "size": size,
        "path": [node.hex() for node in path],
        "checkpoint": checkpoint.decode("utf-8"),
    }
    return canonical_bytes(document) + b"\n"


def verify_proof(data: bytes, root: TrustRoot) -> tuple[Event, AuditCheckpoint]:
    """The event that ``data`` proves, and the checkpoint of ``root`` it is under; ``MalformedError`` if it does not."""
    value = strict_json(data)
    if canonical_bytes(value) + b"\n" != data:
        raise MalformedError("the proof is not in its RFC 8785 form")
    item = expect_object(value, "the proof", ("format", "event", "size", "path", "checkpoint"))
    if item["format"] != PROOF_FORMAT:
        raise MalformedError(f"the proof's format is not {PROOF_FORMAT!r}")
    line = expect_text(item["event"], "event").encode()
    checkpoint, envelope = read_checkpoint(expect_text(item["checkpoint"], "checkpoint").encode())
    try:
        check_signatures(envelope, root)
    except UsageError as error:
        raise MalformedError(f"the proof's checkpoint {error}") from None
    if item["size"] != checkpoint.size:
        raise MalformedError("the proof and its checkpoint speak of different sizes")
    event = read_event(line)
    path = [bytes.fromhex(expect_hex(node, "path", 64)) for node in expect_list(item["path"], "path")]
    check_inclusion(leaf_hash(leaf_data(line)), event.index, checkpoint.size, path, checkpoint.root)
    return event, checkpoint


def _count(value: Json, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MalformedError(f"{where} is not a whole number")
    return value
