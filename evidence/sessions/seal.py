"""Seals: signed heads of a session archive, one DSSE envelope a line in ``seals.jsonl`` (docs/sessions.md).

A seal states how many records there were, the leaf of the last one, the leaf of the seal before it, and the time at
which the host signed: the only time in an archive, and the host's statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from evidence.audit_store import locked
from evidence.sessions.archive import Archive
from evidence.sessions.record import count, leaf_of
from evidence.verifier.audit import NO_LEAF, check_signatures, encode_line
from evidence.verifier.canonical import MalformedError, canonical_bytes, expect_hex, expect_object, expect_text
from evidence.verifier.canonical import strict_json as parse
from evidence.verifier.dsse import Envelope, Signature, read_envelope
from evidence.verifier.errors import CertificateFailure, UsageError
from evidence.verifier.signers import Material, read_material
from evidence.verifier.signing import Signer, key_id
from evidence.verifier.timestamp import imprint_of, read_timestamp
from evidence.verifier.trust import TrustRoot

SEAL_FORMAT = "cuvil-session-seal/1"
SEAL_TYPE = "application/vnd.cuvil.session-seal+json"


@dataclass(frozen=True)
class Seal:
    """``count`` records, the last of which has the leaf ``head`` (hex); ``previous`` is the leaf of the seal before."""

    count: int
    head: str
    previous: str
    time: str
    time_source: str

    def encode(self) -> bytes:
        """What is signed."""
        return canonical_bytes(
            {
                "format": SEAL_FORMAT,
                "count": self.count,
                "head": self.head,
                "previous": self.previous,
                "time": self.time,
                "time_source": self.time_source,
            }
        )


def read_seal(line: bytes) -> tuple[Seal, Envelope]:
    """Read one line of ``seals.jsonl`` strictly; its signatures are not checked yet. ``MalformedError`` otherwise."""
    envelope = read_envelope(line)
    if encode_line(envelope) != line + b"\n":
        raise MalformedError("is not in its RFC 8785 form")
    material = read_material(envelope.verification_material)
    if material.certificates or material.crls or len(material.timestamps) > 1:
        raise MalformedError("carries more than one timestamp")
    if envelope.payload_type != SEAL_TYPE:
        raise MalformedError("is no seal of a session archive")
    item = expect_object(parse(envelope.payload), "it", ("format", "count", "head", "previous", "time", "time_source"))
    seal = Seal(
        count(item["count"], "count"),
        expect_hex(item["head"], "head", 128),
        expect_hex(item["previous"], "previous", 128),
        expect_text(item["time"], "time"),
        expect_text(item["time_source"], "time_source"),
    )
    if seal.encode() != envelope.payload or seal.count < 1:
        raise MalformedError("is not in its one form")
    return seal, envelope


def check_seal(line: bytes, root: TrustRoot) -> Seal:
    """The seal in ``line``, signed by both keys of ``root``; ``MalformedError`` otherwise."""
    seal, envelope = read_seal(line)
    try:
        check_signatures(envelope, root)
    except UsageError as error:
        raise MalformedError(str(error)) from None
    return seal


def check_stamp(line: bytes, root: TrustRoot) -> datetime | None:
    """When an authority of ``root`` stamped the signatures of the seal in ``line``; ``None`` where no one did, or where
    ``root`` names no authority. ``MalformedError`` when the timestamp does not hold."""
    envelope = read_seal(line)[1]
    tokens = read_material(envelope.verification_material).timestamps
    if not tokens or not root.tsa_roots:
        return None
    try:
        imprint = imprint_of(item.value for item in envelope.signatures)
        return read_timestamp(tokens[0], imprint, root.tsa_roots, crls=root.crls).gen_time
    except CertificateFailure as error:
        raise MalformedError(f"carries a timestamp that does not hold: {error}") from None


def make_seal(
    archive: Archive, signers: Sequence[Signer], time: tuple[str, str], stamp: Callable[[bytes], bytes] | None = None
) -> Seal:
    """Sign the present head; the caller has checked the archive. ``time``: RFC 3339 text and where it comes from.

    ``stamp``: from an imprint (SHA-512, 64 bytes) over the signatures to an RFC 3161 token (DER), kept with the seal.

    ``UsageError`` for an archive without records, or one whose last seal already covers all of them.
    """
    with locked(archive.folder):
        lines = archive.lines()[0]
        if not lines:
            raise UsageError(f"{archive.folder}: the archive has no record yet; nothing to seal")
        last = archive.seals.tail()[0]
        if last is not None and read_seal(last)[0].count == len(lines):
            raise UsageError(f"{archive.folder}: the last seal already covers all {len(lines)} records")
        previous = NO_LEAF if last is None else leaf_of(last)
        seal = Seal(len(lines), leaf_of(lines[-1]), previous, *time)
        bare = Envelope(SEAL_TYPE, seal.encode(), ())
        signatures = tuple(Signature(key_id(item.spki), item.sign(bare.signed_bytes)) for item in signers)
        tokens = (stamp(imprint_of(item.value for item in signatures)),) if stamp else ()
        material = Material(timestamps=tokens).to_json()
        archive.seals.append(encode_line(Envelope(SEAL_TYPE, bare.payload, signatures, material))[:-1])
    return seal
