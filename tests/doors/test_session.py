"""``InferenceSession``: signatures like onnxruntime's, engines kept by digest, private memory, threads, sentences."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from door_models import odd_signature, two_branches
from tiny_models import POLICY, tiny_model_bytes

import cuvil
from compiler_kernels.errors import RefusedError, UnsupportedError
from cuvil.capi import onnxruntime_pybind11_state as states
from cuvil.model import read_signature

X = np.random.default_rng(0).random((2, 1, 8, 8), dtype=np.float32)


def private_libraries() -> int:
    """How many private copies of engines this process has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if ".private-" in line})


def feed(seed: int, batch: int = 2) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal((batch, 6)).astype(np.float32) for name in "ab"}


@pytest.mark.parametrize("data", [two_branches(), odd_signature(), tiny_model_bytes()], ids=["branches", "odd", "tiny"])
def test_signature_and_metadata_are_those_onnxruntime_reads(data: bytes) -> None:
    peer = pytest.importorskip("onnxruntime").InferenceSession(data)
    ours = read_signature(data, "model.onnx")
    for mine, theirs in ((ours.inputs, peer.get_inputs()), (ours.outputs, peer.get_outputs())):
        assert [(a.name, a.type, a.shape) for a in mine] == [(a.name, a.type, a.shape) for a in theirs]
    meta = peer.get_modelmeta()
    found = ours.metadata
    for name in ("producer_name", "graph_name", "domain", "description", "graph_description", "custom_metadata_map"):
        assert getattr(found, name) == getattr(meta, name), name


def test_version_of_the_model() -> None:
    assert read_signature(two_branches(), "m").metadata.version == 4


def test_a_second_session_takes_the_kept_engine_and_a_damaged_one_is_compiled_again(home: Path) -> None:
    data = two_branches()
    expected = cuvil.InferenceSession(data).run(None, feed(1))
    (library,) = (home / "engines").glob("session-*.so")
    kept = library.stat().st_ino
    again = cuvil.InferenceSession(data).run(None, feed(1))
    assert library.stat().st_ino == kept
    library.write_bytes(library.read_bytes()[:-100])
    repaired = cuvil.InferenceSession(data).run(None, feed(1))
    assert library.stat().st_ino != kept
    for one, two, three in zip(expected, again, repaired, strict=True):
        assert one.tobytes() == two.tobytes() == three.tobytes()
    assert not list((home / "engines").glob(".private-*"))


def test_shapes_come_and_go_and_loaded_engines_are_limited() -> None:
    before = private_libraries()
    options = cuvil.SessionOptions()
    options.add_session_config_entry("cuvil.loaded_engines", "1")
    session = cuvil.InferenceSession(two_branches(), options)
    assert private_libraries() == before
    first = session.run(None, feed(2, batch=1))
    session.run(None, feed(2, batch=2))
    assert private_libraries() == before + 1
    assert [a.tobytes() for a in session.run(None, feed(2, batch=1))] == [a.tobytes() for a in first]
    assert session.run(["gate"], feed(2, batch=2))[0].shape == (2, 6)
    assert private_libraries() == before + 1
    del session
    assert private_libraries() == before


def test_sessions_of_one_model_share_no_memory_and_threads_take_turns() -> None:
    sessions = [cuvil.InferenceSession(two_branches()) for _ in range(2)]
    feeds = [feed(seed) for seed in range(8)]
    expected = [[a.tobytes() for a in sessions[0].run(None, f)] for f in feeds]
    sessions[1].run(None, feeds[0])
    views = [next(iter(s._pool._engines.values()))._input_views[0].ctypes.data for s in sessions]
    assert views[0] != views[1]
    wrong: list[int] = []

    def work(number: int) -> None:
        session = sessions[number % 2]
        for _ in range(100):
            if [a.tobytes() for a in session.run(None, feeds[number])] != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_weights_in_a_file_beside_the_model_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = onnx.load_model_from_string(two_branches())
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    assert b"m.data" in path.read_bytes()
    found = cuvil.InferenceSession(path).run(["sum"], feed(3))
    assert found[0].tobytes() == cuvil.InferenceSession(two_branches()).run(["sum"], feed(3))[0].tobytes()
    (tmp_path / "m.data").unlink()
    with pytest.raises(states.InvalidGraph, match=r"m\.onnx: the weights it keeps in another file cannot be read"):
        cuvil.InferenceSession(path)


