"""Personal fields of audit events: encrypted outside the log, so that they can be erased and the log still verifies.

``audit/keys/TOKEN.json`` (mode 0600) holds the name of a subject with a random AES-256 key and a salt,
``audit/personal/TOKEN.jsonl`` what is encrypted under them. The event holds the random token and
``SHA3-512(salt' || nonce || ciphertext)`` with ``salt' = HMAC-SHA3-512(salt, nonce)``. Without key and salt neither
says anything about the subject. Overwriting reaches the blocks of the file as the file system has it: copies in
backups, snapshots, journals and worn flash cells are out of its reach.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from evidence.audit_store import REMEDY, LineFile, make_folder, overwrite, sync_folder
from evidence.verifier.audit import Personal, read_token
from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_map,
    expect_object,
    expect_text,
    signable,
    strict_base64,
    strict_json,
)
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small, write_new

KEY_FORMAT = "cuvil-audit-subject/1"
_NONCE = 12
_TOKEN = re.compile(r"[0-9a-f]{32}")
_KEY, _ERASING, _DRAFT = ".json", ".erasing", ".draft"


@dataclass(frozen=True)
class Subject:
    """A subject whose data can be read: its name, its token, key and salt (32 bytes each)."""

    name: str
    token: str
    key: bytes
    salt: bytes

    def commitment(self, sealed: bytes) -> str:
        """Hex of the salted SHA3-512 over ``sealed``, nonce and ciphertext."""
        salt = hmac.digest(self.salt, sealed[:_NONCE], "sha3_512")
        return hashlib.sha3_512(salt + sealed).hexdigest()

    def seal(self, index: int, fields: dict[str, Json]) -> bytes:
        """Nonce and AES-256-GCM ciphertext of ``fields``, bound to subject and event."""
        nonce = secrets.token_bytes(_NONCE)
        return nonce + AESGCM(self.key).encrypt(nonce, canonical_bytes(signable(fields)), self._bound(index))

    def open(self, index: int, sealed: bytes) -> dict[str, Json]:
        """The fields again; ``MalformedError`` when key, subject, event or ciphertext is another."""
        try:
            data = AESGCM(self.key).decrypt(sealed[:_NONCE], sealed[_NONCE:], self._bound(index))
        except (InvalidTag, ValueError):
            raise MalformedError("does not decrypt under the subject's key") from None
        return expect_map(strict_json(data), "the personal fields")

    def _bound(self, index: int) -> bytes:
        return canonical_bytes({"index": index, "subject": self.name, "token": self.token})


class Vault:
    """Keys and ciphertexts below the audit folder; whoever changes them holds the lock of the log."""

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "keys"
        self.personal = folder / "personal"

    def subjects(self) -> dict[str, Subject]:
        """All subjects that are not erased, by token; ``UsageError`` naming a key file that is damaged or open."""
        return {path.stem: self._read(path) for path in sorted(self.keys.glob(f"*{_KEY}"))}

    def find(self, name: str) -> Subject | None:
        """The subject called ``name``."""
        return next((item for item in self.subjects().values() if item.name == name), None)

    def token_of(self, name: str) -> str | None:
        """The token of the subject called ``name``; a token stands for itself, also when its key file is damaged."""
        if _TOKEN.fullmatch(name) and (self.keys / f"{name}{_KEY}").exists():
            return name
        found = self.find(name)
        return found.token if found else None

    def subject(self, name: str) -> Subject:
        """The subject called ``name``; its token, key and salt are made when it has none, and durable on return."""
        return self.find(name) or self._create(name)

    def add(self, index: int, name: str, fields: dict[str, Json]) -> Personal:
        """Keep ``fields`` of the subject ``name`` for event ``index``; durable when this returns."""
        subject = self.subject(name)
        sealed = subject.seal(index, fields)
        make_folder(self.personal)
        file = self._file(subject.token)
        rest = file.tail()[1]
        if rest:
            file.repair(rest, b"")
        file.append(canonical_bytes({"sealed": base64.b64encode(sealed).decode()}))
        return Personal(subject.token, subject.commitment(sealed))

    def sealed(self, subject: Subject) -> dict[str, bytes]:
        """What is kept of ``subject``, by commitment; a damaged line is left out, so its event misses it."""
        found = {}
        for line in self._file(subject.token).read()[0]:
            try:
                item = expect_object(strict_json(line), "it", ("sealed",))
                sealed = strict_base64(expect_text(item["sealed"], "sealed"), "sealed")
            except MalformedError:
                continue
            if canonical_bytes(item) == line:
                found[subject.commitment(sealed)] = sealed
        return found

    def begin_erasure(self, token: str) -> None:
        """Mark the subject as being erased; from here on ``unfinished`` names it until ``forget``."""
        self._move(self.keys / f"{token}{_KEY}", self.keys / f"{token}{_ERASING}")

    def unfinished(self) -> list[str]:
        """Tokens whose erasure began and has not ended."""
        return sorted(path.stem for path in self.keys.glob(f"*{_ERASING}"))

    def destroy(self, token: str) -> None:
        """Overwrite key and salt, overwrite and remove the ciphertexts; the mark stays."""
        overwrite(self.keys / f"{token}{_ERASING}")
        path = self._file(token).path
        if path.exists():
            overwrite(path)
            self._remove(path)

    def shred(self, path: Path) -> None:
        """Overwrite and remove one further file that is encrypted under a destroyed key."""
        overwrite(path)
        self._remove(path)

    def forget(self, token: str) -> None:
        """Remove the mark, once the erasure is in the log."""
        self._remove(self.keys / f"{token}{_ERASING}")

    def tidy(self) -> None:
        """Remove key files that a crash left half-written."""
        for path in self.keys.glob(f"*{_DRAFT}"):
            overwrite(path)
            self._remove(path)

    def _create(self, name: str) -> Subject:
        subject = Subject(name, secrets.token_hex(16), secrets.token_bytes(32), secrets.token_bytes(32))
        document: dict[str, Json] = {
            "format": KEY_FORMAT,
            "subject": name,
            "token": subject.token,
            "key": base64.b64encode(subject.key).decode(),
            "salt": base64.b64encode(subject.salt).decode(),
        }
        make_folder(self.keys)
        draft = self.keys / f"{subject.token}{_DRAFT}"
        try:
            write_new(draft, canonical_bytes(document) + b"\n", 0o600)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise UsageError(f"{draft}: cannot be written ({error.strerror}); {REMEDY}") from None
        self._move(draft, self.keys / f"{subject.token}{_KEY}")
        return subject

    def _read(self, path: Path) -> Subject:
        data = read_small(path, "key of a subject", "restore it", 1 << 16)
        if path.stat().st_mode & 0o077:
            raise UsageError(f"{path}: a subject's key is open to others; run `chmod 600 {path}`")
        try:
            item = expect_object(strict_json(data), "it", ("format", "subject", "token", "key", "salt"))
            key, salt = (strict_base64(expect_text(item[part], part), part) for part in ("key", "salt"))
            name, token = expect_text(item["subject"], "subject"), read_token(item["token"], "token")
            if item["format"] != KEY_FORMAT or token != path.stem or len(key) != 32 or len(salt) != 32:
                raise MalformedError(f"is no {KEY_FORMAT} of this file's name")
            if canonical_bytes(item) + b"\n" != data:
                raise MalformedError("is not in its RFC 8785 form")
        except MalformedError as error:
            raise UsageError(f"{path}: the subject's key {error}; restore it") from None
        return Subject(name, token, key, salt)

    def _file(self, token: str) -> LineFile:
        return LineFile(self.personal / f"{token}.jsonl")

    def _move(self, old: Path, new: Path) -> None:
        try:
            old.rename(new)
            sync_folder(self.keys)
        except OSError as error:
            raise UsageError(f"{old}: cannot be renamed ({error.strerror}); {REMEDY}") from None

    def _remove(self, path: Path) -> None:
        try:
            path.unlink()
            sync_folder(path.parent)
        except OSError as error:
            raise UsageError(f"{path}: cannot be removed ({error.strerror}); {REMEDY}") from None
