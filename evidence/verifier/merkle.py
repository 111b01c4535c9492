"""The Merkle tree of a transparency log: RFC 6962, section 2.1, with SHA-256, as C2SP's tlog formats fix it.

Leaf hash ``SHA-256(0x00 || data)``, node hash ``SHA-256(0x01 || left || right)``, the tree over no leaf SHA-256 of
nothing. What is logged carries SHA3-512 digests inside its leaf data, so the data does not rest on SHA-256 alone.
The checking algorithms are those of RFC 9162, sections 2.1.3.2 and 2.1.4.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from evidence.verifier.canonical import MalformedError

EMPTY = hashlib.sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    """32 bytes: the hash of a leaf with ``data``."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """32 bytes: the hash of a node over two 32-byte hashes."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_hash(leaves: Sequence[bytes]) -> bytes:
    """Root over ``leaves`` (32-byte leaf hashes, oldest first)."""
    if not leaves:
        return EMPTY
    # Equal to the recursion of RFC 6962: pair neighbours level by level and carry an odd one up unchanged.
    level = list(leaves)
    while len(level) > 1:
        paired = [node_hash(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + level[len(level) - len(level) % 2 :]
    return level[0]


def inclusion_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """PATH(index, leaves): the audit path of a leaf, nearest node first. ``IndexError`` when there is no such leaf."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"the tree of {len(leaves)} leaves has no leaf {index}")
    if len(leaves) == 1:
        return []
    half = _split(len(leaves))
    if index < half:
        return [*inclusion_path(leaves[:half], index), root_hash(leaves[half:])]
    return [*inclusion_path(leaves[half:], index - half), root_hash(leaves[:half])]


def consistency_path(leaves: Sequence[bytes], old_size: int) -> list[bytes]:
    """PROOF(old_size, leaves): the nodes from the first ``old_size`` leaves to all. ``IndexError`` out of range."""
    if not 0 < old_size <= len(leaves):
        raise IndexError(f"the tree of {len(leaves)} leaves never had {old_size}")
    return _subproof(leaves, old_size, True)


def check_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """That ``leaf`` (its hash) is number ``index`` of ``size`` under ``root``; ``MalformedError`` otherwise."""
    if not 0 <= index < size:
        raise MalformedError(f"the leaf index {index} is not below the tree size {size}")
    position, last, current = index, size - 1, leaf
    for node in path:
        if last == 0:
            raise MalformedError("the inclusion path is too long")
        if position % 2 or position == last:
            current = node_hash(node, current)
            while position % 2 == 0 and position:
                position, last = position >> 1, last >> 1
        else:
            current = node_hash(current, node)
        position, last = position >> 1, last >> 1
    if last:
        raise MalformedError("the inclusion path is too short")
    if current != root:
        raise MalformedError("the inclusion path does not lead to the root")


def check_consistency(old_size: int, new_size: int, old_root: bytes, new_root: bytes, path: Sequence[bytes]) -> None:
    """That the tree ``new`` only appended to the tree ``old``; ``MalformedError`` otherwise."""
    if not 0 < old_size <= new_size:
        raise MalformedError(f"{old_size} and {new_size} are not the sizes of a log that grew")
    if old_size == new_size:
        if path or old_root != new_root:
            raise MalformedError("two trees of one size have different roots")
        return
    nodes = list(path) if old_size & (old_size - 1) else [old_root, *path]
    if not nodes:
        raise MalformedError("the consistency path is empty")
    first, second = old_size - 1, new_size - 1
    while first % 2:
        first, second = first >> 1, second >> 1
    old = new = nodes[0]
    for node in nodes[1:]:
        if second == 0:
            raise MalformedError("the consistency path is too long")
        if first % 2 or first == second:
            old, new = node_hash(node, old), node_hash(node, new)
            while first % 2 == 0 and first:
                first, second = first >> 1, second >> 1
        else:
            new = node_hash(new, node)
        first, second = first >> 1, second >> 1
    if second or old != old_root or new != new_root:
        raise MalformedError("the consistency path does not lead from the old root to the new one")


def _split(size: int) -> int:
    """The largest power of two below ``size``."""
    return 1 << ((size - 1).bit_length() - 1)


def _subproof(leaves: Sequence[bytes], old_size: int, whole: bool) -> list[bytes]:
    if old_size == len(leaves):
        return [] if whole else [root_hash(leaves)]
    half = _split(len(leaves))
    if old_size <= half:
        return [*_subproof(leaves[:half], old_size, whole), root_hash(leaves[half:])]
    return [*_subproof(leaves[half:], old_size - half, False), root_hash(leaves[:half])]
