"""The gate before a release: everything the policy demands is there, or a refusal that names what is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler_kernels.errors import RefusedError
from evidence.delivered import Delivered
from evidence.verifier.approval import read_approval
from evidence.verifier.approvals import Accepted, check_required, check_separation
from evidence.verifier.canonical import MalformedError
from evidence.verifier.digests import digest_bytes, digest_file
from evidence.verifier.dsse import read_envelope
from evidence.verifier.errors import UsageError, VerificationFailed
from evidence.verifier.rebuilds import accept, check_count, demanded_rebuilders
from evidence.verifier.release_statement import MUST_PASS, ApprovalEntry, Part
from evidence.verifier.signers import Moment
from evidence.verifier.subjects import Subject, subject_of
from evidence.verifier.trust import TrustRoot

_REMEDIES = {
    "equivalence": "build again where the target can be executed",
    "sbom": "run `cuvil sbom` first",
    "coverage": "put the report beside the engine, or take it out of the policy's release.demand",
    "reproducibility": "run `cuvil reproduce` first",
    "dataset": "run `cuvil dataset check --engine`",
    "decisions": "run `cuvil decisions` with the test set",
    "approvals": "run `cuvil approve` for each role",
    "timestamp": "state timestamp.url in the policy or give --timestamp-command",
    "intoto": "report this as a defect",
}


@dataclass(frozen=True)
class LaidOut:
    """An approval beside an engine: as a release lists it, what it says, and the ids of its keys."""

    entry: ApprovalEntry
    said: Accepted


def listed_approvals(delivered: Delivered) -> list[LaidOut]:
    """The approvals beside the engine, read but not yet judged; ``UsageError`` for one that is damaged."""
    found = []
    for name in delivered.approval_names():
        data = delivered.read(name)
        try:
            envelope = read_envelope(data)
            approval = read_approval(envelope.payload)
        except MalformedError as error:
            raise UsageError(f"{delivered.engine.with_name(name)}: {error}; remove it or approve again") from None
        ids = [item.key_id for item in envelope.signatures]
        entry = ApprovalEntry(approval.role, approval.person, ids[0], name, digest_bytes(data).sha3_512)
        found.append(LaidOut(entry, Accepted(approval, frozenset(ids))))
    return found


def demanded_rebuilds(
    delivered: Delivered,
    policy: Mapping[str, Any],
    root: TrustRoot,
    moment: Moment,
    proof: Subject,
    builders: Sequence[str],
) -> dict[str, bytes]:
    """The attestations of independent rebuilders by file name, where the policy demands any.

    Each is judged as the verifier of the finished release will. ``builders``: ids of the keys that built and release.
    ``RefusedError`` (exit code 3) when fewer hold than are demanded, with what is wrong with the others.
    """
    if not demanded_rebuilders(policy)[0]:
        return {}
    engine = subject_of(delivered.engine.name, digest_file(delivered.engine))
    files, found, faults = {}, [], []
    for name in delivered.rebuild_names():
        data = delivered.read(name)
        try:
            found.append(accept(data, root, moment, engine, proof, builders))
            files[name] = data
        except (MalformedError, VerificationFailed) as error:
            faults.append(f"{name}: {error}")
    try:
        check_count(found, policy)
    except MalformedError as error:
        said = "".join(f"; {fault}" for fault in faults)
        remedy = "have `cuvil rebuild` run elsewhere and put its file beside the engine"
        raise RefusedError(f"{error}{said}; {remedy}") from None
    return files


def check_demands(
    policy: Mapping[str, Any],
    parts: Mapping[str, Part],
    approvals: Sequence[LaidOut],
    stamped: bool,
) -> list[str]:
    """What the policy demands, once all of it is there; ``RefusedError`` (exit code 3) naming what is not.

    The approvals are counted here by what they say; the verification of the finished release judges their signatures.
    """
    demanded = list((policy.get("release") or {}).get("demand") or [])
    present = {name for name, part in parts.items() if name not in MUST_PASS or part.verdict == "passed"}
    present |= {"intoto"} | ({"approvals"} if approvals else set()) | ({"timestamp"} if stamped else set())
    missing = [name for name in demanded if name not in present]
    if missing:
        raise RefusedError(
            f"the policy demands {', '.join(missing)}, which is not there or has not passed; "
            + ", and ".join(_REMEDIES[name] for name in missing)
        )
    said = [item.said for item in approvals]
    try:
        check_required(said, policy, "approvals" in demanded)
        check_separation(said)
    except MalformedError as error:
        raise RefusedError(f"{error}; {_REMEDIES['approvals']}") from None
    for name, part in parts.items():
        if part.verdict == "failed":
            raise RefusedError(f"{part.file}: the verdict of {name} is failed; nothing is released")
    return demanded
