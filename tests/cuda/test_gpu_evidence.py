"""The committed evidence of a device: signed, whole, and its verdict follows from its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import gpu_checks
from evidence.verifier.audit import check_signatures
from evidence.verifier.canonical import MalformedError
from evidence.verifier.dsse import read_envelope
from evidence.verifier.trust import load_trust_root

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def report():
    return json.loads((RESULTS / "gpu_evidence.json").read_bytes())


def test_the_evidence_is_signed_by_the_keys_beside_it():
    envelope = read_envelope((RESULTS / "gpu_evidence.dsse.json").read_bytes())
    assert envelope.payload == (RESULTS / "gpu_evidence.json").read_bytes()
    root = load_trust_root(RESULTS / "gpu_evidence.trust-root.json")
    check_signatures(envelope, root)
    with pytest.raises(MalformedError):
        check_signatures(type(envelope)(envelope.payload_type, envelope.payload + b" ", envelope.signatures), root)


def test_the_evidence_names_its_device_and_was_no_emulation(report):
    assert report["format"] == "cuvil-gpu-evidence/1" and report["emulated"] is False
    assert "H200" in report["machine"]["gpus"][0] and report["machine"]["date"].startswith("20")
    for name, row in report["nets"].items():
        if "device" in row:
            assert row["device"].startswith("NVIDIA"), name


def test_the_verdict_follows_from_the_rows(report):
    assert gpu_checks.verdict(report) == report["verdict"]
    assert report["verdict"]["equal"] and all(report["verdict"]["limits_met"].values())
    changed = json.loads(json.dumps(report))
    changed["nets"]["ecg"]["rows"]["32"]["differing"] = 1
    assert not gpu_checks.verdict(changed)["equal"]


def test_ptx_of_every_engine_held_only_what_the_gate_allows(report):
    for name, made in report["builds"].items():
        for instruction in made.get("ptx_instructions", {}):
            assert gpu_checks.gate_allows(instruction), f"{name}: {instruction}"
