"""``cuvil bench``, ``cuvil bisect`` and ``cuvil run --threads`` on real engines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_case import Cli, CliJson, Delivered
from onnx import numpy_helper
from tiny_models import ModelMaker, tiny_model_bytes

from compiler_kernels.compile import native_target
from compiler_kernels.targets.registry import runs_natively
from evidence.timing.bench import failed

pytestmark = pytest.mark.skipif(not runs_natively(native_target()), reason="no engine runs natively here")
PIN = ("--input-shape", "image=1,1,8,8")


def test_bench_prints_a_table_and_draws(cli: Cli, home: Path, tiny_model: ModelMaker, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "p.png"
    words = ("bench", tiny_model(), "--peers", "none", "--runs", "2", *PIN, "--picture", picture)
    code, out, err = cli(*words)
    # Few inferences of a small model on a busy machine may look too slow: then the benchmark says so and ends with 1.
    assert code == (1 if "FAILED" in out else 0), out + err
    assert "tiny-0" in out and "measured peak" in err
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bench_json_is_one_object_with_samples_and_layers(
    cli_json: CliJson, home: Path, tiny_model: ModelMaker
) -> None:
    pytest.importorskip("onnxruntime")
    code, document = cli_json("bench", tiny_model(), "--peers", "onnxruntime", "--runs", "2", *PIN)
    # On a model this small and a busy machine the vector kernels may not show their speed: then it ends with 1.
    assert code == (1 if failed(document) else 0)
    (entry,) = document["models"]  # type: ignore[misc, attr-defined]
    assert set(entry["systems"]) == {"cuvil", "onnxruntime"}
    assert len(entry["systems"]["cuvil"]["samples_ns"]["cpu"]) == 2
    assert {layer["node"].split(" ")[0].split("+")[0] for layer in entry["layers"]} >= {"conv"}


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("bench", "absent.onnx"), 2, "absent.onnx: no such file"),
        (("bench", "MODEL", "--peers", "mxnet"), 2, "no peer 'mxnet'"),
        (("bench", "MODEL", "--runs", "0"), 2, "at least 1"),
        (("bench", "MODEL", "MODEL"), 2, "a second model"),
        (("bench", "MODEL", "--picture", "/nonexistent/p.png"), 2, "--picture"),
        (("bisect", "cuvil", "abacus", "MODEL", *PIN), 2, "there is no system 'abacus'"),
        (("bisect", "cuvil", "reference", "absent.onnx"), 2, "absent.onnx: no such model"),
        (
            ("bisect", "cuvil", "reference", "MODEL", *PIN, "--input", "absent.npy"),
            2,
            "--input absent.npy: cannot be read",
        ),
    ],
)
def test_wrong_words(
    cli: Cli, home: Path, tiny_model: ModelMaker, words: tuple[str, ...], code: int, sentence: str
) -> None:
    found, out, err = cli(*(str(tiny_model()) if word == "MODEL" else word for word in words))
    assert (found, out) == (code, "")
    assert sentence in err and err.startswith("cuvil: ") and err.count("\n") == 1


def test_bisect_of_equal_systems_ends_with_0(cli: Cli, home: Path, tiny_model: ModelMaker, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
    code, out, err = cli("bisect", "cuvil", "reference", tiny_model(), *PIN, "--input", tmp_path / "x.npy")
    assert code == 0, err
    assert "every tensor and every output has the same bits" in out


def test_bisect_names_the_node_and_ends_with_1(
    cli_json: CliJson, home: Path, tiny_model: ModelMaker, tmp_path: Path
) -> None:
    model = onnx.load_from_string(tiny_model_bytes())
    values = numpy_helper.to_array(model.graph.initializer[2]).copy()
    values[1, 1] += np.float32(0.25)
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(values, "m"))
    other = tmp_path / "other.onnx"
    other.write_bytes(model.SerializeToString())
    code, document = cli_json("bisect", "reference", "reference", tiny_model(), "--other-model", other, *PIN)
    assert code == 1
    difference = document["difference"]
    assert isinstance(difference, dict)
    assert difference["node"] == "gemm" and "constant" in difference["why"]


@pytest.mark.parametrize("threads", ["1", "3"])
def test_run_passes_threads_on(delivered: Delivered, tmp_path: Path, threads: str) -> None:
    import subprocess
    import sys

    image = tmp_path / "x.npy"
    np.save(image, np.full((1, 1, 8, 8), 0.5, np.float32))
    words = [sys.executable, "-m", "cuvil_assets.cli", "run", str(delivered.engine), "--input", str(image)]
    outputs = {}
    for number in (threads, "17"):
        out = tmp_path / f"out{number}"
        done = subprocess.run(
            [*words, "--output-dir", str(out), "--threads", number, "--json"],
            capture_output=True,
            text=True,
            check=False,
        )
        outputs[number] = (done.returncode, json.loads(done.stdout))
    assert outputs[threads][0] == 0
    # the engine itself refuses: the option reached it
    assert outputs["17"][0] == 2 and "from 1 to 16" in outputs["17"][1]["message"]
