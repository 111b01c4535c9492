"""The approvals of a release: each by its person's own keys, about these very files, by different people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evidence.verifier.approval import Approval, read_approval
from evidence.verifier.canonical import MalformedError, expect_list, expect_map
from evidence.verifier.dsse import PAYLOAD_TYPE, read_envelope
from evidence.verifier.errors import VerificationFailed
from evidence.verifier.release_statement import DEFAULT_ROLES, DEFAULT_THRESHOLD, ApprovalEntry, count
from evidence.verifier.signers import (
    LABELS,
    check_algorithms,
    check_persons,
    check_used,
    find_keys,
    judge,
    read_material,
    stated_time,
)
from evidence.verifier.x509 import DOCUMENT_SIGNING

if TYPE_CHECKING:
    from evidence.verifier.release_parts import Contents


@dataclass(frozen=True)
class Accepted:
    """An approval that holds, and the ids of the keys that signed it."""

    approval: Approval
    keys: frozenset[str]


def check_approvals(contents: Contents, policy: Mapping[str, Any]) -> tuple[list[Accepted], str]:
    """Every listed approval holds, and together they are what the policy asks for."""
    entries = contents.statement.approvals
    found = [_accept(contents, entry) for entry in entries]
    check_required(found, policy, "approvals" in contents.statement.demanded)
    listed = {entry.file for entry in entries}
    loose = sorted(name for name in contents.statement.subjects if ".approval-" in name and name not in listed)
    if loose:
        raise MalformedError(f"{loose[0]} is in the folder, but the release does not list it as an approval")
    if not found:
        return found, "the release has no approval, and its policy asks for none"
    said = ", ".join(f"{item.approval.role} {item.approval.person}" for item in found)
    return found, f"approved by {said}, each with keys of that person"


def check_required(found: list[Accepted], policy: Mapping[str, Any], demanded: bool) -> None:
    """That the roles and the number of people of the policy are met; ``MalformedError`` names what is missing."""
    section = policy.get("approvals")
    if section is None and not demanded:
        return
    section = expect_map(section or {}, "approvals")
    roles = expect_list(section.get("roles", list(DEFAULT_ROLES)), "approvals.roles")
    threshold = count(section.get("threshold", DEFAULT_THRESHOLD), "approvals.threshold")
    present = {item.approval.role for item in found}
    missing = [str(role) for role in roles if role not in present]
    if missing:
        raise MalformedError(f"the approval of {', '.join(missing)} is missing")
    people = {item.approval.person for item in found}
    if len(people) < threshold:
        raise MalformedError(f"{len(people)} people approved, the policy asks for {threshold}")


def check_separation(found: list[Accepted]) -> tuple[bool, str]:
    """That no tester is a developer, by person and by key; nor one key in two people's hands."""
    developers = [item for item in found if item.approval.role == "developer"]
    testers = [item for item in found if item.approval.role == "tester"]
    for tester in testers:
        for developer in developers:
            if tester.approval.person == developer.approval.person:
                raise MalformedError(f"{tester.approval.person} approves as developer and as tester; they must differ")
            if tester.keys & developer.keys:
                raise MalformedError("developer and tester signed with one key; they must differ")
    if not (developers and testers):
        return True, "there are not both a developer and a tester to be kept apart"
    return True, "tester and developer are different people with different keys"


def _accept(contents: Contents, entry: ApprovalEntry) -> Accepted:
    try:
        return read_accepted(contents, entry)
    except VerificationFailed as error:
        # Under its own name, and as a failed approval too.
        if error.check in contents.findings.names and error.check != "approvals":
            contents.findings.fail(error.check, f"{entry.file}: {error}")
        raise VerificationFailed("approvals", f"{entry.file}: {error}") from None
    except MalformedError as error:
        raise MalformedError(f"{entry.file}: {error}") from None


def read_accepted(contents: Contents, entry: ApprovalEntry) -> Accepted:
    """The approval of ``entry`` after all checks of it; ``MalformedError`` or ``VerificationFailed`` otherwise."""
    data = contents.read(entry.file)
    envelope = read_envelope(data)
    if envelope.encode() != data:
        raise MalformedError("it is not byte for byte its own encoding")
    if envelope.payload_type != PAYLOAD_TYPE:
        raise VerificationFailed("payload-type", f"the payload type is {envelope.payload_type!r}, not {PAYLOAD_TYPE!r}")
    material = read_material(envelope.verification_material)
    keys = find_keys(envelope, contents.root, material.certificates)
    check_algorithms(keys)
    for key in keys:
        if not key.holds(envelope.signed_bytes):
            raise MalformedError(f"its {LABELS[key.algorithm]} signature does not hold for its payload")
    approval = read_approval(envelope.payload)
    if (approval.role, approval.person, keys[0].key_id) != (entry.role, entry.person, entry.key_id):
        raise MalformedError("role, person or key are not those the release states")
    if stated_time(approval.created) > contents.moment.at:
        raise VerificationFailed(
            "clock-before-issue", f"the approval states {approval.created}, after the release that lists it"
        )
    if material.timestamps:
        raise MalformedError("a timestamp beside an approval is not supported; stamp the release")
    used = judge(keys, contents.root, material, contents.moment, DOCUMENT_SIGNING)
    check_used(material, used)
    check_persons(keys, contents.root, contents.moment, approval.person, approval.role)
    _check_subjects(contents, approval)
    return Accepted(approval, frozenset(item.key_id for item in keys))


def _check_subjects(contents: Contents, approval: Approval) -> None:
    release = contents.statement
    wanted = approved_files(
        release.engine, release.proof.file, {name: part.file for name, part in release.parts.items()}
    )
    for name in wanted:
        if name not in approval.subjects:
            raise MalformedError(f"it does not approve {name}")
    for name, subject in approval.subjects.items():
        if release.subjects.get(name) != subject:
            raise MalformedError(f"it approves another {name} than the one of this release")


def approved_files(engine: str, proof: str, parts: Mapping[str, str]) -> list[str]:
    """What an approval must be about: engine, proof and every report but those made at the release itself."""
    return sorted({engine, proof, *(file for name, file in parts.items() if name != "intoto")})
