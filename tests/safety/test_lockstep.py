"""Lockstep: two runs that agree say nothing, two that differ end the engine, and what is compared is all of it."""

import json
from functools import partial

import numpy as np
import onnx
import pytest
import safety_case as case
import small_models
from onnx import TensorProto, helper

from compiler_kernels import compile_model, load_engine
from compiler_kernels.errors import RefusedError
from compiler_kernels.targets.isa import CHECKER, sections
from compiler_kernels.targets.registry import runner


def refused(done) -> str:
    """The sentence of a run that lockstep ended."""
    assert done.returncode == 3 and done.stdout == "", (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("error: lockstep: ") and done.stderr.count("\n") == 1
    return done.stderr


def test_two_runs_agree_and_the_result_is_the_plain_engines(residual, tmp_path):
    case.save(tmp_path, (1, 3, 12, 12))
    plain = case.build(small_models.residual(), tmp_path / "plain", lockstep=False)
    want = None
    for engine in (plain, residual):
        for words in ([], ["--threads", "3"], ["--isa", "avx2"]):
            done = engine.infer(tmp_path, *words)
            assert (done.returncode, done.stderr) == (0, "")
            got = (tmp_path / "out" / "p.npy").read_bytes()
            want = want or got
            assert got == want
    assert (plain.version()["lockstep"], residual.version()["lockstep"]) == (False, True)
    assert residual.run("--bench", "20", "--threads", "2").returncode == 0


def test_sections_of_the_generated_kernels(residual):
    text = residual.program.files["kernels.c"].decode()
    assert [isa.name for isa in sections(text)] == ["avx512", "avx2", "checker"]
    assert sections(text)[-1] is CHECKER and text.count("#ifdef CUVIL_ISA_CHECKER") == 1


@pytest.mark.parametrize("copy", [0, 1])
def test_a_damaged_weight_ends_the_run(residual, tmp_path, copy):
    case.save(tmp_path, (1, 3, 12, 12))
    places = case.copies(residual)
    assert len(places) == 2
    bad = case.flipped(residual, tmp_path / "bad", [places[copy] + 3], 6)
    sentence = refused(bad.infer(tmp_path))
    assert "the value of 'fc' differs at element 0: 0x" in sentence and "from the checker's" in sentence
    assert not (tmp_path / "out").exists()
    done = bad.infer(tmp_path, "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["exit"], answer["check"]) == (3, 3, "lockstep")
    whose = ("embedded", "checker's")[copy]
    assert f"SHA3-512 of the {whose} weights" in bad.run("--self-test").stderr
    assert bad.run("--bench", "1").returncode == 3


def test_the_same_damage_in_both_copies_agrees(residual, tmp_path):
    """Control, and a limit: lockstep compares two runs; what both read alike it can not see, the self-test can."""
    case.save(tmp_path, (1, 3, 12, 12))
    bad = case.flipped(residual, tmp_path / "bad", [at + 3 for at in case.copies(residual)], 6)
    assert bad.infer(tmp_path).returncode == 0
    assert bad.run("--self-test").returncode == 1


def test_a_damaged_weight_that_no_output_shows(tmp_path):
    """Every value behind Relu is zero, so no weight of the last layer matters; the copies are compared all the same."""
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "dead",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 16])],
        [onnx.numpy_helper.from_array(np.random.default_rng(1).random((8, 16)).astype("f4"), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    engine = case.build(model, tmp_path / "engine")
    np.save(tmp_path / "x.npy", np.ones((2, 8), "<f4"))
    assert engine.infer(tmp_path).returncode == 0
    bad = case.flipped(engine, tmp_path / "bad", [case.copies(engine)[1] + 64], 0)
    assert "the two copies of the weights differ at byte 64: 0x" in refused(bad.infer(tmp_path))


def test_as_a_library(tmp_path):
    x = case.save(tmp_path, (1, 3, 12, 12))
    good = case.build(small_models.residual(), tmp_path / "good.so", kind="so")
    engine = load_engine(good.path)
    assert engine.lockstep and engine.run(x)["p"].shape == (1, 5) and engine.mismatch == ""
    bad = case.flipped(good, tmp_path / "bad.so", [case.copies(good)[1] + 3], 6)
    broken = load_engine(bad.path)
    with pytest.raises(RefusedError, match="lockstep: the value of 'fc' differs"):
        broken.run(x)
    assert "'fc'" in broken.mismatch


def nan_model() -> bytes:
    """x (4,) -> y = x + x, z = indices of the elements that are not zero (their number is known at run time)."""
    nodes = [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("NonZero", ["x"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "nan",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("z", TensorProto.INT64, [1, None]),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_nan_and_sizes_that_the_data_decides(tmp_path):
    engine = case.build(nan_model(), tmp_path / "engine")
    x = np.array([0x7FC00000, 0xFF800001, 0, 0x3F800000], "<u4").view("<f4")
    np.save(tmp_path / "x.npy", x)
    assert engine.infer(tmp_path).returncode == 0
    assert np.load(tmp_path / "out" / "z.npy").tolist() == [[0, 1, 3]]

    def first_value(bits: bytes, sources: dict[str, bytes]) -> None:
        call = b"        execute(checker, "
        assert sources["cuvil_threads.c"].count(call) == 1
        spoil = b"        uint32_t *v = engine->output_buffers[0]; v[0] = " + bits + b";\n"
        sources["cuvil_threads.c"] = sources["cuvil_threads.c"].replace(call, spoil + call)

    for bits, code in ((b"0xFFC12345", 0), (b"0x7F800000", 3), (b"0x7FC00000", 0)):
        spoiled = case.build(nan_model(), tmp_path / "e", patch=partial(first_value, bits))
        done = spoiled.infer(tmp_path)
        assert done.returncode == code
        if code:
            assert "output 'y' differs at index (row-major) 0: 0x7f800000 from the avx" in refused(done)
            assert ", 0x7fc00000 from the checker's" in done.stderr


def test_a_size_that_differs(tmp_path):
    def spoil(sources: dict[str, bytes]) -> None:
        call = b"        execute(checker, "
        sources["cuvil_threads.c"] = sources["cuvil_threads.c"].replace(
            call, b"        engine->outputs[1].extents[1]--;\n" + call
        )

    case.save(tmp_path, (4,))
    engine = case.build(nan_model(), tmp_path / "engine", patch=spoil)
    assert "the sizes of output 'z' differ between the two runs" in refused(engine.infer(tmp_path))


POLICY = """
version: 1
model: {name: open, version: "1"}
shapes:
  rows: {min: 1, max: 40}
"""


def test_symbolic_sizes(tmp_path):
    """Both engines are bound to the sizes of the input, one after the other."""
    weights = np.random.default_rng(2).standard_normal((24, 8)).astype("f4")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Softmax", ["t"], ["y"])],
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 8])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    (tmp_path / "policy.yaml").write_text(POLICY)
    built = case.build(model, tmp_path / "e.so", kind="so", policy=tmp_path / "policy.yaml")
    plain = load_engine(
        case.build(model, tmp_path / "p.so", kind="so", lockstep=False, policy=tmp_path / "policy.yaml").path
    )
    engine = load_engine(built.path)
    for rows in (3, 40, 1, 17):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype("f4")
        assert engine.run(x)["y"].tobytes() == plain.run(x)["y"].tobytes()
        if rows == 40:
            engine.erase()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_on_aarch64(tmp_path, threads):
    prefix = runner(case.ARM)
    if prefix is None:
        pytest.skip("no emulator for aarch64")
    engine = case.build(small_models.residual(), tmp_path / "engine", target=case.ARM, prefix=prefix)
    case.save(tmp_path, (1, 3, 12, 12))
    assert engine.infer(tmp_path, "--threads", threads).returncode == 0
    bad = case.flipped(engine, tmp_path / "bad", [case.copies(engine)[0] + 3], 6)
    assert "from the neon kernels" in refused(bad.infer(tmp_path, "--threads", threads))


LOCKSTEP_POLICY = """
version: 1
model: {name: watched, version: "1"}
safety: {lockstep: true}
"""


def test_the_policy_asks_for_it(tmp_path):
    (tmp_path / "policy.yaml").write_text(LOCKSTEP_POLICY)
    path = compile_model(small_models.residual(), policy=tmp_path / "policy.yaml", output=tmp_path / "e.so")
    assert load_engine(path).lockstep
