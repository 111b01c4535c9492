"""Key sets on disk: creation, loading, file modes, passphrase.

``$CUVIL_HOME/keys`` (default ``~/.cuvil/keys``, mode 0700) holds ``sm2.key.pem`` and ``p384.key.pem`` (PKCS#8, mode
0600), their public halves ``*.pub.pem`` and ``trust-root.json``. A key set made here has the grade ``development``:
its private keys lie in files. With ``CUVIL_KEY_PASSPHRASE`` set they are encrypted (RFC 8018 PBES2).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence import p384, sm2
from evidence.p384 import P384Signer
from evidence.sm2 import Sm2Signer
from evidence.verifier.canonical import MalformedError
from evidence.verifier.der import decode_pem, encode_pem
from evidence.verifier.errors import UsageError
from evidence.verifier.files import write_new
from evidence.verifier.libcrypto import LibcryptoError
from evidence.verifier.signing import P384, REQUIRED_ALGORITHMS, SM2, Signer, Verifier, key_id
from evidence.verifier.sm2 import load
from evidence.verifier.trust import (
    DEVELOPMENT,
    TRUST_ROOT_FILE,
    TrustedKey,
    TrustRoot,
    default_home,
    default_trust_root,
    load_trust_root,
)

__all__ = ["KeySet", "Signer", "Verifier", "default_home", "default_trust_root", "init_keys", "key_id", "load_keys"]

PASSPHRASE_VARIABLE = "CUVIL_KEY_PASSPHRASE"
STEMS = {SM2: "sm2", P384: "p384"}
_SIGNERS: Mapping[str, Callable[[bytes], Signer]] = {SM2: Sm2Signer, P384: P384Signer}
_GENERATORS = {SM2: sm2.generate_private_key, P384: p384.generate_private_key}


@dataclass(frozen=True)
class KeySet:
    """Signers in the order of ``REQUIRED_ALGORITHMS``, the trust root that accepts them, and where both lie.

    ``created`` is true when this call made the files; ``encrypted`` when every private key is encrypted at rest.
    """

    signers: tuple[Signer, ...]
    trust_root: TrustRoot
    folder: Path
    encrypted: bool
    created: bool = False


def init_keys(home: Path | None = None) -> KeySet:
    """Make a development key set under ``home`` unless one is there; an existing one is loaded and never changed.

    The set appears in one step: a crash or a second process leaves either nothing or one complete set. Raises
    ``UsageError`` for an unwritable home, an incomplete set or wrong file modes, ``UnsupportedError`` without SM2.
    """
    folder = (home or default_home()) / "keys"
    if _occupied(folder):
        return load_keys(home)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".keys-", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror}); set CUVIL_HOME to a writable folder") from None
    try:
        _write_set(draft)
        # Renaming a folder onto one that has files fails, so a concurrent first build keeps its keys.
        draft.rename(folder)
        created = True
    except OSError as error:
        if not _occupied(folder):
            raise UsageError(f"{folder}: cannot be written ({error.strerror}); set CUVIL_HOME elsewhere") from None
        created = False
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    loaded = load_keys(home)
    return KeySet(loaded.signers, loaded.trust_root, loaded.folder, loaded.encrypted, created)


def load_keys(home: Path | None = None) -> KeySet:
    """Load the key set under ``home``.

    Raises ``UsageError`` for a missing file, a private key or folder open to group or others, a wrong or missing
    passphrase, a key that is not in the trust root, and a plain private key in a set graded above development.
    """
    folder = (home or default_home()) / "keys"
    if not folder.is_dir():
        raise UsageError(f"{folder}: no key set there; run `cuvil keys init`")
    if folder.stat().st_mode & 0o022:
        raise UsageError(f"{folder}: the key folder is writable by others; run `chmod 700 {folder}`")
    root = load_trust_root(folder / TRUST_ROOT_FILE)
    signers, all_encrypted = [], True
    for algorithm in REQUIRED_ALGORITHMS:
        path = folder / f"{STEMS[algorithm]}.key.pem"
        pkcs8, encrypted = read_private_key(path)
        all_encrypted &= encrypted
        if not encrypted and root.grade != DEVELOPMENT:
            raise UsageError(
                f"{path}: a plain private key may only be used with grade {DEVELOPMENT}, not {root.grade}; encrypt it"
            )
        try:
            signer = _SIGNERS[algorithm](pkcs8)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        trusted = root.key(key_id(signer.spki))
        if trusted is None or trusted.algorithm != algorithm:
            raise UsageError(f"{path}: its public key is not in {TRUST_ROOT_FILE} beside it; restore the matching pair")
        signers.append(signer)
    return KeySet(tuple(signers), root, folder, all_encrypted)


def read_private_key(path: Path) -> tuple[bytes, bool]:
    """``(PKCS#8 DER, whether the file was encrypted)`` of a PEM private key; ``UsageError`` naming file and remedy."""
    try:
        # One descriptor for the mode check and the reading: the file cannot be exchanged in between.
        with path.open("rb") as stream:
            mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
            if mode & 0o077:
                raise UsageError(f"{path}: the private key has mode {mode:04o}, open to others; run `chmod 600 {path}`")
            text = stream.read(1 << 16).decode("ascii", "replace")
    except FileNotFoundError:
        raise UsageError(f"{path}: the key set is incomplete; restore this file, or set CUVIL_HOME elsewhere") from None
    except OSError as error:
        raise UsageError(f"{path}: the private key cannot be read ({error.strerror}); check its owner") from None
    try:
        label, der = decode_pem(text)
    except MalformedError as error:
        raise UsageError(f"{path}: the private key {error}; restore it") from None
    if label == "PRIVATE KEY":
        return der, False
    if label != "ENCRYPTED PRIVATE KEY":
        raise UsageError(f"{path}: holds a {label} block; convert it with `openssl pkcs8 -topk8`")
    passphrase = _passphrase()
    if passphrase is None:
        raise UsageError(f"{path}: the private key is encrypted; set {PASSPHRASE_VARIABLE}")
    try:
        return load().pkcs8_decrypt(der, passphrase), True
    except LibcryptoError:
        raise UsageError(f"{path}: cannot be decrypted; set {PASSPHRASE_VARIABLE} to its passphrase") from None


def _occupied(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UsageError(f"{folder}: not a usable key folder ({error.strerror}); set CUVIL_HOME elsewhere") from None


def _passphrase() -> bytes | None:
    value = os.environb.get(PASSPHRASE_VARIABLE.encode())
    if value == b"":
        raise UsageError(f"{PASSPHRASE_VARIABLE} is set but empty; give a passphrase or unset it")
    return value


def new_private_key(path: Path, algorithm: str) -> Signer:
    """Generate a key, write it to the new file ``path`` (mode 0600, encrypted when the variable is set), return it."""
    pkcs8, passphrase = _GENERATORS[algorithm](), _passphrase()
    if passphrase is None:
        text = encode_pem("PRIVATE KEY", pkcs8)
    else:
        text = encode_pem("ENCRYPTED PRIVATE KEY", load().pkcs8_encrypt(pkcs8, passphrase))
    write_new(path, text.encode(), 0o600)
    return _SIGNERS[algorithm](pkcs8)


def load_signer(path: Path, algorithm: str) -> Signer:
    """The signer of a private key file; ``UsageError`` for wrong modes, passphrase or kind of key."""
    try:
        return _SIGNERS[algorithm](read_private_key(path)[0])
    except UsageError as error:
        raise UsageError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None


def _write_set(folder: Path) -> None:
    trusted = []
    for algorithm in REQUIRED_ALGORITHMS:
        signer = new_private_key(folder / f"{STEMS[algorithm]}.key.pem", algorithm)
        key = TrustedKey(algorithm, signer.spki)
        write_new(folder / f"{STEMS[algorithm]}.pub.pem", key.pem.encode(), 0o644)
        trusted.append(key)
    write_new(folder / TRUST_ROOT_FILE, TrustRoot(DEVELOPMENT, tuple(trusted)).encode(), 0o644)
