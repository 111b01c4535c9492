"""Makes an approval: one person's signed word that an engine, its proof and its reports may be released."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence.delivered import Delivered
from evidence.signing_keys import SigningKeys, created_now, sign
from evidence.verifier.approval import Approval
from evidence.verifier.approvals import approved_files
from evidence.verifier.digests import digest_file
from evidence.verifier.errors import UsageError
from evidence.verifier.release_statement import ROLES
from evidence.verifier.signing import REQUIRED_ALGORITHMS
from evidence.verifier.subjects import subject_of

STATEMENTS = {
    "developer": "I developed this engine or its model and hand over these files as complete.",
    "tester": "I tested these files and did not develop them.",
    "quality": "I reviewed the evidence and approve the release of these files.",
}


@dataclass(frozen=True)
class Approved:
    """The approval's file name beside the engine, its bytes, and the names of what it covers."""

    name: str
    data: bytes
    files: tuple[str, ...]


def approve(
    engine: Path,
    role: str,
    person: str,
    keys: SigningKeys,
    *,
    statement: str = "",
    environment: Mapping[str, str] | None = None,
) -> Approved:
    """Sign for ``engine``, its proof and the reports that lie beside it now; later reports need a new approval.

    Raises ``UsageError`` for an unknown role, an empty person, keys that are not one SM2 and one P-384 key, or a file
    that is missing.
    """
    if role not in ROLES:
        raise UsageError(f"--role {role!r} is not one of {', '.join(ROLES)}; choose one")
    person = person.strip()
    if not person or not person.isprintable():
        raise UsageError("--person is empty or not printable; give the name the keyring has for this key")
    if tuple(item.algorithm for item in keys.signers) != REQUIRED_ALGORITHMS:
        raise UsageError("an approval needs the person's SM2 and P-384 keys; give a key folder with both")
    files = Delivered(engine)
    names = approved_files(engine.name, files.proof_name, files.report_names())
    subjects = {name: subject_of(name, digest_file(engine.with_name(name))) for name in names}
    created, source = created_now(os.environ if environment is None else environment)
    approval = Approval(subjects, role, person, statement or STATEMENTS[role], created, source)
    name = f"{files.stem}.approval-{role}-{keys.key_ids[0][:8]}.json"
    return Approved(name, sign(approval.encode(), keys).encode(), tuple(names))
