"""What happens around the build: engines that misbehave, the comparison, the summary, the refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from demo_case import Case

from compiler_kernels.errors import RefusedError, UnsupportedError, UsageError, VerificationFailed
from cuvil_assets import demo, demo_data, demo_engine

FORBIDDEN = ("FIPS 140-3 validated", "商用密码认证", "complies with Appendix II", "IEEE 754 Annex L", "MC/DC")


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def no_build(**_: Any) -> NoReturn:
    raise AssertionError("the build must not be reached")


def no_verify(engine: Path, proof: Path) -> NoReturn:
    raise AssertionError("verification must not be reached")


def run(output_dir: Path, **options: Any) -> dict[str, Any]:
    arguments = {"build": no_build, "verify": no_verify, "target": "x86_64-linux-musl"} | options
    return demo.run_demo(output_dir, **arguments)


def test_engine_that_fails_is_quoted_with_its_exit_code(tmp_path: Path) -> None:
    engine = script(tmp_path / "engine", "echo 'input rgb holds a NaN' >&2; exit 3")
    with pytest.raises(VerificationFailed, match="exit code 3: input rgb holds a NaN") as error:
        demo_engine.run_engine(engine, "rgb", tmp_path / "rgb.npy", "vessel", tmp_path)
    assert error.value.check == "engine-run"


def test_engine_that_does_not_start_or_writes_nothing(tmp_path: Path) -> None:
    for engine, sentence in (
        (tmp_path / "absent", "does not start"),
        (script(tmp_path / "idle", "exit 0"), "wrote no result"),
    ):
        with pytest.raises(VerificationFailed, match=sentence):
            demo_engine.run_engine(engine, "rgb", tmp_path / "rgb.npy", "vessel", tmp_path)


def test_engine_receives_input_and_folder(tmp_path: Path) -> None:
    engine = script(tmp_path / "engine", 'echo "$@" > "$4/vessel.npy"')
    got = demo_engine.run_engine(engine, "rgb", tmp_path / "rgb.npy", "vessel", tmp_path)
    assert got.decode().strip() == f"--input rgb={tmp_path}/rgb.npy --output-dir {tmp_path}"


def test_two_runs_must_write_the_same_bytes(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    (tmp_path / "in.npy").write_bytes(demo_engine.npy_bytes(array))
    copy = f'mkdir -p "$4"; cp {tmp_path}/in.npy "$4/vessel.npy"'
    same = script(tmp_path / "same", copy)
    assert np.array_equal(demo_engine.run_twice(same, "rgb", tmp_path / "in.npy", "vessel", tmp_path), array)
    other = script(tmp_path / "other", f'{copy}; case "$4" in *run-2) printf x >> "$4/vessel.npy";; esac')
    with pytest.raises(VerificationFailed, match="different bytes") as error:
        demo_engine.run_twice(other, "rgb", tmp_path / "in.npy", "vessel", tmp_path)
    assert error.value.check == "repeatability"


def test_comparison_counts_what_differs(case: Case) -> None:
    rgb = demo_data.as_nchw(case.halves.held_out)
    same = demo_engine.compare_with_onnxruntime(demo.MODEL, "rgb", rgb, case.probability, 0.5)
    assert same is not None
    assert same["mask_pixels_that_differ"] == 0 and same["mask_pixels"] == 640 * 320
    changed = case.probability.copy()
    changed[0, 0, 0, :3] = 1
    found = demo_engine.compare_with_onnxruntime(demo.MODEL, "rgb", rgb, changed, 0.5)
    assert found is not None and found["mask_pixels_that_differ"] == 3
    assert found["max_abs_difference"] == pytest.approx(1 - float(case.probability[0, 0, 0, :3].min()), abs=1e-5)


def test_comparison_is_left_out_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    empty = np.zeros((1, 3, 4, 4), dtype=np.float32)
    assert demo_engine.compare_with_onnxruntime(demo.MODEL, "rgb", empty, empty[:, :1], 0.5) is None


def test_missing_package_is_met_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "PIL.ImageFont", None)
    with pytest.raises(UsageError, match=r"needs the package pillow, .*pip install 'cuvil\[demo\]'"):
        run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_output_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way", encoding="utf-8")
    with pytest.raises(UsageError, match=r"out: cannot be written to .* give another directory"):
        run(tmp_path / "out")


def test_failed_build_leaves_no_result_of_an_earlier_run(tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def refuse(**arguments: Any) -> NoReturn:
        asked.update(arguments)
        raise RefusedError("no")

    for name in ("overlay.png", "summary.json"):
        (tmp_path / name).write_text("old", encoding="utf-8")
    with pytest.raises(RefusedError):
        run(tmp_path, build=refuse)
    assert list(tmp_path.iterdir()) == []
    assert asked == {
        "model": demo.MODEL,
        "policy": demo.POLICY,
        "target": "x86_64-linux-musl",
        "output": tmp_path / "inference-engine.bin",
        "input_shape": {"rgb": (1, 3, 640, 320)},
    }


def test_native_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    for machine, target in (("x86_64", "x86_64-linux-musl"), ("aarch64", "aarch64-linux-musl")):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert demo_engine.native_target() == target
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UnsupportedError, match=r"no target runs on this machine .*riscv64"):
        demo_engine.native_target()


def summary(peer: dict[str, Any] | None) -> dict[str, Any]:
    file = {"name": "f", "bytes": 1234567, "sha256": "ab" * 32}
    return {
        "notice": demo.NOTICE,
        "target": "x86_64-linux-musl",
        "model": file,
        "engine": file,
        "proof": {**file, "verified": True, "checks": 14, "trust": "development"},
        "build": {"arithmetic": "CA-1.1", "nested": {"not": "printed"}},
        "output": {**file, "runs": 2},
        "dice_against_pseudo_labels": 0.8384,
        "onnxruntime": peer,
        "directory": "out",
        "files": ["overlay.png", "summary.json"],
    }


def test_summary_says_what_it_is_and_no_more() -> None:
    peer = {"version": "1.32.0", "max_abs_difference": 1.5e-6, "mask_pixels_that_differ": 1, "mask_pixels": 204800}
    text = demo.summary_text(summary(peer))
    assert "not a clinical model" in text and "pseudo-labels from a ridge filter" in text
    assert "1,234,567 bytes" in text and "ab" * 32 in text
    assert "0.838 against the pseudo-labels" in text
    assert "onnxruntime 1.32.0: largest difference 1.5e-06, 1 of 204800 mask pixels differ" in text
    assert "verified: 14 checks passed, trust: development" in text
    assert "CA-1.1" in text and "nested" not in text
    assert "  overlay.png\n  summary.json" in text
    assert "not installed, so no comparison" in demo.summary_text(summary(None))


def test_no_text_of_the_demonstration_claims_what_is_not_so() -> None:
    root = Path(demo.__file__).parent
    texts = [p for p in (*root.glob("demo*.py"), *demo.DATA.iterdir()) if p.suffix in (".py", ".md", ".yaml")]
    texts.append(root.parent / "docs" / "demo.md")
    assert len(texts) >= 7
    for path in texts:
        content = path.read_text(encoding="utf-8")
        assert not [words for words in FORBIDDEN if words.lower() in content.lower()], path
