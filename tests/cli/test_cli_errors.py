"""Every kind of bad input: one sentence, the right exit code, nothing left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cli_case import Cli, CliJson, Delivered
from tiny_models import POLICY, ModelMaker

TARGET = "x86_64-linux-musl"


@dataclass(frozen=True)
class Bench:
    """A build that would succeed, to be spoilt by one change."""

    cli: Cli
    model: Path
    policy: Path
    output: Path
    folder: Path

    def build(self, *extra: str, **changes: str | Path) -> tuple[int, str, str]:
        options = {"model": self.model, "policy": self.policy, "target": TARGET, "output": self.output} | changes
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return self.cli("build", *words, "--equivalence-inputs", "2", *extra)

    def refuses(self, code: int, *fragments: str, extra: tuple[str, ...] = (), **changes: str | Path) -> str:
        """Assert exit code, one sentence with ``fragments``, and that no file appeared or changed."""
        before = tree(self.folder)
        found, out, err = self.build(*extra, **changes)
        assert (found, out) == (code, "")
        lines = [line for line in err.splitlines() if not line.startswith("  ") and "note:" not in line]
        assert len(lines) == 1, err
        assert lines[0].startswith("cuvil: ")
        assert "Traceback" not in err
        for fragment in fragments:
            assert fragment in lines[0]
        assert tree(self.folder) == before
        return lines[0]


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


@pytest.fixture
def bench(cli: Cli, home: Path, tmp_path: Path, tiny_model: ModelMaker, tiny_policy: Path) -> Bench:
    work = tmp_path / "work"
    work.mkdir()
    model, policy = work / "model.onnx", work / "policy.yaml"
    model.write_bytes(tiny_model().read_bytes())
    policy.write_bytes(tiny_policy.read_bytes())
    return Bench(cli, model, policy, work / "out" / "inference-engine.bin", work)


def test_missing_model(bench: Bench) -> None:
    bench.refuses(2, "absent.onnx", "no such model", model=bench.folder / "absent.onnx")


def test_missing_policy(bench: Bench) -> None:
    bench.refuses(2, "absent.yaml", "no such policy", policy=bench.folder / "absent.yaml")


def test_directory_as_model(bench: Bench) -> None:
    bench.refuses(2, "is a directory", model=bench.folder)


def test_device_as_model(bench: Bench) -> None:
    bench.refuses(2, "not a regular file", model="/dev/zero")


def test_empty_model(bench: Bench) -> None:
    bench.model.write_bytes(b"")
    bench.refuses(2, "model.onnx", "is empty")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_model(bench: Bench) -> None:
    bench.model.chmod(0)
    code, _, err = bench.build()
    assert code == 2
    assert "cannot be read" in err


@pytest.mark.parametrize("size", [1, 40, 300])
def test_truncated_model(bench: Bench, size: int) -> None:
    bench.model.write_bytes(bench.model.read_bytes()[:size])
    bench.refuses(2, "model.onnx")


def test_model_that_is_no_onnx(bench: Bench) -> None:
    bench.model.write_text("this is no model")
    bench.refuses(2, "model.onnx")


def test_unknown_policy_key(bench: Bench) -> None:
    bench.policy.write_text(POLICY + "signatures: {}\n")
    bench.refuses(2, "policy.yaml:7:1", "signatures", "not a known key")


def test_policy_that_is_no_yaml(bench: Bench) -> None:
    bench.policy.write_text("version: [1\n")
    bench.refuses(2, "policy.yaml", "YAML")


def test_policy_that_is_not_text(bench: Bench) -> None:
    bench.policy.write_bytes(b"version: 1\nmodel: \xff\xfe\n")
    bench.refuses(2, "policy.yaml", "UTF-8")


def test_policy_naming_an_absent_input(bench: Bench) -> None:
    bench.policy.write_text(POLICY.replace("  image:", "  picture: {finite: true}\n  image:"))
    bench.refuses(2, "inputs.picture")


def test_shape_of_the_policy_that_the_model_does_not_have(bench: Bench) -> None:
    bench.policy.write_text(POLICY.replace("[1, 1, 8, 8]", "[1, 3, 8, 8]"))
    bench.refuses(2, "image")


def test_shape_on_the_command_line_against_the_policy(bench: Bench) -> None:
    bench.refuses(2, "--input-shape", "inputs.image.shape", extra=("--input-shape", "image=2,1,8,8"))


def test_unpinned_input(bench: Bench) -> None:
    bench.policy.write_text(POLICY.replace("shape: [1, 1, 8, 8], ", ""))
    bench.refuses(4, "image")


@pytest.mark.parametrize("text", ["image", "image=", "=1,2", "image=1,,8", "image=0,1", "image=-1,1", "image=1.5"])
def test_input_shape_of_wrong_form(bench: Bench, text: str) -> None:
    bench.refuses(2, "--input-shape", "NAME=1,1,28,28", extra=("--input-shape", text))


def test_input_shape_twice(bench: Bench) -> None:
    bench.refuses(2, "twice", extra=("--input-shape", "image=1,1,8,8", "--input-shape", "image=1,1,8,8"))


def test_unknown_target(bench: Bench) -> None:
    bench.refuses(4, "riscv64-linux-musl", "x86_64-linux-musl", target="riscv64-linux-musl")


def test_unsupported_operator(bench: Bench) -> None:
    import onnx

    model = onnx.load_from_string(bench.model.read_bytes())
    model.graph.node[1].op_type = "StringNormalizer"
    bench.model.write_bytes(model.SerializeToString())
    bench.refuses(4, "StringNormalizer", "relu")


def test_unknown_emit(bench: Bench) -> None:
    bench.refuses(2, "--emit", "wasm", extra=("--emit", "src,wasm"))


@pytest.mark.parametrize("count", ["0", "-1", "5000"])
def test_equivalence_inputs_out_of_range(bench: Bench, count: str) -> None:
    bench.refuses(2, "--equivalence-inputs", extra=("--equivalence-inputs", count))


def test_output_is_a_directory(bench: Bench) -> None:
    bench.refuses(2, "is a directory", output=bench.folder)


def test_output_below_a_file(bench: Bench) -> None:
    bench.refuses(2, "is not a directory", output=bench.model / "sub" / "engine.bin")


def test_output_where_nothing_can_be_written(bench: Bench) -> None:
    bench.refuses(2, "cannot be written", output="/proc/cuvil-test/engine.bin")


def test_output_is_the_model(bench: Bench) -> None:
    bench.refuses(2, "would overwrite", output=bench.model)


def test_evidence_would_overwrite_the_policy(bench: Bench) -> None:
    policy = bench.folder / "engine.proof.json"
    policy.write_text(POLICY)
    bench.refuses(2, "would overwrite", policy=policy, output=bench.folder / "engine.bin")


def test_proof_is_a_directory(bench: Bench) -> None:
    (bench.folder / "engine.proof.json").mkdir()
    bench.refuses(2, "is a directory", output=bench.folder / "engine.bin")


def test_bad_epoch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1.5")
    bench.refuses(2, "SOURCE_DATE_EPOCH")


def test_home_that_is_a_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(bench.model))
    bench.refuses(2, "CUVIL_HOME")


def test_open_private_key(bench: Bench, home: Path, cli: Cli) -> None:
    assert cli("keys", "init")[0] == 0
    (home / "keys" / "sm2.key.pem").chmod(0o644)
    bench.refuses(2, "sm2.key.pem", "chmod 600")


def test_missing_key_file(bench: Bench, home: Path, cli: Cli) -> None:
    assert cli("keys", "init")[0] == 0
    (home / "keys" / "p384.key.pem").unlink()
    bench.refuses(2, "p384.key.pem")


def test_old_outputs_survive_a_failing_build(bench: Bench) -> None:
    bench.output.parent.mkdir()
    bench.output.write_text("the engine of last week")
    bench.policy.write_text(POLICY + "unknown: 1\n")
    bench.refuses(2, "unknown")
    assert bench.output.read_text() == "the engine of last week"


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["build"], "--model"),
        (["biuld"], "biuld"),
        (["build", "--modle", "x"], "--modle"),
        (["build", "--equivalence-inputs", "many"], "valid integer"),
        (["verify"], "ENGINE"),
        (["ui", "--port", "99999"], "--port"),
        (["explain", "e", "--ir", "l7"], "l7"),
        (["explain", "e", "--ir", "l0", "--node", "n"], "one of them"),
    ],
)
def test_usage_errors(cli: Cli, home: Path, words: list[str], fragment: str) -> None:
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert fragment in err


def test_errors_as_json(bench: Bench, cli_json: CliJson) -> None:
    code, document = cli_json(
        "build",
        "--model",
        bench.folder / "absent",
        "--policy",
        bench.policy,
        "--target",
        TARGET,
        "--output",
        bench.output,
    )
    assert code == 2
    assert document["error"] == "UsageError"
    assert document["exit_code"] == 2
    code, document = cli_json("build")
    assert (code, document["error"]) == (2, "UsageError")


def test_internal_error_is_one_sentence_with_a_log(bench: Bench, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect is provoked where none is known: the module that runs a stage is made to fail."""
    import cuvil_assets.assets as assets

    def broken(*_: object) -> None:
        raise ZeroDivisionError("provoked")

    monkeypatch.setattr(assets, "run_stage", broken)
    sentence = bench.refuses(70, "internal error", "defect of Cuvil", "ZeroDivisionError: provoked")
    log = Path(sentence.rsplit(" in ", 1)[1])
    assert log.parent == home / "log"
    assert "ZeroDivisionError: provoked" in log.read_text()


