"""``cuvil reproduce`` on a small engine: files, verdicts, exit codes, and equal bytes from equal seeds."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from rebuild_case import Delivered

from compiler_kernels.targets.registry import TARGETS
from compiler_kernels.toolchain.gcc import find_gcc
from cuvil_assets.cli import main
from evidence.reproducibility.inputs import COMPILE
from evidence.verifier.dsse import read_envelope
from evidence.verifier.public_keys import verifier_of
from evidence.verifier.subjects import read_subjects
from evidence.verifier.trust import load_trust_root

HAS_GCC = find_gcc(TARGETS["x86_64-linux-musl"]) is not None
QUICK = ("--fresh-caches", "0")


@pytest.fixture
def at_home(delivered: Delivered, monkeypatch: pytest.MonkeyPatch) -> Delivered:
    monkeypatch.setenv("CUVIL_HOME", str(delivered.home))
    return delivered


def beside(engine: Path, suffix: str) -> bytes:
    return engine.with_name(engine.stem + suffix).read_bytes()


@pytest.mark.skipif(not HAS_GCC, reason="the policy of this engine asks for gcc")
def test_report_log_and_signed_result(at_home: Delivered, capsys: pytest.CaptureFixture[str]) -> None:
    engine = at_home.engine
    assert main(["reproduce", str(engine), *QUICK, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    report = json.loads(beside(engine, ".reproducibility.json"))
    assert {key: printed[key] for key in report} == report
    assert (report["verdict"], report["rebuilds"], report["equal"]) == ("passed", 2, 2)
    assert report["engine_digests"] == {hashlib.sha3_512(engine.read_bytes()).hexdigest(): 2}
    assert report["second_compiler"]["verdict"] == "passed"
    assert report["second_compiler"]["engine_sha3_512"] not in report["engine_digests"]
    assert (report["second_compiler"]["inputs"], report["second_compiler"]["outputs"]) == (2, 2)
    assert report["artifacts_compared"] == 2 * sum(len(at_home.recorded.expected[stage]) for stage in COMPILE)
    text = beside(engine, ".reproducibility.json") + beside(engine, ".reproducibility.log")
    assert b"/tmp" not in text
    assert str(at_home.home).encode() not in text
    envelope = read_envelope(beside(engine, ".reproducibility.intoto.json"))
    known = {item.key_id: item for item in load_trust_root(at_home.home / "keys" / "trust-root.json").keys}
    for signature in envelope.signatures:
        assert verifier_of(known[signature.key_id].spki).verify(envelope.signed_bytes, signature.value)
    subjects, kind, predicate = read_subjects(envelope.payload, None)
    assert kind == "https://in-toto.io/attestation/test-result/v0.1"
    assert [*subjects] == ["inference-engine.bin"]
    assert predicate["result"] == "PASSED"
    assert predicate["passedTests"] == ["rebuild 1", "rebuild 2", "second compiler gcc"]
    configuration = predicate["configuration"]
    assert isinstance(configuration, list)
    for item in configuration:
        assert isinstance(item, dict)
        digest = item["digest"]
        assert isinstance(digest, dict)
        data = engine.with_name(str(item["name"])).read_bytes()
        assert digest["sha3_512"] == hashlib.sha3_512(data).hexdigest()


@pytest.mark.slow
def test_a_second_run_writes_the_same_report_and_log(at_home: Delivered) -> None:
    texts = []
    for _ in range(2):
        assert main(["reproduce", str(at_home.engine), *QUICK, "--seed", "7"]) == (0 if HAS_GCC else 3)
        texts.append(beside(at_home.engine, ".reproducibility.json") + beside(at_home.engine, ".reproducibility.log"))
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_fewer_rebuilds_than_the_policy_asks_for(at_home: Delivered, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(at_home.engine), *QUICK, "--rebuilds", "1"]) == 3
    assert "the policy asks for 2 rebuilds, 1 were made" in capsys.readouterr().err
    assert json.loads(beside(at_home.engine, ".reproducibility.json"))["verdict"] == "not executed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rebuilds", "0"], "--rebuilds 0 is not between 1 and 1000"),
        (["--jobs", "0"], "--jobs 0 is not between 1 and 64"),
        (["--fresh-caches", "-1"], "--fresh-caches -1 is not between 0 and 1000"),
        (["--key", "nowhere"], "nowhere: no key folder"),
        (["--model", "nowhere.onnx"], "nowhere.onnx"),
    ],
)
def test_wrong_options(at_home: Delivered, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(["reproduce", str(at_home.engine), *words]) == 2
    assert said in capsys.readouterr().err


def test_another_model_is_refused(at_home: Delivered, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(b"another model")
    assert main(["reproduce", str(at_home.engine), "--model", str(other)]) == 2
    assert "other.onnx: is not the model.onnx this engine was built from" in capsys.readouterr().err


def test_a_store_without_the_model(
    delivered: Delivered, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path))
    assert main(["reproduce", str(delivered.engine)]) == 2
    assert "holds no keys; run `cuvil keys init`" in capsys.readouterr().err
    shutil.copytree(delivered.home / "keys", tmp_path / "keys")
    assert main(["reproduce", str(delivered.engine)]) == 2
    assert "is not in this machine's store; give it with --model" in capsys.readouterr().err
