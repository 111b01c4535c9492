"""The ring file of ``ENGINE --coverage FILE``: made for an engine, and read back (runtime/cuvil_engine.h)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

from compiler_kernels.errors import VerificationFailed
from evidence.coverage.mcdc import Record

MAGIC = b"CVRING1\0"
_HEAD = struct.Struct("<8sQQ128s40xQ56xQ56x")
_RECORD = struct.Struct("<IIQ")


@dataclass(frozen=True)
class Ring:
    """What a ring holds: records as ``(probe number, record)`` from the oldest, and how many were lost."""

    config_digest: str
    records: list[tuple[int, Record]]
    dropped: int


def empty_ring(records: int) -> bytes:
    """A ring with room for at least so many records."""
    capacity = 1 << max(0, records - 1).bit_length()
    return _HEAD.pack(MAGIC, capacity, 0, b"", 0, 0) + bytes(_RECORD.size * capacity)


def read_ring(data: bytes) -> Ring:
    """The records not yet consumed. ``VerificationFailed`` for bytes that are no ring or records out of order."""
    if len(data) < _HEAD.size or data[:8] != MAGIC:
        raise VerificationFailed("coverage-ring", "the coverage file is no ring of probe records; run the engine again")
    _, capacity, dropped, config, head, tail = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + _RECORD.size * capacity or not 0 <= head - tail <= capacity:
        raise VerificationFailed("coverage-ring", "the coverage file is damaged; run the engine again")
    found = []
    sequences = []
    for place in range(tail, head):
        probe, sequence, trace = _RECORD.unpack_from(data, _HEAD.size + _RECORD.size * (place % capacity))
        found.append((probe & 0x7FFFFFFF, Record(trace & 0xFFFFFFFF, trace >> 32, bool(probe >> 31))))
        sequences.append(sequence)
    if dropped == 0 and any((b - a) % 2**32 != 1 for a, b in pairwise(sequences)):
        raise VerificationFailed("coverage-ring", "records of the coverage file are out of order; run the engine again")
    return Ring(config.rstrip(b"\0").decode("ascii", "replace"), found, dropped)
