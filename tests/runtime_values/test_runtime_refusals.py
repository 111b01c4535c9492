"""Engines refuse a run-time shape they were not compiled for: in the process, as a program, and in the reference."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from made_cases import Array, ints
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from compiler_kernels.compile import compile_model, freeze_model
from compiler_kernels.engine import Engine, load_engine
from compiler_kernels.errors import RefusedError, UnsupportedError
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from evidence.reference import RefGraph, load_graph, run
from evidence.reference.errors import Refusal
from evidence.steering_inputs import steering_inputs

RIGHT: dict[str, Array] = {
    "shape": ints(2, 6),
    "wide": ints(2, 2, 6),
    "axes": ints(0),
    "starts": ints(1),
    "ends": ints(9),
    "pads": ints(0, 1, 0, 1),
    "sum_axes": ints(-1),
    "limit": np.array(3.0, dtype=np.float32),
    "parts": ints(1, 3),
}


def model() -> onnx.ModelProto:
    def info(name: str, shape: tuple[int, ...], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["reshaped"], name="to_rows"),
        helper.make_node("Expand", ["reshaped", "wide"], ["expanded"], name="widen"),
        helper.make_node("Unsqueeze", ["x", "axes"], ["unsqueezed"], name="new_axis"),
        helper.make_node("Slice", ["x", "starts", "ends"], ["sliced"], name="cut"),
        helper.make_node("Pad", ["x", "pads"], ["padded"], name="border"),
        helper.make_node("ReduceSum", ["square", "sum_axes"], ["summed"], name="total", keepdims=0),
        helper.make_node("Range", ["zero", "limit", "one"], ["counted"], name="count"),
        helper.make_node("Split", ["x", "parts"], ["first", "rest"], name="cut_up", axis=1),
    ]
    outputs = {
        "reshaped": (2, 6), "expanded": (2, 2, 6), "unsqueezed": (1, 3, 4), "sliced": (2, 4), "padded": (3, 6),
        "summed": (3,), "counted": (3,), "first": (3, 1), "rest": (3, 3),
    }  # fmt: skip
    inputs = [info("x", (3, 4)), info("square", (3, 3))]
    inputs += [info(n, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for n, a in RIGHT.items()]
    constants = [helper.make_tensor(n, TensorProto.FLOAT, (), [v]) for n, v in (("zero", 0.0), ("one", 1.0))]
    graph = helper.make_graph(nodes, "steered", inputs, [info(n, s) for n, s in outputs.items()], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def data() -> dict[str, Array]:
    rng = np.random.default_rng(3)
    arrays = {"x": (3, 4), "square": (3, 3)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in arrays.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    directory = tmp_path_factory.mktemp("steered")
    bytes_ = model().SerializeToString()
    yield {kind: compile_model(bytes_, kind=kind, output=directory / f"e.{kind}") for kind in ("so", "bin")}


@pytest.fixture(scope="module")
def engine(files: dict[str, Path]) -> Engine:
    return load_engine(files["so"])


@pytest.fixture(scope="module")
def graph() -> RefGraph:
    frozen = freeze_model(model().SerializeToString())
    return load_graph(neutral_json(frozen.module.main), pack(frozen.module.main, frozen.store))


WRONG = [
    (
        "shape",
        ints(3, 4),
        "'shape' of node 'to_rows' (Reshape) gives a shape that the engine is not compiled for: it takes",
    ),
    ("shape", ints(-1, -1), "it takes [2, 6]"),
    ("wide", ints(2, 1, 1), ""),
    ("wide", ints(1, 2, 6), "'wide' of node 'widen' (Expand)"),
    (
        "axes",
        ints(1),
        "'axes' of node 'new_axis' (Unsqueeze) gives axes that the engine is not compiled for: it takes [0]",
    ),
    ("axes", ints(3), "it takes [0]"),
    ("starts", ints(0), "node 'cut' (Slice) is compiled for a result of shape [2, 4]"),
    ("ends", ints(2), "node 'cut' (Slice)"),
    ("pads", ints(1, 1, 0, 1), "node 'border' (Pad) is compiled for a result of shape [3, 6]"),
    ("pads", ints(0, 2**62, 0, -(2**62) + 2), "node 'border' (Pad)"),
    ("sum_axes", ints(2), "it takes [0] or [1]"),
    ("limit", np.array(3.5, np.float32), "node 'count' (Range) is compiled for 3 elements"),
    ("limit", np.array(np.nan, np.float32), "node 'count' (Range)"),
    (
        "parts",
        ints(2, 2),
        "'parts' of node 'cut_up' (Split) gives sizes that the engine is not compiled for: it takes [1, 3]",
    ),
]


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG)
def test_another_value_is_refused_and_the_next_run_is_not_affected(
    engine: Engine, graph: RefGraph, name: str, value: Array, sentence: str
) -> None:
    inputs = {**data(), **RIGHT}
    changed = {**inputs, name: value}
    if not sentence:  # another value of the same meaning
        assert np.array_equal(engine.run(changed)["expanded"], engine.run(inputs)["expanded"])
        return
    with pytest.raises(RefusedError) as refused:
        engine.run(changed)
    assert sentence in str(refused.value)
    with pytest.raises(Refusal) as reference:
        run(graph, changed)
    assert str(reference.value) == str(refused.value)
    found = engine.run(inputs)
    for result, want in zip(model().graph.output, ReferenceEvaluator(model()).run(None, inputs), strict=True):
        np.testing.assert_allclose(found[result.name], want, rtol=1e-6, err_msg=result.name)


@pytest.mark.parametrize(
    ("name", "value"),
    [("shape", ints(-1, 6)), ("shape", ints(2, -1)), ("axes", ints(-3)), ("starts", ints(-2)), ("sum_axes", ints(0)),
     ("sum_axes", ints(1))],
)  # fmt: skip
def test_other_values_of_the_same_shape_are_accepted(engine: Engine, name: str, value: Array) -> None:
    inputs = {**data(), **RIGHT, name: value}
    found = engine.run(inputs)
    for result, want in zip(model().graph.output, ReferenceEvaluator(model()).run(None, inputs), strict=True):
        np.testing.assert_allclose(found[result.name], want, rtol=1e-6, err_msg=result.name)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_program_exits_with_3_and_writes_nothing(files: dict[str, Path], tmp_path: Path, threads: str) -> None:
    inputs = {**data(), **RIGHT}
    words = []
    for name, value in {**inputs, "shape": ints(4, 3)}.items():
        np.save(tmp_path / f"{name}.npy", value)
        words += ["--input", f"{name}={tmp_path / name}.npy"]
    command = [str(files["bin"]), *words, "--output-dir", str(tmp_path / "out"), "--threads", threads]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "'shape' of node 'to_rows' (Reshape)" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    np.save(tmp_path / "shape.npy", RIGHT["shape"])
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert np.array_equal(np.load(tmp_path / "out" / "reshaped.npy"), inputs["x"].reshape(2, 6))


def test_inputs_for_the_equivalence_report_are_accepted(graph: RefGraph) -> None:
    steered = steering_inputs(graph)
    assert set(steered) >= set(RIGHT) - {"limit"}
    values = run(graph, {**data(), "limit": RIGHT["limit"], **steered})
    assert {name for _, name in graph.outputs} == {i.name for i in model().graph.output}
    assert all(values[vid].size for vid, _ in graph.outputs)


@pytest.mark.parametrize("dims", [None, ("n", 6)])
def test_a_shape_that_nothing_determines_is_refused_with_the_remedy(dims: tuple[object, ...] | None) -> None:
    steered = model()
    del steered.graph.node[1:]
    del steered.graph.output[1:]
    del steered.graph.output[0].type.tensor_type.shape.dim[:]
    if dims is None:
        steered.graph.output[0].type.tensor_type.ClearField("shape")
    for dim in dims or ():
        size = steered.graph.output[0].type.tensor_type.shape.dim.add()
        setattr(size, "dim_param" if isinstance(dim, str) else "dim_value", dim)
    with pytest.raises(UnsupportedError, match="make it an initialiser, or declare that shape in full"):
        freeze_model(steered.SerializeToString())


@pytest.mark.parametrize(("op", "what"), [("SplitToSequence", "sequences"), ("Optional", "optionals")])
def test_containers_are_refused_by_name(op: str, what: str) -> None:
    reads = ("OptionalGetElement", ["held"]) if op == "Optional" else ("SequenceAt", ["held", "i"])
    nodes = [helper.make_node(op, ["x"], ["held"], name="hold"), helper.make_node(*reads, ["y"])]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "held", [info], [result], [helper.make_tensor("i", TensorProto.INT64, (), [0])])
    held = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with pytest.raises(UnsupportedError, match=rf"'hold' \({op}, .*\) works on {what}"):
        freeze_model(held.SerializeToString())
