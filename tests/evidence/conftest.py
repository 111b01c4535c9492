from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compiler_kernels.stage import Artifact, StageResult, sha3_512_hex
from evidence.build_proof import build_proof
from evidence.keys import KeySet, init_keys

ENGINE = Artifact("inference-engine.bin", b"\x7fELF" + bytes(range(256)) * 40)
SOURCES = {"model.onnx": sha3_512_hex(b"onnx"), "policy.yaml": sha3_512_hex(b"yaml")}
PASSED = {"verdict": "passed", "grade": "executed natively"}


def stage_results(engine: Artifact = ENGINE, outcome: dict[str, str] = PASSED) -> list[StageResult]:
    """A small but complete chain, with facts of every JSON kind."""
    model = Artifact("model.onnx", b"onnx")
    source = StageResult(
        "source_model", "1", SOURCES, {"pins": {"image": [1, 1, 28, 28]}}, (model, Artifact("policy.json", b"{}"))
    )
    frozen = StageResult(
        "frozen_graph",
        "1",
        {"model": model.sha3_512},
        {"winograd": False},
        (Artifact("frozen_graph.txt", b"graph", "text/plain"), Artifact("weights.bin", b"\0" * 64)),
        {"rms_error": 1.25e-7, "macs": 2**60, "note": "胸部", "nothing": None},
    )
    code = StageResult(
        "generated_source",
        "1",
        {"frozen_graph": frozen.principal.sha3_512},
        {"target": "x86_64-linux-musl"},
        (Artifact("engine.c", b"int main(void);"),),
        {"config_digest": "ab" * 64},
    )
    binary = StageResult(
        "engine", "2", {"source": code.principal.sha3_512}, {"target": "x86_64-linux-musl", "flags": ["-O2"]}, (engine,)
    )
    report = StageResult(
        "equivalence",
        "1",
        {"engine": engine.sha3_512, "frozen_graph": frozen.principal.sha3_512},
        {},
        (Artifact("equivalence.json", b"{}"),),
        dict(outcome),
    )
    return [source, frozen, code, binary, report]


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
