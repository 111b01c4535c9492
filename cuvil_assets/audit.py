"""What the commands write into the audit log of this home (docs/evidence.md).

A log that cannot be written does not stop a command: the event's absence is said in one sentence. A policy with
``audit.required`` turns that into a refusal, before anything is delivered. Fields hold digests and base names, never a
path or a message, because those may name people; who ran the command is personal data, kept so that it can be erased.
"""

from __future__ import annotations

import getpass
import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compiler_kernels.errors import CuvilError, RefusedError
from compiler_kernels.stage import Json
from evidence.verifier.errors import VerifierError

if TYPE_CHECKING:
    from cuvil_assets.records import Recorded
    from cuvil_assets.request import BuildRequest
    from evidence.keys import KeySet

Fields = Mapping[str, Json]


def record(home: Path, event: str, fields: Fields, *, required: bool = False, person: str = "") -> str:
    """Append one event with the person at this machine, and ``person`` where the command names one.

    Returns an empty text, or the sentence that says why nothing was recorded. Raises ``RefusedError`` instead when
    ``required``.
    """
    from evidence.audit import AuditLog

    login = login_name()
    personal: dict[str, Fields] = {login: {"login": login, "host": platform.node()}}
    if person:
        personal[person] = {**personal.get(person, {}), "person": person}
    try:
        AuditLog(home).append(event, fields, personal)
    except VerifierError as error:
        return unrecorded(event, error, required)
    return ""


def sign_head(home: Path, keys: KeySet) -> str:
    """Sign the log's head with the key set at hand; empty, or the sentence that says why not."""
    from evidence.audit import AuditLog

    try:
        AuditLog(home).checkpoint(keys.signers, keys.trust_root)
    except VerifierError as error:
        return f"the audit log's head is not signed: {error}"
    return ""


def unrecorded(event: str, error: VerifierError, required: bool) -> str:
    """The sentence about an event that the log did not take; ``RefusedError`` when it had to."""
    sentence = f"the audit log did not record this {event}: {error}"
    if required:
        raise RefusedError(f"audit.required in the policy, and {sentence}")
    return sentence


def digest_of(path: Path) -> str:
    """SHA3-512 (hex) of a file, for a folder of its release statement; empty when there is no such file."""
    statements = sorted(path.glob("*.release.json")) if path.is_dir() else [path]
    if len(statements) != 1:
        return ""
    try:
        with statements[0].open("rb") as stream:
            return hashlib.file_digest(stream, "sha3_512").hexdigest()
    except OSError:
        return ""


def login_name() -> str:
    """The account that runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown account"


def build_made(home: Path, request: BuildRequest, results: Mapping[str, Recorded], keys: KeySet) -> str:
    """Record a build that is about to be delivered, and the use of keys for its proof; then sign the head."""
    from compiler_kernels.policy import policy_from_json
    from cuvil_assets import chain
    from evidence.keys import key_id

    policy = policy_from_json(results["source_model"].result.artifact("policy.json").data)
    required = policy.audit is not None and policy.audit.required
    proof = results[chain.BUILD_PROOF]
    digest = proof.result.facts["payload_sha3_512"]
    said = ""
    if keys.created:
        said = record(home, "keys-init", keys_fields(keys), required=required)
    if not proof.cache_hit:
        use: dict[str, Json] = {
            "keys": [key_id(item.spki) for item in keys.signers],
            "purpose": "build proof",
            "payload_sha3_512": digest,
        }
        said = record(home, "key-use", use, required=required) or said
    fields: dict[str, Json] = {
        "outcome": "made",
        **request_fields(request),
        "engine_sha3_512": results["engine"].result.principal.sha3_512,
        "equivalence": results["equivalence"].result.facts["verdict"],
        "proof_payload_sha3_512": digest,
    }
    return record(home, "build", fields, required=required) or said or sign_head(home, keys)


def build_failed(home: Path, request: BuildRequest, error: CuvilError | VerifierError) -> None:
    """Record a build that was refused or failed; the command has an error to report, so a failure here is silent."""
    check: dict[str, Json] = {"check": str(getattr(error, "check", ""))}
    fields = {"outcome": "failed", **request_fields(request), "error": type(error).__name__, **check}
    record(home, "build", fields)


def request_fields(request: BuildRequest) -> dict[str, Json]:
    """What was asked for."""
    return {
        "build": request.build_id,
        "engine": request.engine_name,
        "model_version": request.model_version,
        "target": request.target,
        "sources": dict(request.sources),
    }


def keys_fields(keys: KeySet) -> dict[str, Json]:
    """A key set by its key ids."""
    return {"keys": [item.key_id for item in keys.trust_root.keys], "grade": keys.trust_root.grade}
