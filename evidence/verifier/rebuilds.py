"""Attestations of independent rebuilders: each by its own keys, about this very engine and proof, and enough of them.

Statement v1 with predicate type ``https://cuvil.dev/rebuild/v1``; subjects are the engine and its build proof. A file
``STEM.rebuild-KEYID.json`` of a release is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evidence.verifier.canonical import MalformedError, expect_hex, expect_list, expect_map, expect_object, strict_json
from evidence.verifier.canonical import expect_text as text
from evidence.verifier.dsse import PAYLOAD_TYPE, read_envelope
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.release_statement import count
from evidence.verifier.signers import (
    LABELS,
    Moment,
    check_algorithms,
    check_persons,
    check_used,
    find_keys,
    judge,
    read_material,
    stated_time,
)
from evidence.verifier.subjects import Subject, encode_statement, read_subjects
from evidence.verifier.trust import TrustRoot
from evidence.verifier.x509 import DOCUMENT_SIGNING

if TYPE_CHECKING:
    from evidence.verifier.release_parts import Contents

REBUILD_TYPE = "https://cuvil.dev/rebuild/v1"
REBUILD_MARK = ".rebuild-"
ROLE = "rebuilder"
VERDICTS = ("passed", "failed")
_KEYS = ("person", "verdict", "rebuilt", "difference", "other_code", "created", "created_source")


@dataclass(frozen=True)
class Rebuild:
    """What a rebuilder attests.

    ``rebuilt``: SHA3-512 of the engine that came out, ``None`` when none did. ``difference``: the first difference in
    words, ``None`` for ``passed``. ``other_code``: stages whose code was not that of the proof.
    """

    engine: Subject
    proof: Subject
    person: str
    verdict: str
    rebuilt: str | None
    difference: str | None
    other_code: tuple[str, ...]
    created: str
    created_source: str

    def encode(self) -> bytes:
        """The payload: RFC 8785 bytes of the statement."""
        predicate = {key: getattr(self, key) for key in _KEYS}
        return encode_statement(
            [self.engine, self.proof], REBUILD_TYPE, {**predicate, "other_code": [*self.other_code]}
        )


@dataclass(frozen=True)
class Accepted:
    """An attestation that holds, and the ids of the keys that signed it."""

    rebuild: Rebuild
    keys: tuple[str, ...]


def read_rebuild(payload: bytes, engine: Subject, proof: Subject) -> Rebuild:
    """Read a payload about ``engine`` and ``proof`` strictly; ``MalformedError`` names the field."""
    subjects, _, found = read_subjects(payload, REBUILD_TYPE)
    item = expect_object(found, "predicate", _KEYS)
    if set(subjects) != {engine.name, proof.name}:
        raise MalformedError("it is not about exactly the engine and its proof")
    for subject in (engine, proof):
        if subjects[subject.name] != subject:
            raise MalformedError(f"it is about another {subject.name}")
    verdict = text(item["verdict"], "predicate.verdict")
    rebuilt, difference = (
        None if item[key] is None else text(item[key], f"predicate.{key}") for key in ("rebuilt", "difference")
    )
    if verdict not in VERDICTS:
        raise MalformedError(f"predicate.verdict {verdict!r} is not one of {', '.join(VERDICTS)}")
    if rebuilt is not None:
        expect_hex(rebuilt, "predicate.rebuilt", 128)
    if verdict == "passed" and (rebuilt != engine.sha3_512 or difference is not None):
        raise MalformedError("it says passed, but names another engine or a difference as what came out")
    other = [text(name, "predicate.other_code") for name in expect_list(item["other_code"], "predicate.other_code")]
    texts = {key: text(item[key], f"predicate.{key}") for key in ("person", "created", "created_source")}
    return Rebuild(
        engine, proof, verdict=verdict, rebuilt=rebuilt, difference=difference, other_code=tuple(other), **texts
    )


def accept(
    data: bytes, root: TrustRoot, moment: Moment, engine: Subject, proof: Subject, builders: Sequence[str]
) -> Accepted:
    """The attestation in the envelope ``data`` after all checks of it; ``MalformedError`` or ``VerificationFailed``.

    ``builders``: ids of the keys that signed build proof and release, whose owner is no independent rebuilder.
    """
    envelope = read_envelope(data)
    if envelope.encode() != data:
        raise MalformedError("it is not byte for byte its own encoding")
    if envelope.payload_type != PAYLOAD_TYPE:
        raise MalformedError(f"the payload type is {envelope.payload_type!r}, not {PAYLOAD_TYPE!r}")
    material = read_material(envelope.verification_material)
    keys = find_keys(envelope, root, material.certificates)
    check_algorithms(keys)
    for key in keys:
        if not key.holds(envelope.signed_bytes):
            raise MalformedError(f"its {LABELS[key.algorithm]} signature does not hold for its payload")
    found = read_rebuild(envelope.payload, engine, proof)
    _check_independent(found, [item.key_id for item in keys], root, builders)
    if stated_time(found.created) > moment.at:
        raise MalformedError(f"it states {found.created}, after the release")
    if material.timestamps:
        raise MalformedError("a timestamp beside a rebuild attestation is not supported; stamp the release")
    check_used(material, judge(keys, root, material, moment, DOCUMENT_SIGNING))
    check_persons(keys, root, moment, found.person, ROLE)
    return Accepted(found, tuple(item.key_id for item in keys))


def _check_independent(found: Rebuild, keys: Sequence[str], root: TrustRoot, builders: Sequence[str]) -> None:
    """That neither a key nor the person behind it built or released the engine."""
    entries = [] if root.keyring is None else [root.keyring.entry(item) for item in builders]
    owners = {item.person for item in entries if item is not None}
    if set(keys) & set(builders) or found.person in owners:
        raise MalformedError(f"{found.person} built or released this engine, so this is no independent rebuild")


def demanded_rebuilders(policy: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """``(how many, of whom)`` from the policy's ``reproducibility.rebuilders``; ``(0, ())`` without it."""
    section = expect_map(policy.get("reproducibility") or {}, "reproducibility").get("rebuilders")
    if section is None:
        return 0, ()
    item = expect_map(section, "reproducibility.rebuilders")
    named = expect_list(item.get("of", []), "reproducibility.rebuilders.of")
    return (
        count(item.get("required"), "reproducibility.rebuilders.required"),
        tuple(text(name, "reproducibility.rebuilders.of") for name in named),
    )


