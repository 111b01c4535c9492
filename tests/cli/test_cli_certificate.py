"""``cuvil certificate`` on an engine as a user has it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_case import Cli, CliJson, Delivered
from tiny_models import POLICY, ModelMaker


@pytest.fixture
def x(tmp_path: Path, delivered: Delivered, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUVIL_HOME", str(delivered.home))
    code, out, _ = cli("certificate", delivered.engine, "--input", tmp_path / "none.npy", "--json")
    assert code == 2
    assert "none.npy" in json.loads(out)["message"]
    path = tmp_path / "x.npy"
    np.save(path, np.random.default_rng(4).random((1, 1, 8, 8), dtype=np.float32))
    return path


def test_a_certificate_says_what_rounding_could_do(x: Path, delivered: Delivered, cli: Cli, tmp_path: Path) -> None:
    report, picture, bounds = tmp_path / "c.json", tmp_path / "c.png", tmp_path / "bounds"
    words = ["--output", report, "--bounds", bounds, "--picture", picture]
    code, out, err = cli("certificate", delivered.engine, "--input", x, *words)
    assert code == 0, err
    made = json.loads(report.read_text())
    assert made["format"] == "cuvil-certificate/1"
    name, bound = made["outputs"][0]["name"], made["outputs"][0]["bound"]
    assert f"output {name}: rounding moved no value by more than" in out
    assert 0 < bound < 1e-4
    assert picture.read_bytes()[:4] == b"\x89PNG"
    per_element = np.load(bounds / f"{name}.bound.npy")
    assert list(per_element.shape) == made["outputs"][0]["shape"]
    assert per_element.max() == bound
    assert len(made["layers"]) > 2
    assert all(row["error"] <= row["bound"] <= row["forward_bound"] * (1 + 1e-9) for row in made["layers"])

    low = ["--threshold", f"{name}<=1e9", "--threshold", f"{name}>=-1e9"]
    code, out, _ = cli("certificate", delivered.engine, "--input", x, *low, "--json")
    assert code == 0
    assert [d["status"] for d in json.loads(out)["decisions"]] == ["certified", "certified"]
    value = _first_output(delivered, cli, x, tmp_path, name)
    code, out, _ = cli("certificate", delivered.engine, "--input", x, "--json", "--threshold", f"{name}>={value!r}",
                       "--threshold", f"{name}<={value!r}")  # fmt: skip
    assert code == 1  # the exact number is on one side of the engine's
    assert sorted(d["status"] for d in json.loads(out)["decisions"]) != ["certified", "certified"]


def test_the_policys_own_decisions_are_certified(
    tiny_model: ModelMaker, home: Path, cli: Cli, cli_json: CliJson, tmp_path: Path
) -> None:
    policy, engine, x = tmp_path / "p.yaml", tmp_path / "inference-engine.bin", tmp_path / "x.npy"
    policy.write_text(
        POLICY + "decisions:\n  sure: prob[0, 1] >= 0\n  equal: prob[0, 0] + prob[0, 1] == 1\n"
        "safety:\n  guards:\n    bright: mean(image) > 0.01\n    sums: sum(prob) > 0.999\n"
    )
    np.save(x, np.random.default_rng(4).random((1, 1, 8, 8), dtype=np.float32))
    words = ["--model", tiny_model(), "--policy", policy, "--target", "x86_64-linux-musl", "--output", engine]
    assert cli("build", *words, "--equivalence-inputs", "1")[0] == 0
    code, made = cli_json("certificate", engine, "--input", x)
    decisions = made["decisions"]
    assert isinstance(decisions, list)
    found = {d["name"]: d["status"] for d in decisions}
    assert [found[name] for name in ("sure", "bright", "sums")] == ["certified"] * 3
    assert found["equal"] != "certified"  # the exact sum is 1, and no ball around it shows that
    assert code == 1
    code, out, _ = cli("certificate", engine, "--input", x)
    assert "guard sums (sum(prob) > 0.999): rounding could not have flipped this" in out


def _first_output(delivered: Delivered, cli: Cli, x: Path, folder: Path, name: str) -> float:
    import subprocess

    subprocess.run([delivered.engine, "--input", x, "--output-dir", folder / "out"], check=True, capture_output=True)
    return float(np.load(folder / "out" / f"{name}.npy").reshape(-1)[0])


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--threshold", "nothing"], 2, "not of the form"),
        (["--threshold", "nothing>=1"], 2, "no output"),
        (["--argmax", "nothing"], 2, "no output"),
        (["--output", "/nowhere/c.json"], 2, "cannot be written"),
        (["--input", "again.npy"], 2, "twice"),
    ],
)
def test_bad_use_is_one_sentence(
    x: Path, delivered: Delivered, cli: Cli, words: list[str], code: int, sentence: str
) -> None:
    found, _, err = cli("certificate", delivered.engine, "--input", x, *words)
    assert found == code
    assert sentence in err
    assert "Traceback" not in err


def test_a_wrong_shape_or_a_nan_is_refused(x: Path, delivered: Delivered, cli: Cli) -> None:
    value = np.load(x)
    np.save(x, value[..., :-1])
    assert cli("certificate", delivered.engine, "--input", x)[0] == 2
    value[0, 0, 0, 0] = np.nan
    np.save(x, value)
    code, _, err = cli("certificate", delivered.engine, "--input", x)
    assert code == 2
    assert "not finite" in err
