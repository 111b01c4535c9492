"""A thousand archived sessions of a real model, replayed on every target with no bit different."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from compiler_kernels import compile_model
from compiler_kernels.targets.registry import TARGETS, runner
from cuvil_assets.cli import main, run_session
from evidence.keys import init_keys
from evidence.sessions.archive import Archive

SHARED = Path(__file__).resolve().parents[3] / "shared"
SESSIONS = 1000
POLICY = """\
version: 1
model: {name: cxr, version: "1"}
inputs: {image: {finite: true, range: [0.0, 1.0]}}
thresholds: {cutoff: 0.5}
quantities: {p_pneumonia: "prob[0, 1]", exposure: mean(image), spread: "percentile(image, 95) - percentile(image, 5)"}
decisions:
  low_quality: exposure < 0.3 or exposure > 0.7 or spread < 0.1
  pneumonia: p_pneumonia >= cutoff and not low_quality
safety: {guards: {not_dark: exposure > 0.45, sums_to_one: sum(prob) > 0.999 and sum(prob) < 1.001}}
fallbacks: {safety_guard: {action: answer, decisions: {low_quality: true, pneumonia: false}, message: refer}}
audit: {sessions: {inputs: keep, sync: false}}
"""


@pytest.mark.slow
def test_a_thousand_sessions_replay_on_every_target(
    home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Kept inputs of 50 subjects; every instruction set of this processor, and the other target in its emulator."""
    model, data = SHARED / "models" / "cxr_pneumonia_cnn.onnx", SHARED / "data" / "pneumoniamnist.npz"
    if not model.is_file() or not data.is_file():
        pytest.skip("the model collection and PneumoniaMNIST are not beside this checkout")
    with np.load(data) as archive:
        images = np.concatenate([archive["test_images"], archive["train_images"]])[:SESSIONS]
    (tmp_path / "policy.yaml").write_text(POLICY)
    engines = {}
    for triple, target in TARGETS.items():
        if runner(target) is not None:
            engines[triple] = compile_model(
                model,
                input_shapes={"image": (1, 1, 28, 28)},
                policy=tmp_path / "policy.yaml",
                kind="bin",
                target=triple,
                output=tmp_path / triple,
            )
    folder, file = tmp_path / "sessions", tmp_path / "image.npy"
    native = next(triple for triple in engines if runner(TARGETS[triple]) == ())
    for number, image in enumerate(images):
        np.save(file, (image.reshape(1, 1, 28, 28) / 255).astype(np.float32))
        words = (engines[native], [str(file)], tmp_path / "out", False, None, folder, f"patient {number % 50}")
        assert run_session.run(*words) == 0
    capfd.readouterr()
    records = Archive(folder).records()
    statuses = {item.fields["status"] for item in records}
    assert len(records) == SESSIONS and statuses == {"decided", "fallback"}
    assert {item.fields["decisions"]["pneumonia"] for item in records} == {True, False}
    init_keys(home)
    assert main(["session", "seal", str(folder)]) == 0 and main(["session", "verify", str(folder)]) == 0
    for engine in engines.values():
        isas = ["", "avx2"] if engine == engines[native] and native.startswith("x86_64") else [""]
        for isa in isas:
            capfd.readouterr()
            more = ["--isa", isa] if isa else []
            code = main(["replay", str(folder), "--engine", str(engine), "--jobs", "2", "--json", *more])
            document = json.loads(capfd.readouterr().out)
            assert (code, document["equal"], document["different"]) == (0, SESSIONS, []), (engine, isa)
