"""A whole build with clinical logic: evidence, ``cuvil run``, ``explain --decision``, errors with their place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clinical_case as case
import pytest

from compiler_kernels.stage import sha3_512_hex
from cuvil_assets.cli import main

Words = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True)
class Built:
    home: Path
    engine: Path

    def words(self, policy: Path, model: Path) -> list[str]:
        return ["build", "--model", str(model), "--policy", str(policy), "--target", "x86_64-linux-musl"]


@pytest.fixture(scope="module")
def built(home_maker: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("clinical")
    made = Built(home_maker(), folder / "out" / "inference-engine.bin")
    (folder / "model.onnx").write_bytes(case.model_bytes())
    (folder / "policy.yaml").write_text(case.POLICY, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUVIL_HOME", str(made.home))
        words = made.words(folder / "policy.yaml", folder / "model.onnx")
        assert main([*words, "--output", str(made.engine), "--emit", "src"]) == 0
    return made


@pytest.fixture
def cuvil(built: Built, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Words:
    monkeypatch.setenv("CUVIL_HOME", str(built.home))

    def call(*words: str | Path) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(word) for word in words])
        return (code, *capfd.readouterr())

    return call


def source(built: Built, name: str) -> str:
    return (built.engine.parent / "inference-engine.src" / name).read_text(encoding="utf-8")


def test_the_equivalence_report_compares_decisions(built: Built) -> None:
    report = json.loads(built.engine.with_name("inference-engine.equivalence.json").read_bytes())
    assert report["verdict"] == "passed"
    found = report["decisions"]
    assert found["differing"] == 0 and found["first_difference"] is None and found["given"] == 200
    assert sum(found["outcomes"].values()) == found["inferences"] + found["given"]


def test_the_logic_is_in_the_evidence(built: Built, cuvil: Words) -> None:
    assert cuvil("verify", built.engine)[0] == 0
    assert sha3_512_hex(source(built, "clinical.c").encode()) in source(built, "engine.c")
    probes = json.loads(source(built, "probes.json"))
    assert probes["format"] == "cuvil-probes/1" and probes["compiled_in"] is True
    ids = [probe["id"] for probe in probes["probes"]]
    assert [probe["number"] for probe in probes["probes"]] == list(range(len(ids))) and len(set(ids)) == len(ids)
    assert {"entry:inference", "decision_node:review", "at_least:review:1", "safety_guard:plausible"} <= set(ids)
    assert "fallback_handler:safety_guard:plausible" in ids
    review = next(probe for probe in probes["probes"] if probe["id"] == "decision_node:review")
    assert review["tree"] == ["or", 0, 1] and [c["text"] for c in review["conditions"]][1] == "dark"
    lines = source(built, "clinical.c").splitlines()
    for probe in probes["probes"]:
        first, last = probe["lines"]
        assert f'__cuvil_cover("{probe["id"]}", {probe["number"]},' in "\n".join(lines[first - 1 : last])


def test_run_shows_the_decisions(built: Built, tmp_path: Path) -> None:
    words = case.given(tmp_path, "input", case.CASES["safety_guard"])
    command = [sys.executable, "-m", "cuvil_assets.cli", "run", str(built.engine), *words]
    done = subprocess.run(
        [*command, "--output-dir", str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "status: fallback" and "dark: yes" in done.stdout


def test_explain_follows_a_decision(built: Built, cuvil: Words) -> None:
    code, out, _ = cuvil("explain", built.engine, "--decision", "bright")
    assert code == 0 and out.startswith("decision_node bright (probe ")
    for text in (
        "brightest >= cutoff and not dark",
        "cutoff = 0.5 (tuning report 7)",
        "brightest = max(mask)",
        "REQ-2",
    ):
        assert text in out
    assert "static int decide_bright(void) {" in out and "0 of " in out
    code, out, _ = cuvil("explain", built.engine, "--decision", "REQ-3", "--json")
    document: dict[str, Any] = json.loads(out)
    assert [p["probe"]["id"] for p in document["probes"]] == ["safety_guard:not_blank"]
    code, _, err = cuvil("explain", built.engine, "--decision", "nothing")
    assert code == 2 and "known are bright, dark," in err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("max(mask)", "max(mosk)", "policy.yaml:10:14: quantities.brightest.value names 'mosk', which is nothing"),
        ("max(mask)", "max(mask", "policy.yaml:10:14: quantities.brightest.value has its end at character 9 where ')'"),
        ("mean(image)", "mean(image[0, 0, 4, 0])", "policy.yaml:11:21: quantities.exposure.value goes past 'image'"),
    ],
)
def test_a_mistake_is_shown_in_its_place(
    built: Built, cuvil: Words, tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    policy, model = tmp_path / "policy.yaml", tmp_path / "model.onnx"
    policy.write_text(case.POLICY.replace(old, f'"{new}"', 1), encoding="utf-8")
    model.write_bytes(case.model_bytes())
    code, _, err = cuvil(*built.words(policy, model), "--output", tmp_path / "engine.bin")
    assert code == 2 and sentence in err and not (tmp_path / "engine.bin").exists()
