"""The release: a folder whose every file is named in one signed statement over the build proof.

The folder appears complete or not at all, and only after it has been verified as an auditor would: with the same code
and a trust root. The build proof is copied byte for byte; nothing rewrites it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compiler_kernels.policy import policy_from_json
from evidence.bundle import VERIFIER_NAME, verifier_zipapp
from evidence.clauses.check import check_clauses
from evidence.delivered import Delivered
from evidence.intoto import intoto_lines
from evidence.log import Log
from evidence.release_gate import check_demands, demanded_rebuilds, listed_approvals
from evidence.signing_keys import SigningKeys, Stamper, created_now, material_of, sign
from evidence.verifier.canonical import Json, MalformedError, expect_map, signable, strict_json
from evidence.verifier.chain import read_chain
from evidence.verifier.digests import digest_bytes, digest_file
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.files import write_new
from evidence.verifier.log import BUILD, RELEASE, encode_entry
from evidence.verifier.release import verify_release
from evidence.verifier.release_statement import RELEASE_SUFFIX, LogEntry, Part, ReleaseStatement
from evidence.verifier.report import OK, Checks, VerifyReport
from evidence.verifier.signers import Moment, stated_time
from evidence.verifier.signing import REQUIRED_ALGORITHMS, key_id
from evidence.verifier.statement import Statement, read_statement
from evidence.verifier.subjects import Subject, subject_of
from evidence.verifier.trust import TrustedKey, default_home, default_trust_root, load_trust_root
from evidence.verifier.verify import check_build_proof

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Released:
    """The folder that was written and the report of its verification."""

    folder: Path
    files: tuple[str, ...]
    report: VerifyReport


@dataclass
class _Draft:
    """Files of the release by name, and the statement's fields as they become known."""

    files: dict[str, bytes]
    parts: dict[str, Part] = field(default_factory=dict)

    def add(self, name: str, data: bytes) -> Subject:
        self.files[name] = data
        return subject_of(name, digest_bytes(data))


def release(
    engine: Path,
    output: Path,
    policy_json: bytes,
    keys: SigningKeys,
    *,
    policy_yaml: bytes | None = None,
    trust_root: Path | None = None,
    home: Path | None = None,
    stamp: Stamper | None = None,
    extra: Mapping[str, bytes] | None = None,
    environment: Mapping[str, str] | None = None,
    progress: Progress = lambda step: None,
) -> Released:
    """Write the release of ``engine`` to the new folder ``output``.

    ``policy_json``: the canonical policy of the build (its digest is in the proof). ``stamp``: gives an RFC 3161 token
    for an imprint. ``extra``: further files by relative name. ``home`` holds the log.
    Raises ``RefusedError`` for a part or approval the policy demands and that is missing, ``VerificationFailed`` when
    the build proof or the finished release does not hold, ``UsageError`` for a file that is missing or an output that
    exists.
    """
    if output.exists() or output.is_symlink():
        raise UsageError(f"{output}: exists; a release is never rewritten, choose another --output")
    if tuple(item.algorithm for item in keys.signers) != REQUIRED_ALGORITHMS:
        raise UsageError("a release needs an SM2 and a P-384 key; give a key folder with both")
    delivered = Delivered(engine)
    progress("build proof")
    proof = delivered.proof()
    build = _build(delivered, proof, keys, trust_root)
    policy = _policy(policy_json, build)
    draft = _Draft({})
    subject = draft.add(engine.name, delivered.read(engine.name))
    draft.add(delivered.proof_name, proof)
    progress("reports and approvals")
    for part, name in delivered.report_names().items():
        found = draft.add(name, delivered.read(name))
        # What was compared is in the signed build proof; other reports speak for themselves.
        said = build.equivalence.verdict if part == "equivalence" else delivered.verdict(part, name)
        draft.parts[part] = Part(name, found.sha3_512, said)
    for name in delivered.attached_names():
        draft.add(name, delivered.read(name))
    approvals = listed_approvals(delivered)
    for item in approvals:
        draft.add(item.entry.file, delivered.read(item.entry.file))
    demanded = check_demands(policy, draft.parts, approvals, stamp is not None)
    created, source = created_now(os.environ if environment is None else environment)
    rebuilds = demanded_rebuilds(
        delivered,
        policy,
        load_trust_root(trust_root or default_trust_root()),
        Moment(stated_time(created), False),
        subject_of(delivered.proof_name, digest_bytes(proof)),
        [*keys.key_ids, *(item.key_id for item in read_envelope(proof).signatures)],
    )
    for name, data in rebuilds.items():
        draft.add(name, data)
    progress("in-toto statements")
    sbom = draft.files.get(draft.parts["sbom"].file) if "sbom" in draft.parts else None
    lines = intoto_lines(subject, build, read_chain(build.chain, build.head), draft.parts, sbom, keys.signers)
    found = draft.add(f"{delivered.stem}.intoto.jsonl", lines)
    draft.parts["intoto"] = Part(found.name, found.sha3_512, "signed")
    progress("log")
    log = Log(home or default_home())
    entry = _append(log, build, subject, draft, delivered, keys)
    policy_part = draft.add(f"{delivered.stem}.policy.json", policy_json)
    if policy_yaml is not None:
        draft.add(f"{delivered.stem}.policy.yaml", policy_yaml)
    draft.add("verify.sh", Path(__file__).with_name("data").joinpath("verify.sh").read_bytes())
    draft.add(VERIFIER_NAME, verifier_zipapp())
    for name, data in {**delivered.licences(), **(extra or {})}.items():
        draft.add(name, data)
    progress("signatures" + (" and timestamp" if stamp else ""))
    statement = ReleaseStatement(
        subjects={name: subject_of(name, digest_bytes(data)) for name, data in draft.files.items()},
        model=str(policy["model"]["name"]),
        model_version=build.model_version,
        triple={
            "model_version": build.model_version,
            "compile_config": {"sha3_512": build.compile_config, "source": build.compile_config_source},
            "hardware_fingerprint": build.hardware_fingerprint,
        },
        engine=engine.name,
        proof=Part(delivered.proof_name, digest_bytes(proof).sha3_512, build.head),
        parts=draft.parts,
        approvals=tuple(item.entry for item in approvals),
        demanded=tuple(demanded),
        policy=Part(policy_part.name, policy_part.sha3_512, ""),
        clauses=None,
        log=entry,
        stamped=stamp is not None,
        material=material_of(keys).digest,
        created=created,
        created_source=source,
    )
    statement = replace(statement, clauses=_clauses(engine, policy_json, statement))
    signed = sign(statement.encode(), keys, stamp).encode()
    name = delivered.stem + RELEASE_SUFFIX
    progress("verification")
    report = _deliver(output, {**draft.files, name: signed}, trust_root)
    log.append(
        encode_entry(
            RELEASE,
            build.model_version,
            (engine.name, subject.sha3_512),
            (name, digest_bytes(signed).sha3_512),
        ),
        keys.signers,
    )
    return Released(output, (*sorted(draft.files), name), report)


