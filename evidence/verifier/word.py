"""A person's signed word about files: what a confirmed classification and a waiver have in common.

An in-toto statement in a DSSE envelope with the person's SM2 and P-384 signatures, like an approval. Its predicate has
the fields ``person``, ``created`` and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evidence.verifier.canonical import Json, MalformedError
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.dsse import PAYLOAD_TYPE, read_envelope
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.release_statement import ROLES
from evidence.verifier.signers import (
    LABELS,
    Moment,
    SignerKey,
    check_algorithms,
    check_used,
    find_keys,
    judge,
    read_material,
    stated_time,
)
from evidence.verifier.subjects import Subject, read_subjects
from evidence.verifier.trust import TrustRoot
from evidence.verifier.x509 import DOCUMENT_SIGNING


@dataclass(frozen=True)
class Word:
    """A statement whose signatures hold by keys that may sign documents."""

    subjects: Mapping[str, Subject]
    predicate: dict[str, Json]
    keys: tuple[SignerKey, ...]
    moment: Moment

    def owner(self, person: str, root: TrustRoot) -> str:
        """A sentence about whose keys these are; ``VerificationFailed`` when the keyring says: not ``person``'s."""
        if root.keyring is None:
            return "the trust root has no keyring, so it does not say whose key this is"
        for key in self.keys:
            entry = root.keyring.entry(key.key_id)
            roles = [role for role in ROLES if entry is not None and role in entry.roles]
            if not roles:
                said = f"the keyring gives the key {key.key_id[:16]}... none of the roles {', '.join(ROLES)}"
                raise VerificationFailed("unknown-key", said)
            owner = root.keyring.check(key.key_id, roles[0], self.moment.at, stamped=False).person
            if owner != person:
                raise VerificationFailed("unknown-key", f"the key is {owner}'s, not {person}'s")
        return f"the keyring says that the keys are {person}'s"


def read_word(data: bytes, predicate_type: str, root: TrustRoot) -> Word:
    """Read and verify a statement of this type.

    Raises ``MalformedError`` for another form, ``VerificationFailed`` for signatures that do not hold, keys that are
    not trusted, and certificates that are not for signing documents at the stated time.
    """
    envelope = read_envelope(data)
    if envelope.encode() != data or envelope.payload_type != PAYLOAD_TYPE:
        raise MalformedError("it is not byte for byte its own encoding, or has another payload type")
    material = read_material(envelope.verification_material)
    keys = find_keys(envelope, root, material.certificates)
    check_algorithms(keys)
    for key in keys:
        if not key.holds(envelope.signed_bytes):
            raise VerificationFailed("signature", f"its {LABELS[key.algorithm]} signature does not hold")
    subjects, _, predicate = read_subjects(envelope.payload, predicate_type)
    moment = Moment(stated_time(text(predicate.get("created"), "predicate.created")), stamped=False)
    check_used(material, judge(keys, root, material, moment, DOCUMENT_SIGNING))
    return Word(subjects, predicate, tuple(keys), moment)
