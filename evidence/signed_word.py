"""Who signs a word about files (``evidence.verifier.word``): person and keys, checked before anything is signed."""

from __future__ import annotations

from compiler_kernels.errors import UsageError
from evidence.signing_keys import SigningKeys
from evidence.verifier.signing import REQUIRED_ALGORITHMS


def person_name(person: str) -> str:
    """``person`` without blanks around it; ``UsageError`` when nothing printable is left."""
    person = person.strip()
    if not person or not person.isprintable():
        raise UsageError("--person is empty or not printable; give the name the keyring has for this key")
    return person


def check_keys(keys: SigningKeys) -> None:
    """``UsageError`` unless ``keys`` are one SM2 and one P-384 key."""
    if tuple(item.algorithm for item in keys.signers) != REQUIRED_ALGORITHMS:
        raise UsageError("this needs the person's SM2 and P-384 keys; give a key folder with both")
