"""In-toto statements about several files: their subjects, written and read strictly.

Statement v1 (in-toto attestation framework) in its RFC 8785 form; every subject carries SHA-256, SHA3-512 and SM3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evidence.verifier.canonical import (
    Json,
    MalformedError,
    canonical_bytes,
    expect_hex,
    expect_list,
    expect_map,
    expect_object,
    expect_text,
    strict_json,
)
from evidence.verifier.digests import Digests
from evidence.verifier.records import relative_name
from evidence.verifier.statement import STATEMENT_TYPE

DIGITS = {"sha256": 64, "sha3_512": 128, "sm3": 64}
# Names that shell scripts, zip files and every file system carry unchanged.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]*(/[A-Za-z0-9_][A-Za-z0-9._+@-]*)*")


@dataclass(frozen=True)
class Subject:
    """One file: relative POSIX path and its three digests in hex."""

    name: str
    sha256: str
    sha3_512: str
    sm3: str

    def to_json(self) -> dict[str, Json]:
        return {"name": self.name, "digest": self.digest_set()}

    def digest_set(self) -> dict[str, Json]:
        return {"sha256": self.sha256, "sha3_512": self.sha3_512, "sm3": self.sm3}

    def matches(self, digests: Digests) -> bool:
        """Whether all three digests are those of ``digests``."""
        return self.digest_set() == digests.digest_set()


def subject_of(name: str, digests: Digests) -> Subject:
    """The subject ``name``; ``MalformedError`` for a name outside letters, digits and ``. _ + @ - /``."""
    return Subject(file_name(name, "a release"), digests.sha256, digests.sha3_512, digests.sm3)


def file_name(name: str, where: str) -> str:
    """``name`` when it is a plain relative path of portable characters; ``MalformedError`` otherwise."""
    if not _NAME.fullmatch(name) or len(name) > 200:
        raise MalformedError(f"{where}: the file name {name!r} is not a plain relative path of A-Z a-z 0-9 . _ + @ -")
    return relative_name(name, where)


def encode_statement(subjects: Iterable[Subject], predicate_type: str, predicate: Mapping[str, Json]) -> bytes:
    """The payload: RFC 8785 bytes of the statement, subjects in the order of their names."""
    ordered = sorted(subjects, key=lambda item: item.name)
    return canonical_bytes(
        {
            "_type": STATEMENT_TYPE,
            "subject": [item.to_json() for item in ordered],
            "predicateType": predicate_type,
            "predicate": dict(predicate),
        }
    )


def read_subjects(payload: bytes, predicate_type: str | None) -> tuple[dict[str, Subject], str, dict[str, Json]]:
    """``(subjects by name, predicate type, predicate)``; ``MalformedError`` names the field.

    The bytes must be the canonical ones and the type ``predicate_type`` unless that is ``None``.
    """
    value = strict_json(payload)
    if canonical_bytes(value) != payload:
        raise MalformedError("the statement is not in its RFC 8785 form")
    outer = expect_object(value, "the statement", ("_type", "subject", "predicateType", "predicate"))
    if outer["_type"] != STATEMENT_TYPE:
        raise MalformedError(f"_type is {outer['_type']!r}, not {STATEMENT_TYPE!r}")
    kind = expect_text(outer["predicateType"], "predicateType")
    if predicate_type is not None and kind != predicate_type:
        raise MalformedError(f"predicateType is {kind!r}, not {predicate_type!r}")
    subjects: dict[str, Subject] = {}
    for index, entry in enumerate(expect_list(outer["subject"], "subject")):
        where = f"subject[{index}]"
        item = expect_object(entry, where, ("name", "digest"))
        name = file_name(expect_text(item["name"], f"{where}.name"), where)
        digest = expect_object(item["digest"], f"{where}.digest", DIGITS)
        texts = {key: expect_hex(digest[key], f"{where}.digest.{key}", digits) for key, digits in DIGITS.items()}
        if name in subjects:
            raise MalformedError(f"subject holds {name} twice")
        subjects[name] = Subject(name, **texts)
    if not subjects:
        raise MalformedError("subject is empty")
    return subjects, kind, expect_map(outer["predicate"], "predicate")
