"""A person's signed choice about a proposed class: written, read and checked.

Statement v1 with predicate type ``https://cuvil.dev/classification/v1``; its subjects are both engines and proofs. It
is signed like an approval, with the person's SM2 and P-384 keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json
from evidence.classify.build import Build
from evidence.classify.compare import Proposal
from evidence.classify.rules import FIELDS
from evidence.signed_word import check_keys, person_name
from evidence.signing_keys import SigningKeys, created_now, sign
from evidence.verifier.canonical import MalformedError, expect_map, expect_object
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.digests import digest_file
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.subjects import Subject, encode_statement, subject_of
from evidence.verifier.trust import TrustRoot
from evidence.verifier.word import read_word

CLASSIFICATION_TYPE: Final = "https://cuvil.dev/classification/v1"
_KEYS: Final = ("proposal", "field", "reason", "person", "created", "created_source")


@dataclass(frozen=True)
class Choice:
    """What a person decided: ``field`` is the class; ``reason`` is empty where it is the proposed one."""

    field: str
    reason: str
    person: str
    created: str
    created_source: str


def confirm(
    proposal: Proposal,
    person: str,
    keys: SigningKeys,
    *,
    field: str = "",
    reason: str = "",
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """The signed statement that ``person`` takes the proposed class, or ``field`` instead for a stated ``reason``.

    Raises ``UsageError`` for an unknown field, another field without a reason, an empty person, or keys that are not
    one SM2 and one P-384 key.
    """
    person, reason = person_name(person), reason.strip()
    chosen = field or proposal.field
    if chosen not in FIELDS:
        raise UsageError(f"--field {field!r} is not one of {', '.join(FIELDS)}; choose one")
    if chosen != proposal.field and not reason:
        raise UsageError(f"--field {chosen} is not the proposed {proposal.field}; say why with --reason")
    check_keys(keys)
    created, source = created_now(os.environ if environment is None else environment)
    predicate: dict[str, Json] = {
        "proposal": proposal.to_json(),
        "field": chosen,
        "reason": reason,
        "person": person,
        "created": created,
        "created_source": source,
    }
    payload = encode_statement(_subjects(proposal), CLASSIFICATION_TYPE, predicate)
    return sign(payload, keys).encode()


def check_statement(data: bytes, proposal: Proposal, root: TrustRoot) -> tuple[Choice, list[str]]:
    """``(choice, remarks)`` of a statement about exactly these builds.

    Its proposal must be the one the builds give now, unless something is not told here: whoever signed may have had
    artefacts that this machine lacks, which is a remark. Raises ``VerificationFailed`` (``classification``,
    ``unknown-key`` or a check of certificates) or ``MalformedError``.
    """
    word = read_word(data, CLASSIFICATION_TYPE, root)
    item = expect_object(word.predicate, "predicate", _KEYS)
    choice = Choice(
        text(item["field"], "predicate.field"),
        item["reason"] if isinstance(item["reason"], str) else "",
        *(text(item[key], f"predicate.{key}") for key in ("person", "created", "created_source")),
    )
    if word.subjects != {subject.name: subject for subject in _subjects(proposal)}:
        raise VerificationFailed("classification", "it is about other files than these two builds")
    remarks = [_same_proposal(expect_map(item["proposal"], "predicate.proposal"), choice, proposal)]
    return choice, [*remarks, word.owner(choice.person, root)]


def _same_proposal(stated: Mapping[str, Json], choice: Choice, proposal: Proposal) -> str:
    if stated.get("field") not in FIELDS or choice.field not in FIELDS:
        raise MalformedError("it names a field that does not exist")
    if choice.field != stated["field"] and not choice.reason:
        raise MalformedError("its field is not the proposed one, and no reason is stated")
    if stated == proposal.to_json():
        return "its proposal is the one these builds give here"
    if all(item.told for item in proposal.differences):
        raise VerificationFailed("classification", "its proposal is not the one these builds give")
    return f"it proposed {stated['field']}; from the files here, which do not tell everything, it is {proposal.field}"


def statement_name(proposal: Proposal, keys: SigningKeys) -> str:
    """File name of the statement beside the newer engine."""
    return f"{proposal.b.files.stem}.classification-{keys.key_ids[0][:8]}.json"


def _subjects(proposal: Proposal) -> list[Subject]:
    return [*_side("a", proposal.a), *_side("b", proposal.b)]


def _side(label: str, build: Build) -> list[Subject]:
    paths: list[Path] = [build.engine, build.engine.with_name(build.files.proof_name)]
    return [subject_of(f"{label}/{path.name}", digest_file(path)) for path in paths]
