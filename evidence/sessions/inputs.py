"""Inputs that an archive keeps: encrypted under the key of their subject, so that destroying the key erases them.

``inputs/TOKEN/DIGEST.sealed`` in the archive holds nonce and AES-256-GCM ciphertext of one .npy file, named by the
salted digest that the record holds. Name, key and salt of a subject lie in
``$CUVIL_HOME/sessions/ARCHIVE/keys/TOKEN.json`` (mode 0600, ``evidence.audit_erase``) and never in the archive: copies
of the archive are erased with the key.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from evidence.audit_erase import Subject, Vault
from evidence.audit_store import locked, make_folder, sync_folder
from evidence.sessions.archive import INPUTS, Archive
from evidence.sessions.record import ERASURE, Record, Tensor
from evidence.sessions.tensor import tensor_digest
from evidence.verifier.canonical import MalformedError, canonical_bytes
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.files import write_new

FOLDER = "sessions"
_NONCE = 12
LARGEST = 1 << 32


def vault_of(home: Path, archive: Archive, create: bool = False) -> Vault | None:
    """The keys of ``archive``'s subjects in ``home``; ``None`` when the archive never had a subject."""
    identity = archive.identity(create)
    return Vault(home / FOLDER / identity) if identity else None


def new_subject(home: Path, archive: Archive, name: str) -> Subject:
    """The subject called ``name`` of ``archive``, made when it is not there; durable on return."""
    vault = vault_of(home, archive, create=True)
    assert vault is not None
    with locked(vault.keys.parent):
        vault.tidy()
        return vault.subject(name)


def digest_of_npy(data: bytes, dtype: str, salt: bytes | None) -> str:
    """The digest of the array in a .npy file whose type is ``dtype`` to the engine; ``UsageError`` when it is none."""
    try:
        array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise UsageError("is no .npy file; write it with numpy.save(path, array)") from None
    if not array.flags.c_contiguous:
        raise UsageError("is in Fortran order; write it with numpy.save(path, numpy.ascontiguousarray(array))")
    return tensor_digest(dtype, array.shape, array.tobytes(), salt)


def keep(archive: Archive, subject: Subject, files: Mapping[str, bytes]) -> None:
    """Encrypt ``files`` (digest of the array -> .npy file) into the archive; durable on return.

    This comes before the inference, so that a crash leaves a kept input without a record, never the reverse.
    """
    folder = archive.folder / INPUTS / subject.token
    make_folder(archive.folder)
    make_folder(archive.folder / INPUTS)
    make_folder(folder)
    for digest, data in files.items():
        path = folder / f"{digest}.sealed"
        if path.exists():
            continue
        nonce = secrets.token_bytes(_NONCE)
        sealed = nonce + AESGCM(subject.key).encrypt(nonce, data, _bound(subject.token, digest))
        draft = folder / f".{digest}.{os.getpid()}.tmp"
        try:
            draft.unlink(missing_ok=True)
            write_new(draft, sealed, 0o600)
            draft.rename(path)
            sync_folder(folder)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise UsageError(f"{path}: cannot be written ({error.strerror}); free space there") from None


def open_input(archive: Archive, subject: Subject, tensor: Tensor) -> bytes:
    """The .npy file of a kept input; ``VerificationFailed`` ``session-input`` when it is missing or was changed."""
    path = _path(archive, subject.token, tensor)
    try:
        sealed = path.read_bytes()
    except FileNotFoundError:
        raise VerificationFailed("session-input", f"the kept input '{tensor.name}' ({path.name}) is missing") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); check its owner") from None
    try:
        data = AESGCM(subject.key).decrypt(sealed[:_NONCE], sealed[_NONCE:], _bound(subject.token, tensor.digest))
        if digest_of_npy(data, tensor.dtype, subject.salt) != tensor.digest:
            raise MalformedError("is another array")
    except (InvalidTag, ValueError, UsageError):
        raise VerificationFailed(
            "session-input", f"the kept input '{tensor.name}' ({path.name}) was changed: it is not what was encrypted"
        ) from None
    return data


def kept_check(home: Path, archive: Archive) -> Callable[[Record], str]:
    """What looks at the kept inputs of a record, with the keys that ``home`` has now.

    It gives an empty text, or what is wrong with them; without the subject's key, only whether they are there.
    """
    vault = vault_of(home, archive)
    subjects = vault.subjects() if vault else {}

    def check(record: Record) -> str:
        subject = subjects.get(record.subject)
        try:
            for tensor in record.inputs:
                if subject is not None:
                    open_input(archive, subject, tensor)
                elif not _path(archive, record.subject, tensor).is_file():
                    return f"the kept input '{tensor.name}' is missing"
        except VerificationFailed as error:
            return str(error)
        return ""

    return check


def erase(home: Path, archive: Archive, name: str) -> Record:
    """Destroy key, salt, name and kept inputs of a subject (its name or token), and record that in the archive.

    The record names the random token only. A second call after a crash finishes what began. ``UsageError`` when the
    home knows no such subject of this archive.
    """
    archive.require()
    vault = vault_of(home, archive)
    if vault is None:
        raise UsageError(f"{archive.folder}: no subject was ever named in this archive; there is nothing to erase")
    with locked(vault.keys.parent):
        vault.tidy()
        unfinished = vault.unfinished()
        token = vault.token_of(name)
        if token is None and not unfinished:
            raise UsageError(
                f"{archive.folder}: this home ({vault.keys}) holds no key of that subject; `cuvil session list` "
                "shows the tokens"
            )
        if token is not None:
            vault.begin_erasure(token)
            unfinished = [*unfinished, token]
        done = [_finish(archive, vault, item) for item in unfinished]
    return done[-1]


def _finish(archive: Archive, vault: Vault, token: str) -> Record:
    vault.destroy(token)
    folder = archive.folder / INPUTS / token
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        vault.shred(path)
    if folder.is_dir():
        folder.rmdir()
    known = [item for item in archive.records() if item.kind == ERASURE and item.subject == token]
    record = known[0] if known else archive.append(ERASURE, {"subject": token})
    vault.forget(token)
    return record


def _path(archive: Archive, token: str, tensor: Tensor) -> Path:
    return archive.folder / INPUTS / token / f"{tensor.digest}.sealed"


def _bound(token: str, digest: str) -> bytes:
    return canonical_bytes({"digest": digest, "subject": token})
