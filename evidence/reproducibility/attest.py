"""One rebuild on another machine, and the attestation a rebuilder signs over what came out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evidence.reproducibility.difference import Difference
from evidence.reproducibility.inputs import Recorded
from evidence.reproducibility.launch import Rebuilt
from evidence.signing_keys import SigningKeys, created_now, sign
from evidence.verifier.canonical import MalformedError
from evidence.verifier.digests import digest_bytes
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import UsageError
from evidence.verifier.files import read_small
from evidence.verifier.listing import Listing, list_release
from evidence.verifier.rebuilds import REBUILD_MARK, Rebuild
from evidence.verifier.signing import REQUIRED_ALGORITHMS
from evidence.verifier.statement import Statement, read_statement
from evidence.verifier.subjects import Subject, subject_of

PROOF_SUFFIX = ".proof.json"


@dataclass(frozen=True)
class ToRebuild:
    """A build as a rebuilder receives it: its statement, the proof and the engine as subjects, and the policy's text
    where
    it came along."""

    statement: Statement
    proof: Subject
    engine: Subject
    policy: bytes | None

    @property
    def stem(self) -> str:
        return self.proof.name.removesuffix(PROOF_SUFFIX)


def read_to_rebuild(path: Path) -> ToRebuild:
    """What lies at ``path``: a proof file, a release folder or a bundle (zip).

    An engine beside the proof must be the proof's. Signatures are what ``cuvil verify`` checks; an attestation names
    the proof by digest. ``UsageError`` when there is no readable proof.
    """
    if path.is_file() and path.name.endswith(PROOF_SUFFIX):
        return _read(path.name, read_small(path, "proof", "give the proof of a build"), str(path), None)
    listing = list_release(path)
    names = [name for name in listing.digests if name.endswith(PROOF_SUFFIX) and "/" not in name]
    if len(names) != 1:
        raise UsageError(f"{path}: holds {len(names)} files *{PROOF_SUFFIX}; give one proof, release folder or bundle")
    policy = names[0].removesuffix(PROOF_SUFFIX) + ".policy.yaml"
    try:
        text = listing.read(policy) if policy in listing.digests else None
        found = _read(names[0], listing.read(names[0]), f"{path}/{names[0]}", text)
    except MalformedError as error:
        raise UsageError(f"{path}: {error}; give the release as it was delivered") from None
    _check_engine(listing, found, path)
    return found


def _read(name: str, data: bytes, where: str, policy: bytes | None) -> ToRebuild:
    try:
        statement = read_statement(read_envelope(data).payload)
    except MalformedError as error:
        raise UsageError(f"{where}: {error}; give the proof of a build") from None
    engine = Subject(statement.subject, **statement.subject_digests)
    return ToRebuild(statement, subject_of(name, digest_bytes(data)), engine, policy)


def _check_engine(listing: Listing, found: ToRebuild, path: Path) -> None:
    beside = listing.digests.get(found.engine.name)
    if beside is None or not found.engine.matches(beside):
        raise UsageError(f"{path}: its {found.engine.name} is not the engine of its proof; run `cuvil verify` on it")


@dataclass(frozen=True)
class Attested:
    """The attestation's file name, its bytes and what it says."""

    name: str
    data: bytes
    rebuild: Rebuild


def attest(
    given: ToRebuild,
    recorded: Recorded,
    rebuilt: Rebuilt,
    difference: Difference | None,
    person: str,
    keys: SigningKeys,
    environment: Mapping[str, str] | None = None,
) -> Attested:
    """Sign what ``rebuilt`` gave. ``UsageError`` for an empty person or keys that are not one SM2 and one P-384 key."""
    person = person.strip()
    if not person or not person.isprintable():
        raise UsageError("--person is empty or not printable; give the name the keyring has for this key")
    if tuple(item.algorithm for item in keys.signers) != REQUIRED_ALGORITHMS:
        raise UsageError("an attestation needs the rebuilder's SM2 and P-384 keys; give a key folder with both")
    made = rebuilt.stages.get("engine")
    created, source = created_now(os.environ if environment is None else environment)
    rebuild = Rebuild(
        given.engine,
        given.proof,
        person,
        "failed" if difference is not None else "passed",
        None if made is None else str(made["artifacts"]["inference-engine.bin"]),
        None if difference is None else difference.sentence(),
        recorded.other_code,
        created,
        source,
    )
    name = f"{given.stem}{REBUILD_MARK}{keys.key_ids[0][:8]}.json"
    return Attested(name, sign(rebuild.encode(), keys).encode(), rebuild)
