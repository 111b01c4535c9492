"""The hash chain over stage records of one build.

``h_i = SHA3-512("cuvil-stage-v1" || 0x00 || h_(i-1) || record_i)`` with ``h_0`` = 64 zero bytes and ``record_i`` the
RFC 8785 bytes of record i; the last hash is the head. Changing, dropping, adding or reordering a record changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evidence.verifier.canonical import Json, MalformedError, expect_hex, expect_list, expect_object
from evidence.verifier.records import StageRecord

DOMAIN = b"cuvil-stage-v1\x00"
GENESIS = bytes(64)


@dataclass(frozen=True)
class Chain:
    """Records in build order and the hash (hex SHA3-512) after each."""

    records: tuple[StageRecord, ...]
    hashes: tuple[str, ...]

    @property
    def head(self) -> str:
        return self.hashes[-1]

    def record(self, stage: str) -> StageRecord | None:
        """The record of ``stage``, or ``None``."""
        return next((item for item in self.records if item.stage == stage), None)

    def to_json(self) -> list[Json]:
        pairs = zip(self.records, self.hashes, strict=True)
        return [{"hash": digest, "record": record.to_json()} for record, digest in pairs]


def link(previous: bytes, record: bytes) -> bytes:
    """The 64-byte hash that follows ``previous`` (64 bytes) when ``record`` (canonical bytes) is appended."""
    return hashlib.sha3_512(DOMAIN + previous + record).digest()


def build_chain(records: Sequence[StageRecord]) -> Chain:
    """Chain ``records`` in the given order; ``MalformedError`` for none or for two of one stage."""
    if not records:
        raise MalformedError("a chain needs at least one record")
    stages = [record.stage for record in records]
    if len(set(stages)) != len(stages):
        raise MalformedError("a chain holds two records of one stage")
    hashes, current = [], GENESIS
    for record in records:
        current = link(current, record.canonical)
        hashes.append(current.hex())
    return Chain(tuple(records), tuple(hashes))


def read_chain(entries: Json, head: Json) -> Chain:
    """Rebuild the chain from its JSON form and recompute every hash.

    Raises ``MalformedError`` naming the first record whose hash differs, or the head.
    """
    records, claimed = [], []
    for index, entry in enumerate(expect_list(entries, "chain")):
        where = f"chain[{index}]"
        item = expect_object(entry, where, ("hash", "record"))
        claimed.append(expect_hex(item["hash"], f"{where}.hash", 128))
        records.append(StageRecord.from_json(item["record"], f"{where}.record"))
    chain = build_chain(records)
    for index, (record, found, expected) in enumerate(zip(chain.records, claimed, chain.hashes, strict=True)):
        if found != expected:
            raise MalformedError(
                f"record {index} ({record.stage}) or one before it was changed: its hash is "
                f"{expected[:16]}..., the proof says {found[:16]}..."
            )
    if expect_hex(head, "head", 128) != chain.head:
        raise MalformedError("the head is not the hash of the last record")
    return chain


def check_links(records: Sequence[StageRecord], sources: Mapping[str, str]) -> None:
    """Check that every input is an artefact of an earlier record or one of ``sources`` (role to SHA3-512 hex).

    Raises ``MalformedError`` naming stage and role, or a source that no record reads.
    """
    known, used = set(sources.values()), set()
    for record in records:
        for role, digest in record.inputs.items():
            if digest not in known:
                raise MalformedError(
                    f"stage {record.stage} reads {role} {digest[:16]}..., which no earlier stage produced "
                    "and which is no declared source"
                )
            used.add(digest)
        known.update(item.sha3_512 for item in record.artifacts)
    for role, digest in sources.items():
        if digest not in used:
            raise MalformedError(f"the declared source {role} is read by no stage")