def check_count(found: Sequence[Accepted], policy: Mapping[str, Any]) -> None:
    """That as many different people with different keys attest as the policy demands; ``MalformedError`` otherwise."""
    required, named = demanded_rebuilders(policy)
    for item in found:
        if item.rebuild.verdict != "passed":
            raise MalformedError(f"{item.rebuild.person} could not rebuild this engine: {item.rebuild.difference}")
    counted = [item for item in found if not named or item.rebuild.person in named or set(item.keys) & set(named)]
    people = {item.rebuild.person for item in counted}
    keys = {item.keys for item in counted}
    if len({key for item in keys for key in item}) != sum(len(item) for item in keys):
        raise MalformedError("two rebuild attestations share a key; each rebuilder signs with their own")
    if min(len(people), len(keys)) < required:
        whom = f" of {', '.join(named)}" if named else ""
        raise MalformedError(
            f"{len(people)} independent rebuilders attest this engine, the policy asks for {required}{whom}"
        )


def check_rebuilds(contents: Contents, policy: Mapping[str, Any]) -> tuple[bool, str]:
    """Every attestation in the release holds, and together they are what the policy asks for."""
    statement = contents.statement
    found = []
    for name in sorted(name for name in statement.subjects if REBUILD_MARK in name):
        try:
            found.append(
                accept(
                    contents.read(name),
                    contents.root,
                    contents.moment,
                    statement.subjects[statement.engine],
                    statement.subjects[statement.proof.file],
                    builders(contents),
                )
            )
        except (MalformedError, VerificationFailed) as error:
            raise MalformedError(f"{name}: {error}") from None
    check_count(found, policy)
    _check_report(contents)
    if not found:
        return True, "the release has no rebuild attestation, and its policy asks for none"
    return True, f"rebuilt bit for bit by {', '.join(item.rebuild.person for item in found)}, with keys of their own"


def _check_report(contents: Contents) -> None:
    """That a reproducibility report is about the engine and the proof of this release."""
    statement = contents.statement
    part = statement.parts.get("reproducibility")
    if part is None:
        return
    document = expect_map(strict_json(contents.read(part.file)), part.file)
    for role, name in (("engine", statement.engine), ("proof", statement.proof.file)):
        if document.get(role) != statement.subjects[name].to_json():
            raise MalformedError(f"{part.file} is about another {role} than {name}")


def builders(contents: Contents) -> list[str]:
    """Ids of the keys that signed the build proof and the release."""
    proof = read_envelope(contents.read(contents.statement.proof.file))
    return [*(item.key_id for item in contents.keys), *(item.key_id for item in proof.signatures)]
