"""A small release with everything in it, and the people and keys behind it, for the tests of releases."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from evidence_samples import SOURCES, stage_results

from compiler_kernels.policy import load_policy
from compiler_kernels.stage import Artifact, StageResult, sha3_512_hex
from evidence.build_proof import build_proof
from evidence.keys import KeySet
from evidence.verifier.release import verify_release
from evidence.verifier.report import VerifyReport

STEM = "inference-engine"
RELEASE = f"{STEM}.release.json"


def policy_text(demand: str = "equivalence, intoto", more: str = "") -> bytes:
    return f'version: 1\nmodel: {{name: cxr, version: "1.0.0"}}\nrelease: {{demand: [{demand}]}}\n{more}'.encode()


@dataclass(frozen=True)
class Built:
    """A build folder with engine, proof and report, and its policy."""

    engine: Path
    policy_yaml: bytes
    policy_json: bytes


def build_at(
    folder: Path, keys: KeySet, policy: bytes, content: bytes = b"\x7fELF engine", version: str = "1"
) -> Built:
    """Write a small complete build into ``folder``, signed by ``keys``; other ``content`` gives another chain."""
    folder.mkdir(parents=True)
    canonical = load_policy(policy, "policy.yaml").canonical_json()
    engine = Artifact(f"{STEM}.bin", content * 50)
    source, *rest = stage_results(engine)
    first = StageResult(
        source.stage,
        source.code_version,
        {**SOURCES, "policy.yaml": sha3_512_hex(policy)},
        source.config,
        (source.artifacts[0], Artifact("policy.json", canonical)),
        source.facts,
    )
    proof = build_proof(
        [first, *rest],
        keys.signers,
        engine_name=engine.name,
        model_version=f"cxr-{version}",
        target="x86_64-linux-musl",
        environment={},
    )
    (folder / engine.name).write_bytes(engine.data)
    (folder / f"{STEM}.proof.json").write_bytes(proof.principal.data)
    (folder / f"{STEM}.equivalence.json").write_bytes(b"{}")
    return Built(folder / engine.name, policy, canonical)


def add_sbom(built: Built) -> None:
    """A minimal CycloneDX document about the engine, as `cuvil sbom` would lay beside it."""
    digest = sha3_512_hex(built.engine.read_bytes())
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "firmware",
                "name": "cxr",
                "hashes": [{"alg": "SHA3-512", "content": digest}],
            }
        },
    }
    built.engine.with_name(f"{STEM}.cdx.json").write_text(json.dumps(document, indent=1))


def failed(report: VerifyReport) -> set[str]:
    return {item.name for item in report.failures}


def checked(folder: Path, trust_root: Path) -> VerifyReport:
    return verify_release(folder, trust_root)


@contextmanager
def changed(path: Path, data: bytes) -> Iterator[None]:
    """``path`` with other content, restored afterwards."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def copy_of(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target, symlinks=True)
    return target
