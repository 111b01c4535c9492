"""``cuvil rebuild`` in another home: what it signs, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rebuild_case import Delivered
from tiny_models import ModelMaker

from compiler_kernels.targets.registry import TARGETS
from compiler_kernels.toolchain.gcc import find_gcc
from cuvil_assets.cli import main
from evidence.ca import Authority
from evidence.verifier.digests import digest_file
from evidence.verifier.dsse import read_envelope
from evidence.verifier.rebuilds import accept
from evidence.verifier.signers import Moment
from evidence.verifier.subjects import Subject, subject_of


@dataclass(frozen=True)
class Elsewhere:
    """Another machine's home with an authority and a rebuilder's keys."""

    authority: Authority
    keys: Path
    proof: Path
    words: list[str]


@pytest.fixture
def elsewhere(
    delivered: Delivered, tmp_path: Path, tiny_model: ModelMaker, monkeypatch: pytest.MonkeyPatch
) -> Elsewhere:
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "home"))
    assert main(["keys", "ca", "init"]) == 0
    authority = Authority(tmp_path / "home")
    identity = authority.issue("Rita", "rebuilder", datetime.now(UTC).replace(microsecond=0))
    folder = tmp_path / "received"
    folder.mkdir()
    proof = folder / "inference-engine.proof.json"
    shutil.copyfile(delivered.engine.with_name(proof.name), proof)
    policy = delivered.engine.with_name("policy.yaml")
    words = ["rebuild", str(proof), "--person", "Rita", "--key", str(identity.folder), "--kept-cache"]
    return Elsewhere(authority, identity.folder, proof, [*words, "--model", str(tiny_model()), "--policy", str(policy)])


def test_an_attestation_that_a_verifier_accepts(
    delivered: Delivered, elsewhere: Elsewhere, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main([*elsewhere.words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    data = Path(printed["attestation"]).read_bytes()
    assert Path(printed["attestation"]).parent == elsewhere.proof.parent
    statement = delivered.recorded.statement
    found = accept(
        data,
        elsewhere.authority.trust_root(),
        Moment(datetime.now(UTC), False),
        Subject(statement.subject, **statement.subject_digests),
        subject_of(elsewhere.proof.name, digest_file(elsewhere.proof)),
        [],
    )
    assert (found.rebuild.person, found.rebuild.verdict) == ("Rita", "passed")
    assert found.rebuild.rebuilt == hashlib.sha3_512(delivered.engine.read_bytes()).hexdigest()
    assert found.rebuild.other_code == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--model"], "is not in this machine's store; give it with --model"),
        (["--policy"], "is not in this machine's store; give it with --policy"),
    ],
)
def test_what_is_missing_is_said(
    elsewhere: Elsewhere, capsys: pytest.CaptureFixture[str], change: list[str], said: str
) -> None:
    at = elsewhere.words.index(change[0])
    assert main([*elsewhere.words[:at], *elsewhere.words[at + 2 :]]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_no_release(elsewhere: Elsewhere, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["rebuild", str(tmp_path / "empty"), "--person", "Rita"]) == 2
    assert "holds 0 files *.proof.json" in capsys.readouterr().err
    damaged = tmp_path / "x.proof.json"
    damaged.write_text("{}")
    assert main(["rebuild", str(damaged), "--person", "Rita"]) == 2


def test_an_engine_that_is_not_the_proofs(elsewhere: Elsewhere, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere.proof.with_name("inference-engine.bin").write_bytes(b"another")
    words = [elsewhere.words[0], str(elsewhere.proof.parent), *elsewhere.words[2:]]
    assert main(words) == 2
    assert "is not the engine of its proof" in capsys.readouterr().err


@pytest.mark.slow
def test_a_compiler_that_changes_one_byte_is_attested_as_failed(
    elsewhere: Elsewhere, capsys: pytest.CaptureFixture[str], wrapper: int
) -> None:
    assert main(elsewhere.words) == 1
    assert "is not rebuilt: rebuild 1: stage engine, inference-engine.bin" in capsys.readouterr().err
    written = next(elsewhere.proof.parent.glob("*.rebuild-*.json"))
    said = json.loads(read_envelope(written.read_bytes()).payload)["predicate"]
    assert said["verdict"] == "failed"
    assert "the digest differs" in said["difference"]
    assert len(said["rebuilt"]) == 128


@pytest.mark.slow
@pytest.mark.skipif(find_gcc(TARGETS["x86_64-linux-musl"]) is None, reason="the policy of this engine asks for gcc")
def test_from_reports_to_a_release_to_a_bundle_that_is_rebuilt(
    delivered: Delivered,
    tmp_path: Path,
    tiny_model: ModelMaker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(delivered.home))
    folder, bundle = tmp_path / "release", tmp_path / "release.zip"
    report = delivered.engine.with_name("inference-engine.reproducibility.json")
    report.unlink(missing_ok=True)
    assert main(["release", str(delivered.engine), "--output", str(folder)]) == 3
    assert "the policy demands reproducibility" in capsys.readouterr().err
    assert main(["reproduce", str(delivered.engine), "--fresh-caches", "0"]) == 0
    assert main(["release", str(delivered.engine), "--output", str(folder)]) == 0
    assert (folder / report.name).read_bytes() == report.read_bytes()
    assert (folder / "inference-engine.reproducibility.intoto.json").exists()
    assert main(["bundle", str(folder), "--output", str(bundle)]) == 0
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "elsewhere"))
    assert main(["keys", "init"]) == 0
    words = ["rebuild", str(bundle), "--person", "Rita", "--kept-cache", "--model", str(tiny_model())]
    assert main([*words, "--output", str(tmp_path)]) == 0
    assert len([*tmp_path.glob("inference-engine.rebuild-*.json")]) == 1
