"""Results whose size depends on the data: bound and count, at outputs, through other operations, and declared."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from index_models import Array, draw, failures, judged
from onnx import TensorProto, helper

from compiler_kernels.compile import compile_model
from compiler_kernels.engine import Engine, load_engine
from compiler_kernels.errors import RefusedError, UnsupportedError, UsageError
from compiler_kernels.importers.onnx_importer import import_onnx
from evidence.conformance.cases import Case


def uniques(rng: np.random.Generator) -> Iterator[Case]:
    names = ("y", "i", "inverse", "counts")
    for dtype in ("float32", "int64", "int8", "float64"):
        x = draw(rng, (3, 4), dtype)
        for order in (0, 1):
            flat = x.reshape(-1)
            y, first, inverse, counts = np.unique(flat, True, True, True)
            if not order:
                by = np.argsort(first)
                y, first, counts = y[by], first[by], counts[by]
                inverse = np.argsort(by)[inverse.reshape(-1)]
            expected = [y, first, inverse.reshape(-1), counts]
            sizes = "open" if order == (dtype == "float32") else "fixed"
            yield judged("Unique", {"x": x}, names, expected=expected, sizes=sizes, sorted=order)
    for axis in (0, 1):
        x = (draw(rng, (5, 3, 2), "float32") > 1).astype(np.float32)
        x = np.ascontiguousarray(np.moveaxis(x, 0, axis))
        y, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        yield judged(
            "Unique", {"x": x}, names, expected=[y, first, inverse.reshape(-1), counts], sizes="open", axis=axis
        )


def selections(rng: np.random.Generator) -> Iterator[Case]:
    for dtype in ("float32", "int32", "bool", "float16"):
        for shape in ((3, 4), (7,), ()):
            x = draw(rng, shape, dtype)
            yield judged("NonZero", {"x": x}, expected=[np.stack(np.nonzero(np.atleast_1d(x)))], sizes="open")
    yield judged("NonZero", {"x": np.zeros((2, 3), bool)}, expected=[np.zeros((2, 0), np.int64)], sizes="open")
    for axis in (0, 1, 2):
        x, c = draw(rng, (3, 4, 2), "float32"), draw(rng, (2 + axis % 2,), "bool")
        shorter = np.flatnonzero(c[: x.shape[axis]])
        yield judged(
            "Compress", {"x": x, "c": c[: x.shape[axis]]}, expected=[x.take(shorter, axis)], axis=axis, sizes="open"
        )
    x, c = draw(rng, (3, 4), "int64"), draw(rng, (9,), "bool")
    yield judged("Compress", {"x": x, "c": c}, expected=[x.reshape(-1)[:9][c]], sizes="open")


def suppressions(rng: np.random.Generator) -> Iterator[Case]:
    for center in (0, 1):
        corners = rng.uniform(0, 1, (2, 30, 4)).astype(np.float32)  # opposite corners in any order
        scores = rng.integers(0, 9, (2, 3, 30)).astype(np.float32) / 8  # with ties
        operands: dict[str, Array | None] = {"boxes": corners, "scores": scores, "most": np.array([7])}
        for overlap, lowest in ((None, None), (0.3, None), (0.5, 0.6), (None, 0.99), (0.1, -1.0)):
            given = dict(operands)
            given["overlap"] = None if overlap is None else np.array([overlap], np.float32)
            given["lowest"] = None if lowest is None else np.array([lowest], np.float32)
            if center == (overlap is None):
                yield judged("NonMaxSuppression", given, center_point_box=center, sizes="open")
            else:
                yield judged("NonMaxSuppression", given, center_point_box=center, constants=["most", "overlap"])


@pytest.mark.parametrize("family", [uniques, selections, suppressions])
def test_against_onnxruntime_and_the_reference(family: object) -> None:
    assert callable(family)
    assert failures(list(family(np.random.default_rng(11)))) == []


def chain(declared: int | str) -> onnx.ModelProto:
    """The positive elements of x, doubled, their places and their number."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["mask"]),
        helper.make_node("NonZero", ["mask"], ["places"], name="find"),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "rows"], ["found"]),
        helper.make_node("Mul", ["found", "two"], ["twice"]),
        helper.make_node("Shape", ["places"], ["shape"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "positives",
        [info("x", TensorProto.FLOAT, [3, 4])],
        [
            info("places", TensorProto.INT64, [2, declared]),
            info("twice", TensorProto.FLOAT, [declared]),
            info("shape", TensorProto.INT64, [2]),
        ],
        [onnx.numpy_helper.from_array(np.float32(v), n) for n, v in (("zero", 0.0), ("two", 2.0))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def positives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("positives")
    compile_model(chain("n").SerializeToString(), output=folder / "p.so")
    compile_model(chain("n").SerializeToString(), output=folder / "p.bin", kind="bin")
    return folder


def _x(seed: int) -> Array:
    x = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
    return -abs(x) if seed == 0 else x


@pytest.mark.parametrize("seed", range(4))
def test_actual_sizes_differ_from_call_to_call(positives: Path, seed: int) -> None:
    engine: Engine = load_engine(positives / "p.so")
    x = _x(seed)
    found = engine.run({"x": x})
    session = onnxruntime.InferenceSession(chain("n").SerializeToString(), providers=["CPUExecutionProvider"])
    for name, want in zip(("places", "twice", "shape"), session.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(found[name], want)
    assert [t.bounded for t in engine.outputs] == [True, True, False]
    assert engine.outputs[0].shape == (2, 12)


@pytest.mark.parametrize("seed", [0, 2])
def test_the_engine_writes_files_of_the_actual_size(positives: Path, tmp_path: Path, seed: int) -> None:
    np.save(tmp_path / "x.npy", _x(seed))
    command = [
        positives / "p.bin",
        "--input",
        f"x={tmp_path / 'x.npy'}",
        "--output-dir",
        tmp_path / "out",
        "--threads",
        "2",
    ]
    subprocess.run(command, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "places.npy"), np.stack(np.nonzero(_x(seed) > 0)))
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "twice.npy"), 2 * _x(seed)[_x(seed) > 0])


def test_a_declared_size_is_compared_at_run_time(tmp_path: Path) -> None:
    engine = load_engine(compile_model(chain(6).SerializeToString(), output=tmp_path / "six.so"))
    six = np.where(np.arange(12).reshape(3, 4) % 2, 1.0, -1.0).astype(np.float32)
    assert engine.run({"x": six})["twice"].shape == (6,)
    six[0, 0] = 1.0
    with pytest.raises(RefusedError, match=r"'places' of node 'find'.* than the 6 that the model declares"):
        engine.run({"x": six})


def _then(op: str, inputs: list[str], **attributes: object) -> bytes:
    model = chain("n")
    model.graph.node.append(helper.make_node(op, inputs, ["z"], name="last", **attributes))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    return bytes(model.SerializeToString())


def test_what_would_mix_elements_with_the_room_behind_them_is_refused() -> None:
    for op, inputs, attributes in (
        ("ReduceSum", ["found"], {}),
        ("CumSum", ["found", "axis"], {}),
        ("Softmax", ["found"], {"axis": 0}),
        ("Add", ["found", "four"], {}),
    ):
        model = onnx.load_from_string(_then(op, inputs, **attributes))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(0), "axis"))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(12, np.float32), "four"))
        with pytest.raises(UnsupportedError, match=f"node 'last' \\({op}.*size that depends on the data"):
            import_onnx(model.SerializeToString(), filename="m.onnx")


