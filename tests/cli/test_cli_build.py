"""The commands on a real engine: build, verify, explain, and what changes nothing about the bytes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_case import Cli, CliJson, Delivered
from tiny_models import ModelMaker

import cuvil_assets
from compiler_kernels.targets.registry import TARGETS, runner

ROOT = Path(cuvil_assets.__file__).parents[1]
X86, ARM = "x86_64-linux-musl", "aarch64-linux-musl"


@pytest.fixture
def at_home(delivered: Delivered, monkeypatch: pytest.MonkeyPatch) -> Delivered:
    """The delivered engine, in the home that built it."""
    monkeypatch.setenv("CUVIL_HOME", str(delivered.home))
    return delivered


def build_words(model: Path, policy: Path, output: Path, target: str = X86) -> list[str]:
    words = ["build", "--model", str(model), "--policy", str(policy), "--target", target, "--output", str(output)]
    return [*words, "--equivalence-inputs", "4"]


def test_summary_and_notes_for_people(
    cli: Cli, home: Path, tmp_path: Path, tiny_model: ModelMaker, tiny_policy: Path
) -> None:
    output = tmp_path / "out" / "e.bin"
    code, out, err = cli(*build_words(tiny_model(), tiny_policy, output, "aarch64-linux-gnueabihf"))
    assert code == 0, err
    assert "made development keys" in err
    assert "aarch64-linux-gnueabihf is read as aarch64-linux-musl" in err
    assert "\x1b" not in err + out
    graded = "passed" if runner(TARGETS[ARM]) is not None else "not executed"
    assert f"{graded} (" in out
    assert str(output) in out
    assert [line.split()[0] for line in err.splitlines() if line.startswith("  ")][:2] == ["source_model", "ir_l0"]


def test_json_names_files_digests_and_cpu(
    cli_json: CliJson, at_home: Delivered, tmp_path: Path, tiny_model: ModelMaker, tiny_policy: Path
) -> None:
    code, document = cli_json(
        *build_words(tiny_model(), tiny_policy, tmp_path / "e.bin"), "--input-shape", "image=1,1,8,8"
    )
    assert code == 0
    assert document["equivalence"] == "passed"
    assert document["files"] == {
        "bin": str(tmp_path / "e.bin"),
        "proof": str(tmp_path / "e.proof.json"),
        "equivalence": str(tmp_path / "e.equivalence.json"),
    }
    assert len(str(document["engine_sha3_512"])) == 128
    assert isinstance(document["stages"], dict)
    assert len(document["stages"]) == 10
    assert (tmp_path / "e.bin").read_bytes() == at_home.engine.read_bytes()


def test_emit_writes_sources_and_libraries(
    cli: Cli, at_home: Delivered, tmp_path: Path, tiny_model: ModelMaker, tiny_policy: Path
) -> None:
    code, _, err = cli(*build_words(tiny_model(), tiny_policy, tmp_path / "e.bin"), "--emit", "src,so,lib,memory")
    assert code == 0, err
    assert (tmp_path / "e.so").read_bytes()[:4] == b"\x7fELF"
    assert (tmp_path / "e.a").read_bytes()[:8] == b"!<arch>\n"
    assert "cuvil_engine" in (tmp_path / "e.h").read_text()
    assert json.loads((tmp_path / "e.memory.json").read_bytes())["arena_bytes"] > 0
    assert (tmp_path / "e.memory.svg").read_bytes().startswith(b"<svg ")
    assert [p.name for p in (tmp_path / "e.src").iterdir() if p.suffix == ".json"] == ["probes.json"]
    assert {"engine.c", "cuvil_main.c", "cuvil_engine.h"} <= {p.name for p in (tmp_path / "e.src").iterdir()}
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert cli(*build_words(tiny_model(), tiny_policy, tmp_path / "e.bin"), "--emit", "src")[0] == 0


def test_verify_says_development_or_given(cli: Cli, cli_json: CliJson, at_home: Delivered) -> None:
    code, out, err = cli("verify", at_home.engine)
    assert (code, err) == (0, "")
    assert "trust: development" in out.splitlines()
    code, document = cli_json(
        "verify", at_home.engine, "--trust-root", at_home.home / "keys" / "trust-root.json", "--proof", at_home.proof
    )
    assert (code, document["ok"], document["trust"]) == (0, True, "given")


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("what", "check"),
    [("engine", "subject-digest"), ("payload", "signature-sm2"), ("sm2", "signature-sm2"), ("p384", "signature-p384")],
)
def test_one_flipped_byte_is_named(
    cli: Cli, cli_json: CliJson, at_home: Delivered, tmp_path: Path, what: str, check: str
) -> None:
    engine, proof = tmp_path / at_home.engine.name, tmp_path / at_home.proof.name
    data, document = at_home.engine.read_bytes(), json.loads(at_home.proof.read_text())
    if what == "engine":
        data = flipped(data, len(data) // 2)
    elif what == "payload":
        document["payload"] = base64.b64encode(flipped(base64.b64decode(document["payload"]), 500)).decode()
    else:
        signature = document["signatures"][0 if what == "sm2" else 1]
        signature["sig"] = base64.b64encode(flipped(base64.b64decode(signature["sig"]), 20)).decode()
    engine.write_bytes(data)
    proof.write_text(json.dumps(document, indent=2))
    code, out, err = cli("verify", engine)
    assert code == 1
    assert err.strip().endswith(f"[{check}]")
    assert len(err.splitlines()) == 1
    assert f"failed       {check}" in out
    code, report = cli_json("verify", engine)
    assert (code, report["ok"], report["check"]) == (1, False, check)


def test_explain_follows_a_node_to_its_c_function(cli: Cli, cli_json: CliJson, at_home: Delivered) -> None:
    code, out, _ = cli("explain", at_home.engine)
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    (kernel,) = (row[2] for row in rows if row[:2] == ["conv", "conv"])
    assert re.fullmatch(r"k\d+_conv_relu", kernel)
    code, document = cli_json("explain", at_home.engine, "--node", "relu")
    assert code == 0
    assert document["kernel"] == kernel
    statements, source = document["statements"], str(document["c_function"])
    assert isinstance(statements, dict)
    assert statements["l0"][0].startswith("%")
    assert any("fused.conv_relu" in line for line in statements["l1"])
    assert any(f"call.{kernel}" in line for line in statements["l2"])
    assert kernel in source
    assert source.rstrip().endswith("}")
    assert source.count("{") == source.count("}")
    code, out, _ = cli("explain", at_home.engine, "--node", "conv_does_not_exist")
    assert code == 2


def test_explain_shows_model_and_evidence_of_a_node(cli: Cli, cli_json: CliJson, at_home: Delivered) -> None:
    code, out, _ = cli("explain", at_home.engine, "--node", "conv")
    assert code == 0
    titles = re.findall(r"^-- (.*)$", out, flags=re.MULTILINE)
    assert [title.partition(":")[0] for title in titles] == [
        "the model", "L0", "frozen graph", "L1", "L2", "L2", "back", "C", "test", "evidence"
    ]  # fmt: skip
    assert "%c = Conv[pads = [1, 1, 1, 1]](%image, %w, %b)" in out
    assert "passed (executed natively): 4 inputs, 0 of " in out
    assert "tensor c: rms error against binary64" in out
    code, document = cli_json("explain", at_home.engine, "--node", "conv")
    records = {str(r["stage"]): r for r in document["records"]}  # type: ignore[attr-defined]
    assert {"source_model", "frozen_graph", "ir_l2", "engine", "equivalence"} <= set(records)
    engine = hashlib.sha3_512(at_home.engine.read_bytes()).hexdigest()
    assert records["engine"]["sha3_512"] == engine
    assert document["equivalence"]["verdict"] == "passed"  # type: ignore[index]
    assert [row["tensor"] for row in document["tensors"]] == ["c"]  # type: ignore[attr-defined]


def test_explain_goes_back_from_kernel_and_c_function(cli: Cli, cli_json: CliJson, at_home: Delivered) -> None:
    _, forward = cli_json("explain", at_home.engine, "--node", "relu")
    kernel, source = str(forward["kernel"]), str(forward["c_function"])
    functions = [name for name in re.findall(r"void (\w+)\(", source) if kernel in name]
    assert functions
    for name in (kernel, *functions):
        code, document = cli_json("explain", at_home.engine, "--node", name)
        assert (code, document["kernel"], document["nodes"]) == (0, kernel, ["conv", "relu"])
        assert document["c_function"] == source
        assert any(f"call.{kernel}" in line for line in document["calls"])  # type: ignore[attr-defined]
    code, out, _ = cli("explain", at_home.engine, "--node", kernel)
    assert code == 0
    assert f"kernel {kernel}\n\n-- the model: nodes it computes\nconv\nrelu\n" in out
    assert cli("explain", at_home.engine, "--node", f"{kernel}_and_more_2")[0] == 2


def test_explain_exports_mlir(cli: Cli, cli_json: CliJson, at_home: Delivered) -> None:
    code, out, _ = cli("explain", at_home.engine, "--ir", "mlir")
    assert code == 0
    assert out.startswith('module attributes {cuvil.level = "frozen", ')
    assert 'cuvil.target = "x86_64-linux-musl"' in out and 'cuvil.node = "gemm"' in out
    assert cli_json("explain", at_home.engine, "--ir", "mlir") == (0, {"ir": "mlir", "text": out})


@pytest.mark.parametrize("level", ["l0", "frozen", "l1", "l2"])
def test_explain_prints_a_level(cli: Cli, at_home: Delivered, level: str) -> None:
    code, out, _ = cli("explain", at_home.engine, "--ir", level)
    assert code == 0
    assert out.startswith(f"cuvil.ir level={level} ")


def test_explain_without_the_files_says_what_to_do(cli: Cli, delivered: Delivered, home: Path) -> None:
    code, _, err = cli("explain", delivered.engine)
    assert code == 2
    assert "build it again" in err


def test_keys_are_made_once(cli: Cli, cli_json: CliJson, home: Path) -> None:
    code, first = cli_json("keys", "init")
    assert (code, first["created"], first["grade"]) == (0, True, "development")
    code, again = cli_json("keys", "init")
    assert (code, again["created"], again["keys"]) == (0, False, first["keys"])
    assert "found the key set" in cli("keys", "init")[1]


def test_doctor_lists_the_targets(cli: Cli, cli_json: CliJson, home: Path) -> None:
    code, out, _ = cli("doctor")
    assert code == 0
    assert all(triple in out for triple in TARGETS)
    assert cli_json("doctor")[1]["ok"] is True


def test_version(cli: Cli) -> None:
    code, out, _ = cli("--version")
    assert code == 0
    assert out.startswith("cuvil ")


def checkout(folder: Path) -> Path:
    for room in ("compiler_kernels", "evidence", "cuvil_assets"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("target", [X86, ARM])
def test_same_bytes_from_two_checkouts(
    tmp_path: Path, tiny_model: ModelMaker, tiny_policy: Path, target: str, home: Path
) -> None:
    """Other directories, home, umask, time zone, locale and SOURCE_DATE_EPOCH, nothing from a cache."""
    engines, reports = [], []
    for number, (folder, mask, changes) in enumerate(
        [
            ("a", 0o022, {"TZ": "UTC", "LC_ALL": "C"}),
            ("deeper/b b", 0o077, {"TZ": "Asia/Shanghai", "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "1700000000"}),
        ]
    ):
        tree = checkout(tmp_path / folder)
        model = shutil.copy(tiny_model(), tree / "model.onnx")
        policy = shutil.copy(tiny_policy, tree / "policy.yaml")
        output = tree / "out" / "inference-engine.bin"
        done = subprocess.run(
            [sys.executable, "-m", "cuvil_assets.cli", *build_words(model, policy, output, target), "--no-cache"],
            cwd=tree,
            env={**os.environ, "CUVIL_HOME": str(home / str(number)), **changes},
            umask=mask,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        engines.append(output.read_bytes())
        reports.append(output.with_name("inference-engine.equivalence.json").read_bytes())
        assert output.stat().st_mode & 0o777 == 0o755
    assert engines[0] == engines[1]
    assert reports[0] == reports[1]