def test_values_lists_and_bindings_are_taken() -> None:
    session = cuvil.InferenceSession(two_branches())
    arrays = feed(4)
    expected = session.run(["gate", "sum"], arrays)
    assert [a.tobytes() for a in session.run(["sum", "gate"], arrays)] == [a.tobytes() for a in expected[::-1]]
    lists = {name: array.tolist() for name, array in arrays.items()}
    assert session.run(["sum"], lists)[0].tobytes() == expected[1].tobytes()
    values = {name: cuvil.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    assert session.run_with_ort_values(["sum"], values)[0].numpy().tobytes() == expected[1].tobytes()
    binding = session.io_binding()
    binding.bind_cpu_input("a", arrays["a"])
    binding.bind_ortvalue_input("b", values["b"])
    target = cuvil.OrtValue(np.zeros((2, 6), np.float32))
    binding.bind_ortvalue_output("sum", target)
    session.run_with_iobinding(binding)
    assert target.numpy().tobytes() == expected[1].tobytes()
    binding.bind_ortvalue_output("sum", cuvil.OrtValue(np.zeros((1, 6), np.float32)))
    with pytest.raises(states.InvalidArgument, match=r"bound to the output 'sum' is float32 \(1, 6\) where"):
        session.run_with_iobinding(binding)


def test_a_dimension_is_fixed_by_name_and_a_policy_guards() -> None:
    options = cuvil.SessionOptions()
    options.add_free_dimension_override_by_name("N", 2)
    session = cuvil.InferenceSession(tiny_model_bytes(), options)
    assert session.get_inputs()[0].shape == [2, 1, 8, 8]
    assert len(session._pool.loaded) == 1  # nothing is left open: compiled at once
    with pytest.raises(states.InvalidArgument, match="axis 0 is 1 and must be 2"):
        session.run(None, {"image": X[:1]})


def test_a_policy_guards_a_session(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    options = cuvil.SessionOptions()
    options.add_session_config_entry("cuvil.policy", str(tmp_path / "p.yaml"))
    session = cuvil.InferenceSession(tiny_model_bytes(), options)
    assert session.run(None, {"image": X[:1]})[0].shape == (1, 2)
    with pytest.raises(RefusedError, match="input 'image' is refused by the policy's guard"):
        session.run(None, {"image": X[:1] + 1})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, r"the input 'a' is missing from the feed: give an array of tensor\(float\) \(N, 6\)"),
        ({"c": 1}, "the model has no input 'c': its inputs are 'a', 'b'"),
        ({"a": np.zeros((2, 6)), "b": 0}, r"'a' is tensor\(double\) \(2, 6\) where .* \.astype\(numpy\.float32\)"),
        ({"a": np.zeros(6, "f4"), "b": np.zeros((2, 6), "f4")}, "of rank 1, where the model takes"),
        ({"a": np.zeros((2, 5), "f4"), "b": np.zeros((2, 6), "f4")}, "axis 1 is 5 and must be 6"),
        ({"a": np.zeros((2, 6), "f4"), "b": np.zeros((3, 6), "f4")}, "give the dimension 'N' as 2 and 3"),
        ({"a": np.zeros((0, 6), "f4"), "b": np.zeros((0, 6), "f4")}, "empty arrays are not computed"),
        ([1, 2], "the input feed is a list: give a dict"),
    ],
)
def test_a_wrong_feed_gets_a_sentence(given: Any, sentence: str) -> None:
    session = cuvil.InferenceSession(two_branches())
    with pytest.raises(states.InvalidArgument, match=sentence):
        session.run(None, given)
    assert session._pool.loaded == []


def test_a_wrong_model_or_option_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(states.NoSuchFile, match=r"gone\.onnx: does not exist"):
        cuvil.InferenceSession(tmp_path / "gone.onnx")
    (tmp_path / "text.onnx").write_text("not a model")
    with pytest.raises(states.InvalidProtobuf, match=r"text\.onnx is not an ONNX model"):
        cuvil.InferenceSession(str(tmp_path / "text.onnx"))
    with pytest.raises(states.InvalidArgument, match="not from int"):
        cuvil.InferenceSession(5)  # type: ignore[arg-type]
    session = cuvil.InferenceSession(two_branches())
    with pytest.raises(states.InvalidArgument, match="no output 'x': its outputs are 'sum', 'gate'"):
        session.run(["x"], feed(0))
    options = cuvil.SessionOptions()
    options.enable_profiling = True
    with pytest.raises(states.NotImplemented, match="enable_profiling is not supported"):
        cuvil.InferenceSession(two_branches(), options)
    with pytest.raises(UnsupportedError, match="run_async is not supported"):
        session.run_async(None, {}, print, None)
    with pytest.warns(UserWarning, match="CUDAExecutionProvider is not available"):
        cuvil.InferenceSession(two_branches(), providers=["CUDAExecutionProvider", ("CPUExecutionProvider", {})])
    with pytest.raises(AttributeError, match=r"no attribute 'quantization': it offers the part of onnxruntime"):
        _ = cuvil.quantization
    assert not hasattr(cuvil, "training")


def test_importing_loads_no_compiler() -> None:
    code = "import cuvil, sys; print({'onnx', 'numpy', 'torch', 'dagster', 'onnxruntime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"
