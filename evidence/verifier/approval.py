"""A person's approval of an engine, its proof and its reports, signed with that person's own keys.

Statement v1 with predicate type ``https://cuvil.dev/approval/v1``; the subjects are what was approved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evidence.verifier.canonical import MalformedError, expect_object
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.release_statement import ROLES
from evidence.verifier.subjects import Subject, encode_statement, read_subjects

APPROVAL_TYPE = "https://cuvil.dev/approval/v1"
_KEYS = ("role", "person", "statement", "created", "created_source")


@dataclass(frozen=True)
class Approval:
    """``role``: developer, tester or quality; ``statement``: what the person declares, in words."""

    subjects: Mapping[str, Subject]
    role: str
    person: str
    statement: str
    created: str
    created_source: str

    def encode(self) -> bytes:
        """The payload: RFC 8785 bytes of the statement."""
        return encode_statement(self.subjects.values(), APPROVAL_TYPE, {key: getattr(self, key) for key in _KEYS})


def read_approval(payload: bytes) -> Approval:
    """Read a payload strictly; ``MalformedError`` names the field."""
    subjects, _, found = read_subjects(payload, APPROVAL_TYPE)
    item = expect_object(found, "predicate", _KEYS)
    approval = Approval(subjects, **{key: text(item[key], f"predicate.{key}") for key in _KEYS})
    if approval.role not in ROLES:
        raise MalformedError(f"predicate.role {approval.role!r} is not one of {', '.join(ROLES)}")
    return approval
