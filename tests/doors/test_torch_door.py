"""torch modules and exported programs through ONNX to engines: results, names, bytes that repeat, refusals."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'cuvil[torch]')")
pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install 'cuvil[torch]')")

import nets  # noqa: E402

import cuvil  # noqa: E402
from compiler_kernels.doors import convert  # noqa: E402
from compiler_kernels.doors.torch_door import export_module  # noqa: E402
from compiler_kernels.doors.torch_file import convert_module, convert_program  # noqa: E402
from compiler_kernels.errors import UnsupportedError, UsageError  # noqa: E402
from compiler_kernels.stage import sha3_512_hex  # noqa: E402
from cuvil_assets.builder import build  # noqa: E402
from cuvil_assets.home import Home  # noqa: E402
from cuvil_assets.inputs import BuildOptions  # noqa: E402
from cuvil_assets.records import BuildRecords  # noqa: E402
from cuvil_assets.store import ActionCache  # noqa: E402
from evidence.verifier.verify import verify_engine  # noqa: E402

FILE = Path(__file__).with_name("nets.py")
IMAGE = {"image": (1, 1, 16, 16)}


def engine_results(model: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    return cuvil.InferenceSession(model).run(None, {name: value.numpy() for name, value in feeds.items()})


@pytest.mark.parametrize(
    "wanted",
    [((1, 16), (2, 24)), pytest.param(((1, 16), (2, 24), (3, 16), (1, 48)), marks=pytest.mark.slow)],
    ids=["two", "four"],
)
def test_one_model_with_symbolic_batch_and_height_matches_torch_for_several_sizes(
    wanted: tuple[tuple[int, int], ...],
) -> None:
    net = nets.UNet().eval()
    batch, height = torch.export.Dim("batch"), torch.export.Dim("height")
    shapes = {"image": {0: batch, 2: height}}
    model = export_module(net, (torch.zeros(2, 1, 32, 16),), dynamic_shapes=shapes)
    session = cuvil.InferenceSession(model)
    assert session.get_inputs()[0].shape == ["batch", 1, "height", 16]
    for sizes in wanted:
        x = torch.randn(sizes[0], 1, sizes[1], 16)
        with torch.no_grad():
            expected = net(x).numpy()
        np.testing.assert_allclose(session.run(None, {"image": x.numpy()})[0], expected, rtol=1e-5, atol=1e-6)
    assert len(session._pool.loaded) == len(wanted)
    with pytest.raises(UsageError, match=r"node '/Concat' .* differ"):
        session.run(None, {"image": np.zeros((1, 1, 17, 16), np.float32)})


def test_attention_and_lstm_match_torch() -> None:
    net = nets.Encoder().eval()
    feeds = {"tokens": torch.randn(2, 5, 16), "gate": torch.randn(2, 16)}
    found = engine_results(export_module(net, (), feeds), feeds)
    with torch.no_grad():
        expected = net(**feeds)
    assert len(found) == 2
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_rounding_is_left_to_the_freeze_and_nodes_carry_module_names() -> None:
    net = nets.UNet()
    net.deep.eval()
    model = onnx.load_model_from_string(export_module(net, (torch.zeros(1, 1, 16, 16),)))
    assert "BatchNormalization" in {node.op_type for node in model.graph.node}
    names = [node.name for node in model.graph.node]
    assert {"/down/0/Conv", "/down/1/BatchNormalization", "/deep/Conv", "/up/ConvTranspose"} <= set(names)
    assert len(set(names)) == len(names)
    assert net.training and not net.deep.training  # the module is as it was


@pytest.mark.slow  # a process that imports torch costs 5 CPU-s; the build below makes one in every run
def test_files_convert_to_the_same_bytes_every_time_wherever_they_lie(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "nets.py"
    copy.parent.mkdir()
    shutil.copy(FILE, copy)
    first = convert(f"{FILE}:UNet", IMAGE)
    second = convert_module(copy, "factory", IMAGE)
    assert first.model == second
    assert str(tmp_path).encode() not in second and b"nets.py" not in second
    facts = dict(first.facts)
    assert facts["source_sha3_512"] == sha3_512_hex(FILE.read_bytes()) and first.source == FILE.read_bytes()
    assert facts["model_sha3_512"] == sha3_512_hex(first.model)
    exporter = facts["exporter"]
    assert isinstance(exporter, dict) and exporter["torch"] == torch.__version__
    assert (facts["door"], facts["source"], facts["entry"]) == ("torch", "nets.py", "UNet")


def test_weights_without_a_seed_are_the_same_every_time() -> None:
    assert convert_module(FILE, "Unseeded", {"x": (1, 4)}) == convert_module(FILE, "Unseeded", {"x": (1, 4)})


@pytest.mark.slow
def test_a_sentence_survives_the_process_it_was_made_in() -> None:
    with pytest.raises(UnsupportedError, match="changes 'seen' in place"):
        convert(f"{FILE}:Counts", {"x": (1,)})


def test_a_saved_program_and_a_file_with_examples(tmp_path: Path) -> None:
    net = nets.UNet().eval()
    x = torch.randn(1, 1, 16, 16)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    with torch.no_grad():
        expected = net(x).numpy()
    found = engine_results(convert_program(tmp_path / "net.pt2"), {"image": x})
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)
    text = "\nexample_inputs = (torch.zeros(2, 1, 16, 16),)\ndynamic_shapes = {'image': {0: torch.export.Dim('n')}}\n"
    (tmp_path / "own.py").write_text(FILE.read_text() + text)
    model = onnx.load_model_from_string(convert_module(tmp_path / "own.py", "UNet", {}))
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["n", 1, 16, 16]


@pytest.fixture(autouse=True)
def same_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executing a user's file in this process puts it among the modules; that is undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "nets", nets)


@pytest.mark.parametrize(
    ("name", "shapes", "kind", "sentence"),
    [
        ("UNet", {}, UsageError, r"the shape of 'image' is not known; add --input-shape image=SIZE"),
        ("UNet", {"picture": (1,)}, UsageError, "a shape is given for 'picture', but forward takes image"),
        ("Missing", {}, UsageError, "defines no 'Missing'"),
        ("nothing", {}, UsageError, r"nothing\(\) fails with TypeError: 'int' object is not callable"),
        ("Fails", {}, UsageError, r"Fails\(\) fails with RuntimeError: the weights are at home, at line \d+"),
        ("Decides", {"x": (2, 2)}, UnsupportedError, "nets.py:Decides: torch.export cannot capture Decides: .*at line"),
        ("Counts", {"x": (1,)}, UnsupportedError, "changes 'seen' in place"),
    ],
)
def test_what_cannot_be_converted_gets_a_sentence(
    name: str, shapes: dict[str, tuple[int, ...]], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        convert_module(FILE, name, shapes)
    assert "\n" not in str(caught.value)


def test_files_that_are_none_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "exits.py").write_text("import os\nprint('bye')\nos._exit(7)\nNet = None\n")
    (tmp_path / "text.pt2").write_text("no program")
    with pytest.raises(UsageError, match=r"gone\.py: cannot be read"):
        convert(f"{tmp_path}/gone.py:Net")
    with pytest.raises(UsageError, match=r"broken\.py: is not a Python file \(.* at line 1\)"):
        convert(f"{tmp_path}/broken.py:Net")
    with pytest.raises(UsageError, match=r"name what to compile in it, as in broken\.py:Net"):
        convert(f"{tmp_path}/broken.py")
    with pytest.raises(UsageError, match=r"ended with 7 and without a model"):
        convert(f"{tmp_path}/exits.py:Net")
    with pytest.raises(UsageError, match=r"text\.pt2: is not a program that torch .* can load"):
        convert_program(tmp_path / "text.pt2")


def test_a_build_from_a_file_starts_its_chain_at_the_file(home: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("version: 1\nmodel: {name: door, version: '1'}\n")
    options = BuildOptions(
        Path(f"{FILE}:UNet"), tmp_path / "policy.yaml", "x86_64-linux-musl", tmp_path / "e.bin", IMAGE,
        equivalence_inputs=1,
    )  # fmt: skip
    outcome = build(options)
    assert outcome.facts["equivalence"] == "passed"
    assert verify_engine(outcome.engine, outcome.proof).ok
    statement = json.loads(base64.b64decode(json.loads(outcome.proof.read_bytes())["payload"]))
    assert statement["predicate"]["sources"]["model.source"] == sha3_512_hex(FILE.read_bytes())
    record = BuildRecords(Home(home), ActionCache(Home(home).store), str(outcome.facts["build"])).read("source_model")
    assert record.result.artifact("source/nets.py").data == FILE.read_bytes()
    conversion = record.result.facts["conversion"]
    assert isinstance(conversion, dict)
    assert conversion["exporter"]["torch"] == torch.__version__ and conversion["entry"] == "UNet"
    again = build(options).facts["stages"]
    assert isinstance(again, dict) and all(stage["cache_hit"] for stage in again.values())
