"""The second generator beside the first in ``cuvil reproduce``: what is compared, and what is said without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from needs import needs_nvcc, no_gpu

sys.path.insert(0, str(Path(__file__).parent.parent / "cuda"))

from onnx_builder import Builder
from test_triton_text import _generated

from compiler_kernels.stage import sha3_512_hex
from compiler_kernels.targets.registry import resolve_target
from compiler_kernels.toolchain import nvcc, triton
from compiler_kernels.toolchain.emulator import emulated_driver
from compiler_kernels.toolchain.engines import build_engine
from cuvil_assets.cli import main
from cuvil_assets.cli.sbom import statement_of
from cuvil_assets.home import Home
from cuvil_assets.store import ContentStore
from evidence.equivalence import Trial
from evidence.reproducibility import second
from evidence.reproducibility.inputs import recorded_build
from evidence.reproducibility.second import compare_with_second, outputs_of_both

pytestmark = [
    pytest.mark.slow,
    needs_nvcc,
    pytest.mark.skipif(triton.installed_version() != triton.VERSION, reason=f"needs Triton {triton.VERSION}"),
    no_gpu,
]
TARGET = "cuda-sm_90"
KINDS = ("cuda", "triton")


def _model() -> bytes:
    b = Builder()
    b.output(b.op("Softmax", b.op("MatMul", b.input(8, 70), b.constant(70, 24)), axis=-1))
    return b.model()


def _policy(kernels: str) -> bytes:
    return (
        "version: 1\nmodel: {name: m, version: '1'}\nreproducibility: {rebuilds: 1, compilers: [zig, triton]}\n"
        f"gpu: {{kernels: {kernels}}}\n"
    ).encode()


@pytest.mark.parametrize("kernels", KINDS)
def test_without_a_gpu_the_second_engine_is_compiled_and_the_report_says_no_more(
    kernels, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "home"))
    (tmp_path / "m.onnx").write_bytes(_model())
    (tmp_path / "p.yaml").write_bytes(_policy(kernels))
    engine = tmp_path / "out" / "inference-engine.bin"
    words = ["build", "--model", tmp_path / "m.onnx", "--policy", tmp_path / "p.yaml", "--output", engine]
    assert main([*map(str, words), "--target", TARGET, "--equivalence-inputs", "1"]) == 0
    capsys.readouterr()
    assert main(["reproduce", str(engine), "--fresh-caches", "0"]) == 3
    assert "the policy asks for triton as a second compiler" in capsys.readouterr().err
    report = json.loads(engine.with_name("inference-engine.reproducibility.json").read_text())
    assert (report["rebuilds"], report["equal"], report["differences"]) == (1, 1, [])
    found = report["second_compiler"]
    assert (found["name"], found["verdict"], found["inputs"]) == ("triton", "not executed", 0)
    assert "were compiled and passed the gate; there is no NVIDIA GPU" in found["sentence"]
    assert found["compiler"]["name"] == ("nvcc" if kernels == "triton" else "triton")

    store = ContentStore(Home(tmp_path / "home").store)
    recorded = recorded_build(statement_of(engine), store.find, {})
    if kernels == "cuda":  # it is the engine that a build with the other policy makes
        files = _generated(_policy("triton"), _model(), TARGET)
        assert sha3_512_hex(build_engine(files, resolve_target(TARGET)).data) == found["engine_sha3_512"]
        with monkeypatch.context() as without:
            without.setattr(nvcc, "find_nvcc", lambda: None)
            lacking = compare_with_second(recorded, store.find)
        assert lacking.verdict == "not executed" and "pip install 'cuvil[cuda]'" in lacking.sentence
        monkeypatch.setattr(second, "installed_version", lambda: "")
        assert "pip install 'cuvil[triton]'" in compare_with_second(recorded, store.find).sentence


def test_outputs_of_both_engines_are_compared_to_the_bit(tmp_path):
    engines = []
    for kernels in KINDS:
        files = _generated(_policy(kernels), _model(), TARGET)
        (tmp_path / kernels).mkdir()
        words = emulated_driver(files["kernels.cu"], "sm_90", tmp_path / kernels)
        engines.append((build_engine(files, resolve_target(TARGET)).data, words))
        weights = files["engine_weights.bin"]
    rng = np.random.default_rng(3)
    [name] = [t["name"] for t in _inputs(engines[0], tmp_path)]
    sets = [{name: rng.standard_normal((8, 70)).astype(np.float32)} for _ in range(2)]
    trials = [Trial({}, None, None, sets)]  # the graphs are not read here
    assert outputs_of_both(engines, trials) == (2, 2, [])

    data, words = engines[1]
    at = data.find(weights[:256]) + 2
    assert at > 2
    planted = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
    runs, outputs, differing = outputs_of_both([engines[0], (planted, words)], trials)
    assert (runs, outputs, len(differing)) == (2, 2, 2) and differing[0].startswith("input 0, output ")


def _inputs(engine, folder):
    data, words = engine
    (folder / "engine.bin").write_bytes(data)
    (folder / "engine.bin").chmod(0o755)
    done = subprocess.run([*words, folder / "engine.bin", "--version", "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)["inputs"]