@pytest.mark.parametrize("command", ["verify", "run", "explain"])
def test_engine_that_is_absent_or_a_directory(cli: Cli, home: Path, tmp_path: Path, command: str) -> None:
    cli("keys", "init")
    extra = ["--output-dir", "o"] if command == "run" else []
    for engine in (tmp_path / "absent.bin", tmp_path):
        code, out, err = cli(command, engine, *extra)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
        assert str(engine) in err


def test_run_refuses_what_is_no_engine(cli: Cli, home: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.bin"
    text.write_text("#!/bin/sh\n")
    assert cli("run", text, "--output-dir", tmp_path / "o")[0] == 2
    alien = tmp_path / "alien.bin"
    alien.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + (243).to_bytes(2, "little") + bytes(44))
    code, _, err = cli("run", alien, "--output-dir", tmp_path / "o")
    assert code == 4
    assert "ELF machine 243" in err


def test_verify_without_any_trust_root(cli: Cli, delivered: Delivered, home: Path) -> None:
    code, _, err = cli("verify", delivered.engine)
    assert code == 2
    assert "--trust-root" in err


def test_ui_on_a_busy_port(cli: Cli, home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, out, err = cli("ui", "--port", str(port))
    assert (code, out) == (2, "")
    assert f"--port {port}" in err


def engine_call(delivered: Delivered, value: np.ndarray, folder: Path) -> subprocess.CompletedProcess[str]:
    np.save(folder / "x.npy", value)
    words = ["run", str(delivered.engine), "--input", str(folder / "x.npy"), "--output-dir", str(folder / "o")]
    return subprocess.run(
        [sys.executable, "-m", "cuvil_assets.cli", *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda x: x, 0),
        (lambda x: np.where(x == x.max(), np.float32(np.nan), x), 3),
        (lambda x: x + np.float32(2), 3),
        (lambda x: x[:, :, :4], 2),
        (lambda x: x.astype(np.float64), 2),
    ],
    ids=["good", "nan", "range", "shape", "dtype"],
)
def test_run_ends_with_the_engines_exit_code(
    delivered: Delivered, tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], code: int
) -> None:
    value = np.random.default_rng(1).random((1, 1, 8, 8), dtype=np.float32)
    done = engine_call(delivered, change(value), tmp_path)
    assert done.returncode == code, done.stderr
    assert (tmp_path / "o" / "prob.npy").exists() == (code == 0)
    if code:
        assert len(done.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "o").exists()
