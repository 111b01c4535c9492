"""The asset ``coverage``, `cuvil coverage` and a release that demands it, with one engine that was really built."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from tiny_models import POLICY, ModelMaker

from cuvil_assets import chain
from cuvil_assets.assets import ASSETS, LATER
from cuvil_assets.builder import build, open_instance
from cuvil_assets.cli import main
from cuvil_assets.home import Home
from cuvil_assets.inputs import BuildOptions
from evidence.coverage.recount import missing_tools

CLINICAL = """\
release: {demand: [coverage]}
thresholds:
  cutoff: {value: 0.5, source: "chosen", requirements: [REQ-1]}
decisions:
  bright: {when: "mean(image) > cutoff and max(image) < 0.9", requirements: [REQ-2]}
  flat: {when: "max(image) - min(image) < 0.25 or bright", requirements: [REQ-3]}
safety:
  guards:
    not_black: {require: "max(image) > 0.01", requirements: [REQ-4]}
coverage: {}
"""
IMPOSSIBLE = "  exact: mean(image) >= 0.9001 and mean(image) <= 0.9001\n"
"""True for tensors that the search does not find and does not exclude: open."""


@pytest.fixture
def home(home_maker: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = home_maker()
    monkeypatch.setenv("CUVIL_HOME", str(folder))
    return folder


def made(model: Path, text: str, engine: Path) -> str:
    policy = engine.parent.parent / f"{engine.stem}.yaml"
    policy.write_text(text)
    outcome = build(BuildOptions(model, policy, "x86_64-linux-musl", engine, equivalence_inputs=1))
    return str(outcome.facts["partition"])


def materialise(home: Path, partition: str) -> dg.ExecuteInProcessResult:
    with open_instance(Home(home)) as instance:
        model_version, target = partition.split("|")
        instance.add_dynamic_partitions("model_version", [model_version])
        key = dg.MultiPartitionKey({"model_version": model_version, "target": target})
        return dg.materialize(
            [*ASSETS, *LATER], selection=[chain.COVERAGE], partition_key=key, instance=instance, raise_on_error=False
        )


def test_coverage_from_the_policy_to_a_release(
    home: Path, tiny_model: ModelMaker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def cuvil(*words: str | Path) -> tuple[int, dict[str, object]]:
        capfd.readouterr()
        code = main([*map(str, words), "--json"])
        return code, json.loads(capfd.readouterr().out)

    engine = tmp_path / "out" / "engine.bin"
    partition = made(tiny_model(), POLICY + CLINICAL, engine)
    trust = Path(str(cuvil("keys", "ca", "init")[1]["trust_root"]))
    builder = str(cuvil("keys", "issue", "--person", "Berta", "--role", "builder")[1]["folder"])
    cuvil("keys", "crl")
    words = ["release", engine, "--output", tmp_path / "release", "--key", builder, "--trust-root", trust]
    code, refused = cuvil(*words)
    assert code == 3 and "coverage" in str(refused["message"])

    code, said = cuvil("coverage", engine)
    assert code == 0, said
    assert said["verdict"] == "passed" and all(t["open"] == 0 for t in said["totals"].values())  # type: ignore[attr-defined]
    report = json.loads((tmp_path / "out" / "engine.coverage.json").read_text())
    archive = (tmp_path / "out" / "engine.coverage.vectors.gz").read_bytes()
    assert report["archive"]["sha3_512"] == hashlib.sha3_512(archive).hexdigest()
    _both_ways(report)
    if not missing_tools():
        assert report["recount"]["tool"].startswith(("Debian clang", "clang"))
        assert [d["probe"] for d in report["recount"]["decisions"]] == ["decision_node:bright", "decision_node:flat"]
        assert all(d["agree"] and all(d["ours"]) for d in report["recount"]["decisions"])
    else:
        assert "not recounted" in report["sentence"] and "clang-19" in report["sentence"]

    # the archived vectors give the archived answers
    (tmp_path / "vectors").write_bytes(gzip.decompress(archive))
    lines = subprocess.run([engine, "--decide", "--vectors", tmp_path / "vectors"], capture_output=True, check=True)
    answers = [json.loads(line) for line in lines.stdout.splitlines()]
    assert [a["status"] for a in answers] == [v["status"] for v in report["vectors"]]

    result = materialise(home, partition)
    assert result.success and all(e.passed for e in result.get_asset_check_evaluations())
    (event,) = result.get_asset_materialization_events()
    data = (tmp_path / "out" / "engine.coverage.json").read_bytes()
    digest = event.materialization.metadata["digest"].value
    assert digest == f"sha3-512:{hashlib.sha3_512(data).hexdigest()}"

    code, released = cuvil(*words)
    assert code == 0, released
    (lines_file,) = (tmp_path / "release").glob("*.intoto.jsonl")
    assert hashlib.sha3_512(data).hexdigest() in "".join(_payloads(lines_file))

    page = (tmp_path / "out" / "engine.coverage.html").read_text()
    assert "REQ-3" in page and "<script" not in page and "http" not in page.replace("http-equiv", "")


def _payloads(path: Path) -> list[str]:
    return [base64.b64decode(json.loads(line)["payload"]).decode() for line in path.read_text().splitlines()]


def _both_ways(report: dict[str, object]) -> None:
    """Requirement to probe to vector, and back."""
    requirements, vectors = report["requirements"], report["vectors"]
    assert isinstance(requirements, dict) and isinstance(vectors, list)
    assert set(requirements) == {"REQ-2", "REQ-3", "REQ-4"}
    for name, entry in requirements.items():
        assert entry["probes"] and entry["vectors"]
        for number, vector in enumerate(vectors):
            assert vector["number"] == number
            assert (number in entry["vectors"]) == (name in vector["requirements"])
            assert (name in vector["requirements"]) == bool(set(entry["probes"]) & set(vector["probes"]))


@pytest.mark.slow
def test_below_the_limit_and_without_the_section(
    home: Path, tiny_model: ModelMaker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (POLICY + CLINICAL).replace("safety:", f"{IMPOSSIBLE}safety:")
    engine = tmp_path / "open" / "engine.bin"
    partition = made(tiny_model(), text, engine)
    assert main(["coverage", str(engine)]) == 3
    said = capfd.readouterr().out
    assert "failed: decision coverage is" in said and "the policy's limit is 100 %" in said
    result = materialise(home, partition)
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed and "the policy's limit is 100 %" in str(check.description)

    plain = tmp_path / "plain" / "engine.bin"
    partition = made(tiny_model(), POLICY.replace('"1.0"', '"1.1"'), plain)
    assert main(["coverage", str(plain)]) == 3
    assert "has no probes" in capfd.readouterr().err
    assert not list((tmp_path / "plain").glob("*coverage*"))
    result = materialise(home, partition)
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed and check.severity == dg.AssetCheckSeverity.WARN
