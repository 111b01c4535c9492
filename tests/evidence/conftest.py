from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from evidence_samples import ENGINE, stage_results
from release_case import Case, make_full

from compiler_kernels.stage import StageResult
from evidence.build_proof import build_proof
from evidence.keys import KeySet, init_keys


@dataclass(frozen=True)
class Delivery:
    """What an auditor holds: the engine and its proof in one folder, and separately a trust root."""

    engine: Path
    proof: Path
    trust_root: Path
    keys: KeySet


@pytest.fixture(scope="session")
def key_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuvil-home")


@pytest.fixture(scope="session")
def keys(key_home: Path) -> KeySet:
    return init_keys(key_home)


@pytest.fixture(scope="session")
def full_release(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A release with certificates, timestamp and approvals; tests change copies of it only."""
    return make_full(tmp_path_factory.mktemp("full-release"))


@pytest.fixture
def proof_of(keys: KeySet) -> Callable[..., bytes]:
    def make(results: Sequence[StageResult] | None = None, **changes: Any) -> bytes:
        arguments: dict[str, Any] = {
            "engine_name": "inference-engine.bin",
            "model_version": "cxr-1.0.0",
            "target": "x86_64-linux-musl",
            "environment": {},
        }
        signers = changes.pop("signers", keys.signers)
        stages = stage_results() if results is None else results
        return build_proof(stages, signers, **(arguments | changes)).principal.data

    return make


@pytest.fixture
def good_proof(proof_of: Callable[..., bytes]) -> bytes:
    return proof_of()


@pytest.fixture
def delivery(tmp_path: Path, keys: KeySet, key_home: Path, good_proof: bytes) -> Delivery:
    engine, proof = tmp_path / "inference-engine.bin", tmp_path / "inference-engine.proof.json"
    engine.write_bytes(ENGINE.data)
    proof.write_bytes(good_proof)
    return Delivery(engine, proof, key_home / "keys" / "trust-root.json", keys)
