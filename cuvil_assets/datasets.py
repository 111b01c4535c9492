"""The asset ``dataset``: the splits a policy names, compared from the manifests and waivers this home keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from compiler_kernels.errors import RefusedError, UsageError
from compiler_kernels.policy import policy_from_json
from compiler_kernels.policy.dataset import Dataset
from compiler_kernels.stage import Artifact, Json, StageResult, sha3_512_hex
from cuvil_assets import chain
from cuvil_assets.execution import Build
from cuvil_assets.files import write_atomic
from cuvil_assets.home import Home
from cuvil_assets.store import Action
from evidence.dataset.compare import compare
from evidence.dataset.manifest import Manifest, read_manifest
from evidence.verifier.canonical import MalformedError, canonical_bytes
from evidence.verifier.dsse import read_envelope
from evidence.verifier.files import read_small
from evidence.verifier.statement import read_statement
from evidence.verifier.trust import load_trust_root
from evidence.verifier.waiver import FAILED, WAIVED, read_waiver, with_waiver

REPORT: Final = "dataset.json"
NOT_STATED: Final = "not stated"
"""Verdict where the policy names no data sets."""


def keep_manifest(home: Home, manifest: Manifest) -> Path:
    """Keep a manifest under its SHA-256; ``UsageError`` when the home cannot be written."""
    return _keep(home, f"{manifest.sha256}.json", manifest.encode())


def keep_waiver(home: Home, report: bytes, waiver: bytes) -> Path:
    """Keep the waiver of ``report`` under that report's SHA-256; ``UsageError`` when the home cannot be written."""
    return _keep(home, f"{hashlib.sha256(report).hexdigest()}.waiver.json", waiver)


def _keep(home: Home, name: str, data: bytes) -> Path:
    path = home.ensure(home.datasets) / name
    try:
        write_atomic(path, data, 0o600)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); set CUVIL_HOME to a writable directory"
        ) from None
    return path


def find_manifests(home: Home, section: Dataset) -> dict[str, Manifest]:
    """The manifests of all splits; ``RefusedError`` names the first that this home does not keep."""
    found = {}
    for name, split in sorted(section.splits.items()):
        path = home.datasets / f"{split.sha256}.json"
        if not path.is_file():
            raise RefusedError(
                f"the manifest {split.sha256[:16]}... of the split {name} is not in this home; run "
                "`cuvil dataset check` with the data, or with manifests of it (`cuvil dataset manifest`)"
            )
        manifest = read_manifest(path)
        if manifest.sha256 != split.sha256:
            raise RefusedError(f"{path}: is damaged; make it again with `cuvil dataset manifest`")
        found[str(name)] = manifest
    return found


def plan(build: Build) -> tuple[Action, Callable[[], StageResult]]:
    """The action of one build, and its work: compare the splits, and take a waiver of exactly what is found."""
    proof = build.records.consistent((chain.BUILD_PROOF,))[chain.BUILD_PROOF].result.principal
    statement = read_statement(read_envelope(proof.data).payload)
    policy = build.store.find(statement.policy)
    if policy is None:
        raise UsageError("the policy of this build is gone from the store; run `cuvil build` again")
    section = policy_from_json(policy).dataset
    manifests = find_manifests(build.home, section) if section is not None else {}
    inputs = {f"{chain.BUILD_PROOF}/{proof.name}": proof.sha3_512}
    inputs |= {f"manifest/{name}": sha3_512_hex(manifest.encode()) for name, manifest in manifests.items()}
    config: dict[str, Json] = {"waivers": _waivers(build.home)}
    version = chain.code_version(chain.DATASET)

    def work() -> StageResult:
        report, facts = _report(build.home, section, manifests)
        return StageResult(
            chain.DATASET, version, inputs, config, (Artifact(REPORT, report, "application/json"),), facts
        )

    return Action(chain.DATASET, version, inputs, config), work


def _report(home: Home, section: Dataset | None, manifests: Mapping[str, Manifest]) -> tuple[bytes, Mapping[str, Json]]:
    """Bytes of the report and its facts."""
    if section is None:
        return canonical_bytes({"verdict": NOT_STATED}), {"verdict": NOT_STATED}
    found = compare(manifests, refuse_duplicates=section.duplicates == "refuse")
    data = found.encode()
    facts: dict[str, Json] = {
        "verdict": found.verdict,
        "overlaps": len(found.overlaps),
        "duplicates": len(found.duplicates),
        **{f"items_{name}": len(manifest.items) for name, manifest in manifests.items()},
    }
    path = home.datasets / f"{hashlib.sha256(data).hexdigest()}.waiver.json"
    if found.verdict != FAILED or not path.is_file():
        return data, facts
    signed = read_small(path, "waiver", "sign it again with `cuvil waive`")
    try:
        waiver = read_waiver(signed, found.to_json(), load_trust_root(home.root / "keys" / "trust-root.json"))
    except MalformedError as error:
        raise UsageError(f"{path}: is no waiver ({error}); sign it again with `cuvil waive`") from None
    waived: dict[str, Json] = {"verdict": WAIVED, "waived_by": waiver.person, "reason": waiver.reason}
    return with_waiver(found.to_json(), signed), {**facts, **waived}


def _waivers(home: Home) -> str:
    """SHA3-512 over the waivers of this home, so that a new one is another action."""
    files = sorted(home.datasets.glob("*.waiver.json"))
    return sha3_512_hex(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files))
