"""Proofs of a transparency log of builds and releases: signed tree heads, inclusion, consistency.

The signed text is the note body of C2SP tlog-checkpoint (origin, tree size, root hash in base64, one a line); the
signatures are those of a DSSE envelope, because the formats of C2SP have none for SM2 or P-384.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_hex,
    expect_list,
    expect_map,
    expect_object,
    strict_base64,
    strict_json,
)
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.dsse import Envelope, Signature, read_envelope
from evidence.verifier.merkle import check_inclusion, leaf_hash
from evidence.verifier.release_statement import count
from evidence.verifier.signers import find_keys, trusted_keys
from evidence.verifier.trust import TrustRoot

if TYPE_CHECKING:
    from evidence.verifier.release_parts import Contents

CHECKPOINT_TYPE = "application/vnd.cuvil.checkpoint"
ENTRY_FORMAT = "cuvil-log-entry/1"
PROOF_FORMAT = "cuvil-log-proof/1"
BUILD, RELEASE, WITHDRAWAL = "build", "release", "withdrawal"
_ENTRY = ("format", "kind", "model_version", "engine", "statement")
_PROOF = ("format", "checkpoint", "leaf_index", "leaf", "path")


@dataclass(frozen=True)
class Checkpoint:
    """A tree head: ``root`` is 32 bytes."""

    origin: str
    size: int
    root: bytes

    def encode(self) -> bytes:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n".encode()


def read_checkpoint(payload: bytes) -> Checkpoint:
    """Read the text strictly; ``MalformedError`` otherwise."""
    try:
        lines = payload.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise MalformedError("the checkpoint is not UTF-8") from None
    if len(lines) != 4 or lines[3] or not lines[0] or not (lines[1].isascii() and lines[1].isdigit()):
        raise MalformedError("the checkpoint is not origin, size and root, one a line")
    checkpoint = Checkpoint(lines[0], int(lines[1][:18]), strict_base64(lines[2], "the checkpoint's root"))
    if checkpoint.encode() != payload or len(checkpoint.root) != 32:
        raise MalformedError("the checkpoint is not in its one form")
    return checkpoint


def encode_entry(kind: str, model_version: str, engine: tuple[str, str], statement: tuple[str, str]) -> bytes:
    """Leaf data: RFC 8785 bytes; ``engine`` and ``statement`` are file name and SHA3-512 (hex)."""
    files: dict[str, Json] = {
        "engine": {"name": engine[0], "sha3_512": engine[1]},
        "statement": {"name": statement[0], "sha3_512": statement[1]},
    }
    return canonical_bytes({"format": ENTRY_FORMAT, "kind": kind, "model_version": model_version, **files})


def encode_proof(checkpoint: Envelope, index: int, leaf: bytes, path: Sequence[bytes]) -> bytes:
    """The file of an inclusion proof: RFC 8785 bytes and a line feed."""
    document: dict[str, Json] = {
        "format": PROOF_FORMAT,
        "checkpoint": strict_json(checkpoint.encode()),
        "leaf_index": index,
        "leaf": leaf.decode("utf-8"),
        "path": [node.hex() for node in path],
    }
    return canonical_bytes(document) + b"\n"


@dataclass(frozen=True)
class LogProof:
    """A parsed inclusion proof; the signatures of ``envelope`` are not checked yet."""

    envelope: Envelope
    checkpoint: Checkpoint
    index: int
    leaf: bytes

    @property
    def entry(self) -> dict[str, Json]:
        return expect_object(strict_json(self.leaf), "the log entry", _ENTRY)


def read_proof(data: bytes) -> LogProof:
    """Read an inclusion proof and check that it leads to its root; ``MalformedError`` otherwise."""
    value = strict_json(data)
    if canonical_bytes(value) + b"\n" != data:
        raise MalformedError("the log proof is not in its RFC 8785 form")
    item = expect_object(value, "the log proof", _PROOF)
    if item["format"] != PROOF_FORMAT:
        raise MalformedError(f"the log proof's format is not {PROOF_FORMAT!r}")
    envelope = read_envelope(canonical_bytes(item["checkpoint"]))
    if envelope.payload_type != CHECKPOINT_TYPE or envelope.verification_material is not None:
        raise MalformedError("the log proof holds no plain checkpoint")
    checkpoint = read_checkpoint(envelope.payload)
    leaf = text(item["leaf"], "leaf").encode()
    path = [bytes.fromhex(expect_hex(node, "path", 64)) for node in expect_list(item["path"], "path")]
    index = count(item["leaf_index"], "leaf_index")
    check_inclusion(leaf_hash(leaf), index, checkpoint.size, path, checkpoint.root)
    return LogProof(envelope, checkpoint, index, leaf)


def check_signed(envelope: Envelope, root: TrustRoot) -> None:
    """That every signature of a checkpoint is by a key of ``root`` and holds; ``MalformedError`` otherwise."""
    for key in find_keys(envelope, root, ()):
        if not key.holds(envelope.signed_bytes):
            raise MalformedError("a signature of the checkpoint does not hold")


def sign_bytes(checkpoint: Checkpoint) -> Envelope:
    """The checkpoint's envelope before it is signed."""
    return Envelope(CHECKPOINT_TYPE, checkpoint.encode(), ())


def with_signatures(envelope: Envelope, signatures: Sequence[Signature]) -> Envelope:
    """``envelope`` with its signatures."""
    return Envelope(envelope.payload_type, envelope.payload, tuple(signatures))


def check_log_proof(contents: Contents) -> tuple[bool, str]:
    """The build of this release is in the log whose head the release's keys signed."""
    stated = contents.statement.log
    if stated is None:
        return True, "the release names no log"
    proof = read_proof(contents.read(stated.file))
    if [item.key_id for item in proof.envelope.signatures] != [item.key_id for item in contents.keys]:
        raise MalformedError(f"{stated.file}: the checkpoint is not signed by the keys of the release")
    check_signed(proof.envelope, TrustRoot(contents.root.grade, trusted_keys(contents.keys)))
    head = proof.checkpoint
    if (head.origin, head.size, proof.index, head.root.hex()) != (
        stated.origin,
        stated.tree_size,
        stated.leaf_index,
        stated.root,
    ):
        raise MalformedError(f"{stated.file} is the proof of another place in the log than the release states")
    release, engine = contents.statement, contents.statement.subjects[contents.statement.engine]
    entry = encode_entry(
        BUILD, release.model_version, (engine.name, engine.sha3_512), (release.proof.file, release.proof.sha3_512)
    )
    if proof.leaf != entry:
        raise MalformedError(
            f"{stated.file} is about another build: {expect_map(proof.entry, 'entry')['model_version']}"
        )
    return True, f"the build is entry {proof.index} of {head.size} of the log {head.origin}"
