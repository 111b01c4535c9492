"""compile_model and load_engine: the library's front door."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import small_models

from compiler_kernels import compile_model, load_engine
from compiler_kernels.compile import freeze_model, native_target
from compiler_kernels.engine import Engine
from compiler_kernels.errors import RefusedError, UnsupportedError, UsageError
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.targets.isa import SCALAR, VARIANTS
from compiler_kernels.targets.registry import runs_natively
from evidence.reference import load_graph, run

pytestmark = pytest.mark.skipif(not runs_natively(native_target()), reason="no engine runs natively here")

POLICY = """
version: 1
model: {name: pair, version: "2.5"}
inputs:
  a: {finite: true, range: [-10.0, 10.0]}
  b: {shape: [2, 3]}
outputs:
  y: {range: [-50.0, 50.0]}
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Engine:
    folder = tmp_path_factory.mktemp("pair")
    (folder / "policy.yaml").write_text(POLICY)
    return load_engine(
        compile_model(small_models.two_inputs(), policy=folder / "policy.yaml", output=folder / "pair.so")
    )


def expected(model: bytes, inputs):
    frozen = freeze_model(model)
    graph = load_graph(neutral_json(frozen.module.main), pack(frozen.module.main, frozen.store))
    values = run(graph, inputs)
    return {name: values[vid] for vid, name in graph.outputs}


def test_import_is_cheap():
    script = (
        "import sys, compiler_kernels; print([m for m in ('numpy', 'onnx', 'pydantic', 'ctypes') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    with pytest.raises(ImportError):
        from compiler_kernels import nothing_of_this_name  # noqa: F401


@pytest.mark.parametrize("isas", [None, *[(isa,) for isa in VARIANTS[native_target().machine]], (SCALAR,), ("scalar",)])
def test_bits_are_the_references_for_every_instruction_set(isas, tmp_path):
    model = small_models.residual()
    x = np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype(np.float32)
    engine = load_engine(compile_model(model, isas=isas, output=tmp_path / "e.so"))
    got = engine.run(x)
    want = expected(model, {"x": x})
    assert got["p"].tobytes() == want["p"].tobytes()
    assert engine.isa == engine.isas[0] or isas is None
    if isas is not None:
        assert len(engine.isas) == 1


def test_fields(pair):
    assert (pair.model, pair.version, pair.arithmetic) == ("pair", "2.5", "CA-1")
    assert [t.name for t in pair.inputs] == ["a", "b"] and pair.inputs[1].shape == (2, 3)
    assert pair.inputs[0].finite and (pair.inputs[0].low, pair.inputs[0].high) == (-10.0, 10.0)
    assert pair.outputs[0].low == -50.0 and pair.target == native_target().triple
    assert len(pair.frozen_graph) == 128 and len(pair.weights_digest) == 128 and len(pair.config_digest) == 128
    assert pair.steps and all(step.items > 0 and step.kernel.endswith(pair.isa) for step in pair.steps)


def test_run_checks_and_copies(pair):
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)
    first = pair.run({"a": a, "b": b})["y"]
    assert first.tolist() == (a * 3).tolist()
    second = pair.run({"a": b[::-1], "b": np.asfortranarray(a)})["y"]
    assert second.tolist() == (2 * a + 2).tolist() and first.tolist() == (a * 3).tolist()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"a": np.zeros((2, 3), "f4")}, "input 'b' is missing"),
        ({"a": np.zeros((2, 3), "f4"), "b": np.zeros((2, 3))}, "input 'b' is float64"),
        ({"a": np.zeros((3, 2), "f4"), "b": np.zeros((2, 3), "f4")}, "float32 (3, 2) where the engine takes"),
        ({"a": np.zeros((2, 3), "f4"), "c": np.zeros((2, 3), "f4")}, "no input 'c': its inputs are 'a', 'b'"),
        (np.zeros((2, 3), "f4"), "has 2 inputs"),
    ],
)
def test_wrong_inputs_are_one_sentence(pair, inputs, words):
    with pytest.raises(UsageError) as caught:
        pair.run(inputs)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("a", "words"), [(np.nan, "value"), (10.5, "10.5"), (-np.inf, "index (0, 0)")])
def test_guards_of_the_policy(pair, a, words):
    good = np.ones((2, 3), np.float32)
    bad = good.copy()
    bad[0, 0] = a
    with pytest.raises(RefusedError, match="guard") as caught:
        pair.run({"a": bad, "b": good})
    assert words in str(caught.value)
    with pytest.raises(RefusedError, match="output 'y'"):
        pair.run({"a": good * 9, "b": good * 9})
    assert pair.run({"a": good * 10, "b": good * 4})["y"][0, 0] == 50.0


def test_nan_is_canonical():
    engine = load_engine(compile_model(small_models.two_inputs(), input_shapes={"b": (2, 3)}))
    a = np.full((2, 3), 1, np.float32)
    a.view(np.uint32)[0, 0] = 0xFF800001
    assert engine.run({"a": a, "b": a})["y"].view(np.uint32)[0, 0] == 0x7FC00000


def test_program_and_default_place(tmp_path, monkeypatch):
    monkeypatch.setenv("CUVIL_HOME", str(tmp_path / "home"))
    program = compile_model(small_models.residual(), kind="bin")
    assert program.parent == tmp_path / "home" / "engines" and program.suffix == ".bin"
    answer = json.loads(subprocess.run([program, "--version", "--json"], capture_output=True, check=True).stdout)
    assert answer["model"] == "model" and answer["model_version"] == "0"
    assert [s["kernel"] for s in answer["steps"]]
    assert compile_model(small_models.residual(), kind="bin") == program


def test_refusals(tmp_path):
    model = small_models.residual()
    with pytest.raises(UsageError, match="cannot be read"):
        compile_model(tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="cannot be read"):
        compile_model(model, policy=tmp_path / "none.yaml")
    with pytest.raises(UnsupportedError, match="no target 'riscv64'"):
        compile_model(model, target="riscv64")
    with pytest.raises(UnsupportedError, match="no instruction set 'mmx'"):
        compile_model(model, isas=["mmx"])
    with pytest.raises(UsageError, match="no kind of engine"):
        compile_model(model, kind="dll")
    with pytest.raises(UsageError, match="isas is empty"):
        compile_model(model, isas=[])
    with pytest.raises(UsageError, match="cannot be written"):
        compile_model(model, output=tmp_path / "no" / "x.so")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="it does not exist"):
        load_engine(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("hello")
    with pytest.raises(UsageError, match="cannot be loaded as an engine"):
        load_engine(tmp_path / "text.so")


def test_another_machines_engine_is_refused(tmp_path):
    other = "aarch64-linux-musl" if native_target().machine == "x86_64" else "x86_64-linux-musl"
    path = compile_model(small_models.two_inputs(), input_shapes={"b": (2, 3)}, target=other, output=tmp_path / "o.so")
    with pytest.raises(UsageError, match="cannot be loaded as an engine"):
        load_engine(path)


def test_two_engines_side_by_side(tmp_path):
    """Two files are two instances, also when their content is equal."""
    one = compile_model(small_models.residual(), output=tmp_path / "one.so")
    Path(tmp_path / "two.so").write_bytes(one.read_bytes())
    first, second = load_engine(one), load_engine(tmp_path / "two.so")
    x = np.random.default_rng(2).standard_normal((2, 1, 3, 12, 12)).astype(np.float32)
    first.set_inputs(x[0])
    second.set_inputs(x[1])
    first.infer()
    second.infer()
    alone = load_engine(one).run(x[1])["p"]
    assert second.get_outputs()["p"].tobytes() == alone.tobytes()
