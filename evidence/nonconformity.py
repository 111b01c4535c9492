"""Nonconformity records: a signed statement that an engine did not hold when it was certified again, and its closure.

Statements v1: ``https://cuvil.dev/nonconformity/v1`` about engine and build proof, signed by the keys of the machine
that found it; ``https://cuvil.dev/nonconformity-closure/v1`` about the record, a person's signed word.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from compiler_kernels.errors import UsageError
from evidence.signed_word import check_keys, person_name
from evidence.signing_keys import SigningKeys, created_now, sign
from evidence.verifier.canonical import Json, MalformedError, canonical_bytes, expect_object
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.digests import digest_bytes
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.signers import find_keys, read_material
from evidence.verifier.subjects import Subject, encode_statement, read_subjects, subject_of
from evidence.verifier.trust import TrustRoot
from evidence.verifier.word import read_word

RECORD_TYPE = "https://cuvil.dev/nonconformity/v1"
CLOSURE_TYPE = "https://cuvil.dev/nonconformity-closure/v1"
_KEYS = ("id", "model_version", "target", "check", "finding", "created", "created_source")
_CLOSURE_KEYS = ("person", "reason", "created", "created_source")


@dataclass(frozen=True)
class Nonconformity:
    """``check``: stable name of what did not hold; ``finding``: a sentence about ``engine`` and ``proof``."""

    engine: Subject
    proof: Subject
    model_version: str
    target: str
    check: str
    finding: str
    created: str
    created_source: str

    @property
    def id(self) -> str:
        """``NC-`` and 16 digits that follow from engine, check and finding: found again, it is the same record."""
        parts: list[Json] = ["cuvil-nonconformity/1", self.engine.sha3_512, self.check, self.finding]
        return f"NC-{hashlib.sha3_512(canonical_bytes(parts)).hexdigest()[:16]}"

    def encode(self) -> bytes:
        """The payload: RFC 8785 bytes of the statement."""
        return encode_statement([self.engine, self.proof], RECORD_TYPE, {key: getattr(self, key) for key in _KEYS})


def open_record(
    engine: Subject,
    proof: Subject,
    *,
    model_version: str,
    target: str,
    check: str,
    finding: str,
    environment: Mapping[str, str] | None = None,
) -> Nonconformity:
    """A record dated now (``SOURCE_DATE_EPOCH``, else the machine's clock)."""
    created, source = created_now(os.environ if environment is None else environment)
    return Nonconformity(engine, proof, model_version, target, check, finding, created, source)


def signed_record(found: Nonconformity, keys: SigningKeys) -> bytes:
    """The record's file."""
    check_keys(keys)
    return sign(found.encode(), keys).encode()


def read_record(data: bytes, root: TrustRoot) -> Nonconformity:
    """Read and verify a record; ``MalformedError`` or ``VerificationFailed`` for anything but what was signed."""
    envelope = read_envelope(data)
    keys = find_keys(envelope, root, read_material(envelope.verification_material).certificates)
    if not keys or not all(key.holds(envelope.signed_bytes) for key in keys):
        raise VerificationFailed("signature", "a signature of the nonconformity record does not hold")
    subjects, _, predicate = read_subjects(envelope.payload, RECORD_TYPE)
    item = expect_object(predicate, "predicate", _KEYS)
    texts = {key: text(item[key], f"predicate.{key}") for key in _KEYS if key != "id"}
    proofs = [name for name in subjects if name.endswith(".proof.json")]
    if len(subjects) != 2 or len(proofs) != 1:
        raise MalformedError("it is not about an engine and its proof")
    (engine,) = (subject for name, subject in subjects.items() if name != proofs[0])
    found = Nonconformity(engine, subjects[proofs[0]], **texts)
    if item["id"] != found.id:
        raise MalformedError("predicate.id does not follow from what it says")
    return found


def close_record(
    name: str, data: bytes, person: str, reason: str, keys: SigningKeys, environment: Mapping[str, str] | None = None
) -> bytes:
    """A person's signed closure of the record in file ``name``; ``UsageError`` for an empty person or reason."""
    person, reason = person_name(person), reason.strip()
    if not reason:
        raise UsageError("--reason is empty; say what was found and done")
    check_keys(keys)
    created, source = created_now(os.environ if environment is None else environment)
    predicate: dict[str, Json] = {
        "person": person,
        "reason": reason,
        "created": created,
        "created_source": source,
    }
    return sign(encode_statement([subject_of(name, digest_bytes(data))], CLOSURE_TYPE, predicate), keys).encode()


def read_closure(closure: bytes, name: str, data: bytes, root: TrustRoot) -> tuple[str, str]:
    """``(person, reason)`` of a closure of exactly this record; ``MalformedError`` or ``VerificationFailed``."""
    word = read_word(closure, CLOSURE_TYPE, root)
    item = expect_object(word.predicate, "predicate", _CLOSURE_KEYS)
    subject = subject_of(name, digest_bytes(data))
    if dict(word.subjects) != {name: subject}:
        raise VerificationFailed("closure", "it closes another record than this one")
    person = text(item["person"], "predicate.person")
    word.owner(person, root)
    return person, text(item["reason"], "predicate.reason")
