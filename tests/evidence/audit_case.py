"""Shared pieces of the audit log's tests."""

from __future__ import annotations

from pathlib import Path

from evidence.audit import AuditLog
from evidence.verifier.audit import leaf_data
from evidence.verifier.merkle import check_consistency, check_inclusion, leaf_hash

ALICE = {"alice@clinic.example": {"login": "wren-alice", "room": "Zimmer 4711 – 放射科"}}
BORIS = {"boris": {"login": "boris-plover"}}


def proofs_hold(log: AuditLog, old_sizes: list[int] | None = None) -> None:
    """Every inclusion proof in the whole tree, and consistency from every older size."""
    lines = log.lines()
    size, root = len(lines), log.root()
    for index, line in enumerate(lines):
        check_inclusion(leaf_hash(leaf_data(line)), index, size, log.inclusion(index), root)
    for old in range(1, size + 1) if old_sizes is None else old_sizes:
        check_consistency(old, size, log.root(old), root, log.consistency(old))


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