def test_more_elements_declared_than_there_can_be() -> None:
    with pytest.raises(UsageError, match="13 elements declared along axis 1 of 'places', more than there can be"):
        import_onnx(chain(13).SerializeToString(), filename="m.onnx")


def test_what_passes_elements_on_by_themselves_keeps_the_count(tmp_path: Path) -> None:
    """Rows picked by run-time places, reduced within each row, reshaped to a column, joined with itself."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("NonZero", ["mask"], ["places"]),
            helper.make_node("Squeeze", ["places", "zero"], ["rows"]),
            helper.make_node("Gather", ["x", "rows"], ["picked"], axis=0),
            helper.make_node("ReduceMax", ["picked"], ["most"], axes=[1], keepdims=1),
            helper.make_node("Relu", ["picked"], ["up"]),
            helper.make_node("Concat", ["up", "most"], ["y"], axis=1),
            helper.make_node("Slice", ["y", "one", "five", "one"], ["part"]),
        ],
        "rows",
        [info("x", TensorProto.FLOAT, [5, 4]), info("mask", TensorProto.BOOL, [5])],
        [info("y", TensorProto.FLOAT, ["n", 5]), info("part", TensorProto.FLOAT, ["n", 4])],
        [onnx.numpy_helper.from_array(np.array([v]), n) for n, v in (("zero", 0), ("one", 1), ("five", 5))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    engine = load_engine(compile_model(model.SerializeToString(), output=tmp_path / "rows.so"))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    for _ in range(4):
        inputs = {"x": rng.standard_normal((5, 4)).astype(np.float32), "mask": rng.random(5) > 0.5}
        found = engine.run(inputs)
        for name, want in zip(("y", "part"), session.run(None, inputs), strict=True):
            np.testing.assert_array_equal(found[name], want)
