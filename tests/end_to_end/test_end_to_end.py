"""Real models from file to verified engine on both targets, and the demonstration as a newcomer runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler_kernels.targets.registry import TARGETS, resolve_target, runner
from cuvil_assets.cli import main

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "models"
PLAIN = "version: 1\nmodel: {{name: {name}, version: 1.0.0}}\n"


def _shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the shared model {name} is not beside this checkout")
    return path


def _policy(folder: Path, name: str) -> Path:
    path = folder / "policy.yaml"
    path.write_text(PLAIN.format(name=name))
    return path


def _input_name(model: Path) -> str:
    return str(onnx.load(model).graph.input[0].name)


def _build_and_run(model: Path, policy: Path, shape: tuple[int, ...], folder: Path) -> dict[str, dict[str, bytes]]:
    """Builds for every target, verifies, runs; the bytes of every output file by target that can run here."""
    name = _input_name(model)
    value = np.random.default_rng(7).random(shape, dtype=np.float32)
    np.save(folder / "x.npy", value)
    found: dict[str, dict[str, bytes]] = {}
    for triple in TARGETS:
        engine = folder / triple / "inference-engine.bin"
        words = ["build", "--model", str(model), "--policy", str(policy), "--target", triple, "--output", str(engine)]
        dims = ",".join(str(d) for d in shape)
        assert main([*words, "--input-shape", f"{name}={dims}", "--equivalence-inputs", "1"]) == 0
        assert main(["verify", str(engine)]) == 0
        if runner(resolve_target(triple)) is None:
            continue
        out = folder / triple / "out"
        # `cuvil run` becomes the engine (exec), so it gets a process of its own.
        command = [
            sys.executable,
            "-m",
            "cuvil_assets.cli",
            "run",
            str(engine),
            "--input",
            f"{name}={folder / 'x.npy'}",
        ]
        subprocess.run([*command, "--output-dir", str(out)], check=True, cwd=ROOT)
        found[triple] = {p.name: p.read_bytes() for p in sorted(out.glob("*.npy"))}
    return found


@pytest.mark.parametrize(
    ("file", "shape"),
    [
        ("cxr_pneumonia_cnn.onnx", (1, 1, 28, 28)),
        ("fundus_vessel_unet.onnx", (1, 3, 128, 128)),
        ("brainchop_meshnet5_gwm.onnx", (1, 1, 32, 32, 32)),
    ],
)
def test_shared_models_on_both_targets(file: str, shape: tuple[int, ...], tmp_path: Path, home: Path) -> None:
    model = _shared(file)
    outputs = _build_and_run(model, _policy(tmp_path, model.stem), shape, tmp_path)
    assert outputs
    assert all(files and files == next(iter(outputs.values())) for files in outputs.values())


def test_demonstration(tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--output-dir", str(tmp_path / "demo"), "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert (tmp_path / "demo" / "overlay.png").read_bytes().startswith(b"\x89PNG")
    assert main(["verify", str(tmp_path / "demo" / "inference-engine.bin")]) == 0
    assert summary["dice_against_pseudo_labels"] > 0.8
