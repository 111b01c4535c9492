"""A small, complete build as stage results, for the tests of records, proofs and verification."""

from __future__ import annotations

from compiler_kernels.stage import Artifact, StageResult, sha3_512_hex

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
