"""A GPU engine in the hands of its users, on a machine without a GPU: every command works on it, or says why not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from needs import needs_nvcc, no_gpu
from tiny_models import tiny_model_bytes

from compiler_kernels.compile import freeze_model, generate_frozen
from compiler_kernels.errors import UnsupportedError
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import nvcc
from compiler_kernels.toolchain.emulator import emulated_driver
from compiler_kernels.toolchain.engines import CUDA_FILE
from compiler_kernels.toolchain.sealed import file_sha256
from cuvil_assets.cli import main
from evidence.bisect import bisect
from evidence.decisions.sides import EngineSide
from evidence.equivalence import EMULATED

pytestmark = [
    needs_nvcc,
    no_gpu,
]
POLICY = """\
version: 1
model: {name: tiny, version: "1.0"}
inputs: {image: {finite: true, range: [0.0, 1.0]}}
coverage: {}
decisions: {pneumonia: {when: "prob[0, 1] > 0.5", requirements: [R1]}}
audit: {sessions: {inputs: keep, required: false}}
budget: {memory_mb: 10}
sbom: {manufacturer: Example}
"""
Cli = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True)
class Case:
    """A built engine, an input, the directory of an emulated driver, and the home it was built in."""

    engine: Path
    image: Path
    driver: Path
    home: Path


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("gpu-product")
    (folder / "model.onnx").write_bytes(tiny_model_bytes(batch=1))
    (folder / "policy.yaml").write_text(POLICY)
    np.save(folder / "x.npy", np.random.default_rng(1).random((1, 1, 8, 8), dtype=np.float32))
    engine = folder / "out" / "inference-engine.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUVIL_HOME", str(folder / "home"))
        words = ["build", "--model", folder / "model.onnx", "--policy", folder / "policy.yaml", "--output", engine]
        assert main([*map(str, words), "--target", "cuda-sm_90", "--equivalence-inputs", "2"]) == 0
    (folder / "driver").mkdir()
    files = generate_frozen(freeze_model(tiny_model_bytes(batch=1)), resolve_target("cuda-sm_90"))
    emulated_driver(files[CUDA_FILE], "sm_90", folder / "driver")
    return Case(engine, folder / "x.npy", folder / "driver", folder / "home")


@pytest.fixture
def cli(case: Case, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """``cli(words...)`` in the home of the engine, to ``(exit code, standard output, standard error)``."""
    monkeypatch.setenv("CUVIL_HOME", str(case.home))

    def call(*words: str | Path) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_the_budget_counts_every_byte_of_device_memory(case: Case) -> None:
    done = subprocess.run([case.engine, "--version", "--json"], capture_output=True, check=True)
    (record,) = (case.home / "builds").glob("*/budget.json")
    facts = json.loads(record.read_bytes())["result"]["facts"]
    assert facts["memory_bytes"] == json.loads(done.stdout)["device_bytes"]
    assert facts["memory_limit_bytes"] == 10_000_000 and facts["verdict"] == "met"


def test_a_certificate_is_of_the_emulated_kernels_and_says_so(case: Case, cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("certificate", case.engine, "--input", case.image, "--layers", "--output", tmp_path / "c.json")
    assert code == 0, err
    assert out.rstrip().endswith(f"engine: {EMULATED}")
    report = json.loads((tmp_path / "c.json").read_text())
    assert report["target"] == "cuda-sm_90" and report["grade"] == EMULATED and report["certified"]


def test_the_clinical_logic_is_covered_without_a_gpu(case: Case, cli: Cli) -> None:
    code, out, err = cli("coverage", case.engine, "--json")
    assert code == 0, err
    assert json.loads(out)["totals"]["mcdc_masking"]["percent"] == 100


def test_a_session_names_the_device_and_is_replayed(
    case: Case, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", case.engine, "--input", case.image, "--output-dir", tmp_path / "out")
    session = ("--session", tmp_path / "archive", "--subject", "alice")
    code, _, err = cli(*words, *session)
    assert code == 4 and "this machine has no CUDA driver" in err and not (tmp_path / "out").exists()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(case.driver))
    assert cli(*words, *session)[0] == 0
    monkeypatch.delenv("LD_LIBRARY_PATH")
    code, out, _ = cli("session", "show", f"{tmp_path / 'archive'}:0")
    assert code == 0 and "device         no GPU: kernels emulated on the CPU, driver API 13.0" in out
    assert cli("session", "verify", tmp_path / "archive")[0] == 0
    code, out, err = cli("replay", f"{tmp_path / 'archive'}:0")
    assert code == 0 and "the same bits (cuda-sm_90, sm_90, threads 1, no GPU: kernels emulated" in out, err
    assert cli("erase", tmp_path / "archive", "--subject", "alice")[0] == 0
    code, out, _ = cli("replay", tmp_path / "archive")
    assert code == 0 and "1 not replayed" in out


def test_where_the_kernels_text_is_gone_nothing_is_emulated(
    case: Case, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "home"))
    code, _, err = cli("certificate", case.engine, "--input", case.image)
    assert code == 2 and "build it again on this machine" in err
    monkeypatch.setenv("CUVIL_HOME", str(case.home))
    (tmp_path / "alone").mkdir()
    alone = tmp_path / "alone" / "engine.bin"
    alone.write_bytes(case.engine.read_bytes())
    alone.chmod(0o755)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(case.driver))
    words = ("run", alone, "--input", case.image, "--output-dir", tmp_path / "out", "--subject", "bob")
    assert cli(*words, "--session", tmp_path / "archive")[0] == 0
    monkeypatch.delenv("LD_LIBRARY_PATH")
    code, _, err = cli("replay", f"{tmp_path / 'archive'}:0", "--engine", alone)
    assert code == 4 and "no NVIDIA GPU for cuda-sm_90 here" in err and "can not be emulated either" in err


def test_the_bill_of_materials_reaches_the_kernels_and_their_compiler(case: Case, cli: Cli) -> None:
    code, _, err = cli("sbom", case.engine)
    assert code == 0, err
    document = json.loads(case.engine.with_name("inference-engine.cdx.json").read_text())
    found = {c["bom-ref"]: c for c in document["components"]}
    needs = {d["ref"]: d.get("dependsOn", []) for d in document["dependencies"]}
    assert "file:kernels.cubin" in needs["file:weights.S"] and needs["file:kernels.cubin"] == ["file:kernels.cu"]
    assert "file:cuvil_device.h" in needs["file:kernels.cu"]
    assert {"file:cuvil_device.h", "file:kernels.cu", "file:cuvil_gpu.c"} <= set(found)
    tools = {c["bom-ref"]: c for c in document["formulation"][0]["components"]}
    compiler = {p["name"]: p["value"] for p in tools["tool:nvcc"]["properties"]}
    for name in ("nvcc", "cicc", "ptxas"):
        digest = compiler[f"cuvil:program-sha256:{name}"]
        programs = [*Path("/usr/local").glob(f"cuda*/**/{name}"), nvcc.find_nvcc().parent / name]
        real = {file_sha256(p) for p in programs if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"}
        assert not real or digest in real


def test_results_that_somebody_would_use_are_never_emulated(case: Case, tmp_path: Path) -> None:
    """``run`` becomes the engine; ``decisions`` compares answers on a test set."""
    command = [sys.executable, "-m", "cuvil_assets.cli"]
    words = ["run", case.engine, "--input", case.image, "--output-dir", tmp_path / "out"]
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 4 and done.stderr.count("\n") == 1 and "run it where nvidia-smi lists" in done.stderr
    assert not (tmp_path / "out").exists()
    with pytest.raises(UnsupportedError, match="no CUDA driver"):
        EngineSide(case.engine).answer(np.load(case.image))


DEFECTS = [
    ("const int h = k / 8;", "const int h = 7 - k / 8;", "pool"),  # a mean's rows in the other order, where it is fused
    ("ca1_add_v1(e0_v[t], ca1_set1_v1(0.0f))", "ca1_set1_v1(0.0f)", "gemm"),  # no bias
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "wrong", "node"), DEFECTS)
def test_a_defect_of_one_kernel_is_found_at_its_node(
    text: str, wrong: str, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted in the kernels' text alone: weights, graph and plan are those of the CPU's engine."""
    from evidence import bisect_systems

    def broken(*words: object) -> dict[str, bytes]:
        files = dict(generate_frozen(*words))
        assert files[CUDA_FILE].count(text.encode()) <= 1
        files[CUDA_FILE] = files[CUDA_FILE].replace(text.encode(), wrong.encode())
        return files

    monkeypatch.setattr(bisect_systems, "generate_frozen", broken)
    found = bisect("cuvil@x86_64-linux-musl", "cuvil@cuda-sm_90", tiny_model_bytes(batch=1))
    assert found.difference is not None and found.difference.node == node and found.difference.ulp >= 1
