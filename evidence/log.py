"""The local transparency log: an append-only Merkle tree over builds and releases, with signed heads.

``$CUVIL_HOME/log-tree/entries.jsonl`` holds one leaf a line, ``checkpoints.jsonl`` every signed head, ``origin`` the
log's name, made once. What is appended is never changed; ``check`` recomputes the tree against every head ever signed.
A log of one machine shows changes to those who keep its heads; it has no witness of its own.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from evidence.verifier.canonical import MalformedError, canonical_bytes, strict_json
from evidence.verifier.dsse import Envelope, Signature, read_envelope
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.intoto import encode_line
from evidence.verifier.log import CHECKPOINT_TYPE, Checkpoint, check_signed, encode_proof, read_checkpoint, sign_bytes
from evidence.verifier.merkle import check_consistency, consistency_path, inclusion_path, leaf_hash, root_hash
from evidence.verifier.signing import Signer, key_id
from evidence.verifier.trust import TrustedKey, TrustRoot

FOLDER = "log-tree"


@dataclass(frozen=True)
class Appended:
    """A leaf in the log: its index, and the signed head that covers it."""

    index: int
    checkpoint: Checkpoint
    envelope: Envelope
    proof: bytes


def with_builders(root: TrustRoot) -> TrustRoot:
    """``root`` with the keys that its keyring lists as builders': they sign heads, whatever certificate they have.

    Expiry and revocation are not judged here: a head says what the log held then, and no head carries a timestamp.
    """
    known = {item.key_id for item in root.keys}
    entries = () if root.keyring is None else root.keyring.entries
    further = (item for item in entries if "builder" in item.roles and item.key_id not in known)
    return replace(root, keys=root.keys + tuple(TrustedKey(item.algorithm, item.spki) for item in further))


class Log:
    """The log under ``home``; it appears with its first entry."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER
        self.entries_file = self.folder / "entries.jsonl"
        self.heads_file = self.folder / "checkpoints.jsonl"

    def entries(self) -> list[bytes]:
        """Leaf data, oldest first; ``VerificationFailed`` ``log`` when a line is not in its one form."""
        lines = self._lines(self.entries_file)
        for number, line in enumerate(lines, 1):
            try:
                sound = canonical_bytes(strict_json(line)) == line
            except MalformedError:
                sound = False
            if not sound:
                raise VerificationFailed("log", f"{self.entries_file} line {number} is damaged; restore the log")
        return lines

    def heads(self) -> list[Envelope]:
        """Signed heads, oldest first; ``VerificationFailed`` ``log`` when one is damaged."""
        found = []
        for number, line in enumerate(self._lines(self.heads_file), 1):
            try:
                envelope = read_envelope(line)
                read_checkpoint(envelope.payload)
                if envelope.payload_type != CHECKPOINT_TYPE or encode_line(envelope) != line + b"\n":
                    raise MalformedError("is not a checkpoint")
            except MalformedError as error:
                raise VerificationFailed("log", f"{self.heads_file} line {number}: {error}; restore the log") from None
            found.append(envelope)
        return found

    def append(self, leaf: bytes, signers: Sequence[Signer]) -> Appended:
        """Append ``leaf`` unless it is there, sign the head, return its place and proof.

        Refuses to sign a head that does not contain the last one: ``VerificationFailed`` ``log``.
        """
        with self._locked():
            leaves, heads = self.entries(), self.heads()
            self._continues(leaves, heads)
            if leaf in leaves:
                index = leaves.index(leaf)
            else:
                index = len(leaves)
                leaves.append(leaf)
                self._extend(self.entries_file, leaf + b"\n")
            hashes = [leaf_hash(item) for item in leaves]
            head = Checkpoint(self.origin(), len(leaves), root_hash(hashes))
            unsigned = sign_bytes(head)
            signatures = tuple(Signature(key_id(item.spki), item.sign(unsigned.signed_bytes)) for item in signers)
            envelope = Envelope(unsigned.payload_type, unsigned.payload, signatures)
            self._extend(self.heads_file, encode_line(envelope))
        proof = encode_proof(envelope, index, leaf, inclusion_path(hashes, index))
        return Appended(index, head, envelope, proof)

    def prove(self, index: int) -> bytes:
        """The inclusion proof of entry ``index`` under the last head; ``UsageError`` when there is none."""
        leaves, heads = self.entries(), self.heads()
        size = read_checkpoint(heads[-1].payload).size if heads else 0
        if not 0 <= index < size:
            raise UsageError(f"the log has {size} entries; give a number from 0 to {max(size - 1, 0)}")
        hashes = [leaf_hash(item) for item in leaves[:size]]
        return encode_proof(heads[-1], index, leaves[index], inclusion_path(hashes, index))

    def check(self, root: TrustRoot) -> int:
        """Recompute the tree against every signed head; returns how many.

        ``VerificationFailed`` ``log`` when one does not hold.
        """
        leaves, heads = self.entries(), self.heads()
        self._continues(leaves, heads)
        root = with_builders(root)
        hashes = [leaf_hash(item) for item in leaves]
        last: Checkpoint | None = None
        for envelope in heads:
            head = read_checkpoint(envelope.payload)
            try:
                check_signed(envelope, root)
                if head.root != root_hash(hashes[: head.size]) or head.size > len(hashes):
                    raise MalformedError("its root is not that of the entries")
                if last is not None:
                    path = consistency_path(hashes[: head.size], last.size)
                    check_consistency(last.size, head.size, last.root, head.root, path)
            except (MalformedError, IndexError, VerificationFailed) as error:
                raise VerificationFailed("log", f"the head over {head.size} entries does not hold: {error}") from None
            last = head
        return len(heads)

    def origin(self) -> str:
        """The log's name, made at random once."""
        path = self.folder / "origin"
        if not path.exists():
            self._extend(path, f"cuvil.dev/log/{secrets.token_hex(8)}\n".encode())
        return path.read_text("ascii").strip()

    def _continues(self, leaves: list[bytes], heads: list[Envelope]) -> None:
        if not heads:
            if leaves:
                raise VerificationFailed("log", f"{self.folder} has entries but no signed head; restore the log")
            return
        head = read_checkpoint(heads[-1].payload)
        tree = root_hash([leaf_hash(item) for item in leaves[: head.size]])
        if head.size > len(leaves) or tree != head.root:
            raise VerificationFailed(
                "log", f"{self.entries_file} no longer holds what its last signed head covers; restore the log"
            )

    def _lines(self, path: Path) -> list[bytes]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror}); check its owner") from None
        if data and not data.endswith(b"\n"):
            raise VerificationFailed("log", f"{path}: its last line is cut off; restore the log")
        return data.split(b"\n")[:-1]

    def _extend(self, path: Path, data: bytes) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            with os.fdopen(descriptor, "ab") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise UsageError(f"{path}: cannot be written ({error.strerror}); set CUVIL_HOME elsewhere") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            stream = (self.folder / ".lock").open("a")
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be made ({error.strerror}); set CUVIL_HOME elsewhere") from None
        with stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield
