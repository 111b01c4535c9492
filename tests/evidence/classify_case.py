"""Small signed builds for the tests of the change classification, with every artefact that the rules look at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler_kernels.policy import load_policy
from compiler_kernels.stage import Artifact, StageResult, sha3_512_hex
from evidence.build_proof import build_proof
from evidence.classify.build import Build, read_build
from evidence.classify.compare import Proposal, propose
from evidence.keys import KeySet

POLICY = """version: 1
model: {name: cxr, version: "1.2.3.4", purpose: demonstration}
inputs: {image: {finite: true, range: [0, 1]}}
thresholds: {cut: {value: 0.5, source: study}}
decisions: {positive: {when: "max(prob) > cut", description: words}}
"""


def graph(**changes: Any) -> dict[str, Any]:
    """A convolution and a relu in neutral form."""
    weight = {"id": "w0", "shape": [2, 1, 3, 3], "dtype": "float32", "offset": 0, "sha3_512": "aa"}
    conv = {"op": "conv", "inputs": ["image", "w0", ""], "output": "v0", "shape": [1, 2, 4, 4], "dtype": "float32",
            "attrs": {"group": 1}, "node": "/conv", "tensor": "t0"}  # fmt: skip
    relu = {"op": "relu", "inputs": ["v0"], "output": "v1", "shape": [1, 2, 4, 4], "dtype": "float32", "attrs": {},
            "node": "/relu", "tensor": "t1"}  # fmt: skip
    whole = {
        "format": "cuvil-graph/1",
        "name": "g",
        "inputs": [{"id": "image", "name": "image", "shape": [1, 1, 4, 4], "dtype": "float32"}],
        "weights": [weight],
        "nodes": [conv, relu],
        "outputs": [{"id": "v1", "name": "prob"}],
    }
    return {**whole, **changes}


def build_report(**changes: Any) -> dict[str, Any]:
    report = {
        "compiler": {"name": "zig", "version": "0.17.1"},
        "commands": [["cc", "-O2"]],
        "environment": {},
        "files": {"engine.c": "1", "cuvil_main.c": "2"},
        "linked": [{"name": "a.o", "origin": "musl"}],
    }
    return {**report, **changes}


@dataclass
class Made:
    """A build on disk, and its artefacts by digest, which a store would hold."""

    engine: Path
    store: dict[str, bytes] = field(default_factory=dict)


def make_build(
    folder: Path,
    keys: KeySet,
    *,
    model: Mapping[str, Any] | None = None,
    model_file: bytes = b"onnx",
    policy: str = POLICY,
    target: str = "x86_64-linux-musl",
    arithmetic: str = "CA-1",
    frozen: bytes = b"frozen",
    code: str = "1",
    report: Mapping[str, Any] | None = None,
    errors: Mapping[str, Any] | None = None,
    content: bytes = b"\x7fELF",
    filename: str = "m.onnx",
    inputs: int = 2,
    verdict: str = "passed",
) -> Made:
    """Write engine and proof; each argument is one thing that can differ."""
    canonical = load_policy(policy.encode(), "p.yaml").canonical_json()
    l0 = model if model is not None else graph()
    weights = json.dumps([w["sha3_512"] for w in l0["weights"]]).encode()
    kinds = sorted({n["op"] for n in l0["nodes"]})
    counts = {"kinds": kinds, "operations": len(l0["nodes"]), "weights": len(l0["weights"])}
    sources = {"model.onnx": sha3_512_hex(model_file), "policy.yaml": sha3_512_hex(policy.encode())}
    source = StageResult(
        "source_model", code, sources, {"model_filename": filename},
        (Artifact("model.onnx", model_file), Artifact("policy.json", canonical)), {"pins": {}},
    )  # fmt: skip
    l0_text = json.dumps(l0).encode()
    imported = StageResult(
        "ir_l0", code, {"model": source.principal.sha3_512}, {},
        (Artifact("ir_l0.json", l0_text), Artifact("weights.bin", weights)), counts,
    )  # fmt: skip
    graph_text = frozen + l0_text
    chosen = StageResult(
        "frozen_graph", code, {"l0": imported.principal.sha3_512}, {},
        (Artifact("frozen_graph.txt", b"text" + graph_text), Artifact("frozen_graph.json", graph_text)),
        {"arithmetic": arithmetic},
    )  # fmt: skip
    text = Artifact("engine.c", b"// " + graph_text + canonical + code.encode())
    code_made = StageResult(
        "generated_source", code, {"frozen": chosen.principal.sha3_512}, {"target": target}, (text,),
        {"config_digest": sha3_512_hex(canonical)},
    )  # fmt: skip
    told = json.dumps(report or build_report())
    engine = Artifact("inference-engine.bin", content + text.data + target.encode() + told.encode())
    engine_report = Artifact("build.json", json.dumps({**json.loads(told), "sha3_512": engine.sha3_512}).encode())
    binary = StageResult("engine", code, {"c": text.sha3_512}, {"target": target}, (engine, engine_report))
    measured = {"rms_ratio_geometric_mean": "0.77"} if errors is None else dict(errors)
    compared = StageResult(
        "equivalence", "1", {"engine": engine.sha3_512}, {"equivalence_inputs": inputs},
        (Artifact("equivalence.json", b"{}"),),
        {"verdict": verdict, "grade": "executed natively", "errors": measured, "errors_limit": "1.1",
         "errors_beyond_limit": {}},
    )  # fmt: skip
    stages = [source, imported, chosen, code_made, binary, compared]
    version = json.loads(canonical)["model"]["version"]
    proof = build_proof(
        stages, keys.signers, engine_name=engine.name, model_version=f"cxr-{version}", target=target, environment={}
    )
    folder.mkdir(parents=True)
    (folder / engine.name).write_bytes(engine.data)
    (folder / "inference-engine.proof.json").write_bytes(proof.principal.data)
    store = {a.sha3_512: a.data for stage in stages for a in stage.artifacts}
    return Made(folder / engine.name, store)


def read(made: Made, trust_root: Path, *, store: bool = True) -> Build:
    return read_build(made.engine, trust_root, made.store.get if store else lambda digest: None)


def classify(a: Made, b: Made, trust_root: Path, *, store: bool = True) -> Proposal:
    return propose(read(a, trust_root, store=store), read(b, trust_root, store=store))


def rules_of(proposal: Proposal) -> list[str]:
    return [item.rule.id for item in proposal.differences]
