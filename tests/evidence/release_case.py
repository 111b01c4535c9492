"""A small release with everything in it, and the people and keys behind it, for the tests of releases."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from evidence_samples import SOURCES, stage_results
from release_people import Organisation

from compiler_kernels.policy import load_policy
from compiler_kernels.stage import Artifact, StageResult, sha3_512_hex
from evidence.approve import approve
from evidence.build_proof import build_proof
from evidence.release import release
from evidence.signing_keys import SigningKeys
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
    folder: Path, keys: SigningKeys, policy: bytes, content: bytes = b"\x7fELF engine", version: str = "1"
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


@dataclass(frozen=True)
class Case:
    """A release with its people, and the trust root an auditor has."""

    folder: Path
    trust_root: Path
    built: Built
    org: Organisation
    keys: dict[str, SigningKeys]

    def at(self, folder: Path) -> Case:
        return replace(self, folder=folder)

    @property
    def other_certificates(self) -> dict[str, bytes]:
        """Certificates that are valid and that this release does not need."""
        return {"root": self.org.roots[0].certificate, "stranger": self.keys["Tess"].certificates[0]}


FULL = "equivalence, intoto, sbom, approvals, timestamp"
PEOPLE = {"Dora": "developer", "Tess": "tester", "Quentin": "quality"}


def approve_as(built: Built, person: str, keys: SigningKeys, role: str | None = None) -> Path:
    """Approve and lay the approval beside the engine."""
    made = approve(built.engine, role or PEOPLE[person], person, keys)
    path = built.engine.with_name(made.name)
    path.write_bytes(made.data)
    return path


def make_full(folder: Path) -> Case:
    """The whole way: build, SBOM, three approvals, timestamped release."""
    folder.mkdir(parents=True, exist_ok=True)
    org = Organisation(folder)
    keys = {"Berta": org.person("Berta", "builder"), "Device": org.person("Device", "device")}
    keys |= {person: org.person(person, role) for person, role in PEOPLE.items()}
    built = build_at(folder / "build", keys["Berta"], policy_text(FULL))
    add_sbom(built)
    for person in PEOPLE:
        approve_as(built, person, keys[person])
    trust_root = org.trust_root()
    output = folder / "release"
    release(
        built.engine,
        output,
        built.policy_json,
        keys["Berta"],
        policy_yaml=built.policy_yaml,
        trust_root=trust_root,
        home=folder,
        stamp=org.tsa.stamp,
    )
    return Case(output, trust_root, built, org, keys)


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
