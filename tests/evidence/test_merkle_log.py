"""The Merkle tree against RFC 6962's definition, and the log that is built on it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from evidence.keys import KeySet
from evidence.log import Log
from evidence.verifier.canonical import MalformedError, canonical_bytes
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.log import Checkpoint, encode_entry, read_checkpoint, read_proof
from evidence.verifier.merkle import (
    check_consistency,
    check_inclusion,
    consistency_path,
    inclusion_path,
    leaf_hash,
    root_hash,
)

LEAVES = [leaf_hash(bytes([n])) for n in range(20)]
# Certificate Transparency's published example: the leaves of google/certificate-transparency's merkletree tests.
PUBLISHED = [bytes.fromhex(x) for x in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")]
PUBLISHED += [bytes.fromhex("606162636465666768696a6b6c6d6e6f")]
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def defined(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return hashlib.sha256(b"\x01" + defined(leaves[:half]) + defined(leaves[half:])).digest()


@pytest.mark.parametrize("size", ROOTS)
def test_published_roots(size: int) -> None:
    assert root_hash([leaf_hash(data) for data in PUBLISHED[:size]]).hex() == ROOTS[size]


@pytest.mark.parametrize("size", range(1, 21))
def test_every_proof_holds_and_no_changed_one(size: int) -> None:
    leaves = LEAVES[:size]
    root = root_hash(leaves)
    assert root == defined(leaves)
    for index in range(size):
        path = inclusion_path(leaves, index)
        check_inclusion(leaves[index], index, size, path, root)
        wrong = [
            (leaves[index], index, size, [*path, root]),
            (leaf_hash(root), index, size, path),
            (leaves[index], size, size, path),
        ]
        wrong += [(leaves[index], index, size, path[:-1])] if path else []
        wrong += [(leaves[index], (index + 1) % size, size, path)] if size > 1 else []
        for case in wrong:
            with pytest.raises(MalformedError):
                check_inclusion(*case, root)
    for old in range(1, size + 1):
        path = consistency_path(leaves, old)
        check_consistency(old, size, root_hash(leaves[:old]), root, path)
        with pytest.raises(MalformedError):
            check_consistency(old, size, root_hash([*leaves[: old - 1], leaf_hash(root)]), root, path)
        with pytest.raises(MalformedError):
            check_consistency(old, size, root_hash(leaves[:old]), leaf_hash(root), path)


def entry(number: int) -> bytes:
    return encode_entry("build", f"m-{number}", ("e.bin", "00" * 64), ("e.proof.json", f"{number:02x}" * 64))


def test_log_grows_proves_and_checks(tmp_path: Path, keys: KeySet) -> None:
    log = Log(tmp_path)
    for number in range(5):
        place = log.append(entry(number), keys.signers)
        assert (place.index, place.checkpoint.size) == (number, number + 1)
        assert read_proof(place.proof).leaf == entry(number)
    again = log.append(entry(2), keys.signers)
    assert (again.index, again.checkpoint.size) == (2, 5)
    assert log.check(keys.trust_root) == 6
    for index in range(5):
        proof = read_proof(log.prove(index))
        assert (proof.index, proof.leaf, proof.checkpoint.size) == (index, entry(index), 5)
    with pytest.raises(UsageError, match="5 entries"):
        log.prove(5)


@pytest.mark.parametrize("fault", ["changed", "dropped", "reordered", "cut", "head-dropped-with-entry", "head-changed"])
def test_a_log_that_was_rewritten_is_refused(tmp_path: Path, keys: KeySet, fault: str) -> None:
    log = Log(tmp_path)
    for number in range(4):
        log.append(entry(number), keys.signers)
    lines = log.entries_file.read_bytes().splitlines(keepends=True)
    heads = log.heads_file.read_bytes().splitlines(keepends=True)
    if fault == "changed":
        lines[1] = entry(9) + b"\n"
    if fault == "dropped":
        del lines[3]
    if fault == "reordered":
        lines[0], lines[1] = lines[1], lines[0]
    if fault == "cut":
        lines[3] = lines[3][:-1]
    if fault == "head-dropped-with-entry":
        # Consistent with the heads that are left; only whoever kept the last head can tell.
        lines, heads = lines[:3], heads[:3]
    if fault == "head-changed":
        item = json.loads(heads[1])
        item["payload"] = json.loads(heads[2])["payload"]
        heads[1] = canonical_bytes(item) + b"\n"
    log.entries_file.write_bytes(b"".join(lines))
    log.heads_file.write_bytes(b"".join(heads))
    if fault == "head-dropped-with-entry":
        assert log.check(keys.trust_root) == 3
        return
    with pytest.raises(VerificationFailed) as caught:
        log.check(keys.trust_root)
    assert caught.value.check == "log"
    if fault != "head-changed":
        with pytest.raises(VerificationFailed):
            log.append(entry(7), keys.signers)


@pytest.mark.parametrize(
    "text", ["a\n1\nAA==\n", "a\n01\n{r}\n", "\n1\n{r}\n", "a\n1\n{r}", "a\n1\n{r}\n\n", "a\n-1\n{r}\n"]
)
def test_checkpoints_have_one_form(text: str) -> None:
    good = Checkpoint("a", 1, bytes(32)).encode().decode()
    assert read_checkpoint(good.encode()) == Checkpoint("a", 1, bytes(32))
    with pytest.raises(MalformedError):
        read_checkpoint(text.replace("{r}", good.split("\n")[2]).encode())