def _build(delivered: Delivered, proof: bytes, keys: SigningKeys, trust_root: Path | None) -> Statement:
    """The build's statement, once its proof holds. Keys of the release count; their certificates are judged later."""
    root = load_trust_root(trust_root or default_trust_root())
    known = {item.key_id for item in root.keys}
    own = tuple(TrustedKey(item.algorithm, item.spki) for item in keys.signers if key_id(item.spki) not in known)
    checks = Checks()
    digests = digest_file(delivered.engine)
    check_build_proof(checks, delivered.engine.name, digests, proof, replace(root, keys=root.keys + own))
    for item in checks.items:
        if item.status != OK:
            raise VerificationFailed("build-proof", f"{delivered.proof_name}: {item.name}: {item.sentence}")
    return read_statement(read_envelope(proof).payload)


def _policy(data: bytes, build: Statement) -> dict[str, Any]:
    if digest_bytes(data).sha3_512 != build.policy:
        raise UsageError("the policy given is not the one the engine was built with; give that one, or build again")
    try:
        return expect_map(strict_json(data), "the policy")
    except MalformedError as error:
        raise UsageError(f"the policy {error}; build again") from None


def _clauses(engine: Path, policy_json: bytes, statement: ReleaseStatement) -> dict[str, Json]:
    """Which clauses the release answers; ``RefusedError`` for one that the policy requires and that is open."""
    policy = policy_from_json(policy_json)
    said = expect_map(strict_json(statement.encode()), "the statement")
    report = check_clauses(engine, policy, {"release": {key: said[key] for key in ("subject", "predicate")}})
    report.require(policy)
    return expect_map(signable(report.to_json()), "clauses")


def _append(
    log: Log, build: Statement, subject: Subject, draft: _Draft, delivered: Delivered, keys: SigningKeys
) -> LogEntry:
    """Put the build into the log and its inclusion proof into the release."""
    digest = digest_bytes(draft.files[delivered.proof_name]).sha3_512
    leaf = encode_entry(BUILD, build.model_version, (subject.name, subject.sha3_512), (delivered.proof_name, digest))
    place = log.append(leaf, keys.signers)
    head = place.checkpoint
    file = draft.add(f"{delivered.stem}.log.json", place.proof)
    return LogEntry(head.origin, head.size, place.index, head.root.hex(), file.name)


def _deliver(output: Path, files: Mapping[str, bytes], trust_root: Path | None) -> VerifyReport:
    """Write the folder beside its place, verify it there, and move it in one step."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".tmp", dir=output.parent))
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror}); choose another --output") from None
    try:
        for name, data in files.items():
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_new(path, data, 0o755 if name.endswith((".bin", ".sh", ".pyz")) else 0o644)
        draft.chmod(0o755)
        report = verify_release(draft, trust_root)
        report.raise_if_failed()
        if output.exists():
            raise UsageError(f"{output}: appeared meanwhile; choose another --output")
        draft.rename(output)
    except OSError as error:
        raise UsageError(f"{output}: cannot be written ({error.strerror}); choose another --output") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return report
