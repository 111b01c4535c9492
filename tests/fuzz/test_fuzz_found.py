"""What mutations have found, minimised: each ended in a traceback, a hang, or a value that runtimes disagree on."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.symbols import Bound

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(
    nodes: Sequence[NodeProto],
    constants: dict[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    shape: Sequence[int | str] = (1, 1, 4, 4),
    functions: Sequence[FunctionProto] = (),
) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "found",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info(o, FLOAT, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))
    return bytes(made.SerializeToString())


def refused(data: bytes, kind: type[CuvilError], sentence: str, **bounds: Bound) -> None:
    begun = time.process_time()
    with pytest.raises(kind, match=sentence) as caught:
        import_onnx(data, filename="m.onnx", bounds=bounds)
    assert "\n" not in str(caught.value) and "cannot be imported" not in str(caught.value)
    assert time.process_time() - begun < 5


def chain(levels: int, twice: bool) -> bytes:
    """Functions that call the one before, once or twice."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    made = [helper.make_function("local", "f0", ["a"], ["c"], [helper.make_node("Relu", ["a"], ["c"])], imports)]
    for level in range(1, levels):
        before = f"f{level - 1}"
        body = [helper.make_node(before, ["a"], ["b"], domain="local")]
        second = (before, "local") if twice else ("Identity", "")
        body.append(helper.make_node(second[0], ["b"], ["c"], domain=second[1]))
        made.append(helper.make_function("local", f"f{level}", ["a"], ["c"], body, imports))
    return model([helper.make_node(f"f{levels - 1}", ["x"], ["y"], domain="local", name="call")], functions=made)


@pytest.mark.parametrize(("levels", "twice"), [(30, True), (80, False)])
def test_functions_of_functions(levels: int, twice: bool) -> None:
    refused(
        chain(levels, twice), UnsupportedError, "expands functions to more than 100000 nodes, or more than 64 levels"
    )


def test_functions_within_the_limits_are_expanded() -> None:
    module, _ = import_onnx(chain(7, True), filename="m.onnx")
    assert [op.kind for op in module.main.ops] == ["relu"] * 64


def test_cubic_coefficient_that_is_not_finite() -> None:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="cubic", cubic_coeff_a=float("inf"))
    refused(model([node], {"s": np.array([1, 1, 2, 2], np.float32)}), UsageError, "cubic_coeff_a that is not finite")


def test_resize_of_an_empty_tensor() -> None:
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode="cubic")
    data = model([node], {"s": np.array([1, 1, 2, 2])}, shape=(1, 1, 0, 4))
    refused(data, UsageError, r"resizes \[1, 1, 0, 4\] to \[1, 1, 2, 2\]")


def test_empty_constant_where_a_number_is_needed() -> None:
    node = helper.make_node("NonMaxSuppression", ["b", "x", "", "overlap"], ["y"])
    data = model([node], {"b": np.zeros((1, 2, 4), np.float32), "overlap": np.zeros(0, np.float32)}, shape=(1, 1, 2))
    with pytest.raises(CuvilError) as caught:
        import_onnx(data, filename="m.onnx")
    assert "cannot be imported" not in str(caught.value)


def test_corrupt_constant_of_a_node() -> None:
    broken = TensorProto(name="t", data_type=FLOAT, dims=[1], raw_data=b"\0" * 12)
    data = model([helper.make_node("Constant", [], ["c"], value=broken), helper.make_node("Add", ["x", "c"], ["y"])])
    refused(data, UsageError, "'t'")


def test_sizes_of_other_ranks_joined() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Concat", ["s", "m"], ["t"], axis=0, name="join"),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    data = model(nodes, {"m": np.array([[1]])}, shape=("N", 1, 4, 4))
    refused(data, UnsupportedError, "'join'.* cannot be evaluated on", N=Bound(1, 4))


def test_model_that_returns_a_constant_only() -> None:
    module, _ = import_onnx(model([], {"y": np.ones(3, np.float32)}), filename="m.onnx")
    assert [(op.kind, op.out.shape) for op in module.main.ops] == [("reshape", (3,))]


@pytest.mark.parametrize("value", [2, -1, 2**40])
def test_flags_are_0_or_1(value: int) -> None:
    """onnxruntime takes 2 for false in ReduceMax, onnx.reference for true; ONNX defines neither."""
    refused(
        model([helper.make_node("ReduceMax", ["x"], ["y"], keepdims=value)]), UsageError, "where ONNX defines 0 and 1"
    )


def test_anything_unforeseen_is_still_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from compiler_kernels.importers import onnx_importer

    def broken(ctx: object) -> None:
        raise IndexError("first line\nsecond line")

    monkeypatch.setitem(onnx_importer.OPERATORS, "Relu", broken)
    with pytest.raises(UsageError) as caught:
        import_onnx(model([helper.make_node("Relu", ["x"], ["y"])]), filename="m.onnx")
    assert str(caught.value).startswith("m.onnx cannot be imported (IndexError: first line second line)")
    assert isinstance(caught.value.__cause__, IndexError)


def test_weights_of_nodes_that_are_no_leaves() -> None:
    """onnxruntime and onnx.reference read such a tree differently."""
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0, 0], target_nodeids=[0, 1, 2],
        target_ids=[0, 0, 0], target_weights=[1.0, 2.0, 3.0],
    )  # fmt: skip
    proto = onnx.ModelProto.FromString(model([node], shape=(2, 3)))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    refused(proto.SerializeToString(), UsageError, "gives a weight to node 0 of tree 0, which is no leaf")


def test_clip_of_truth_values() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BOOL), helper.make_node("Clip", ["b"], ["y"])]
    refused(model(nodes), UsageError, "clips bool elements")


def test_reference_to_a_parameter_outside_functions() -> None:
    node = helper.make_node("ReduceMax", ["x"], ["y"], name="r", keepdims=0)
    node.attribute[0].ref_attr_name = "keep"
    refused(model([node]), UsageError, "node 'r' .* takes its attribute 'keepdims' from 'keep'")


@pytest.mark.parametrize("count", [0, -1, 5])
def test_scan_of_more_inputs_than_there_are(count: int) -> None:
    infos = [helper.make_tensor_value_info(n, FLOAT, None) for n in "ab"]
    body = helper.make_graph([helper.make_node("Relu", ["a"], ["b"])], "body", infos[:1], infos[1:])
    node = helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=count)
    refused(model([node]), UsageError, f"scans {count} inputs of 1")


def test_operator_names_stay_on_one_line() -> None:
    refused(
        model([helper.make_node("a\rb", ["x"], ["y"], domain="local")]), UnsupportedError, r"\('a\\rb', domain local"
    )


def test_range_of_run_time_and_symbolic_bounds() -> None:
    nodes = [
        helper.make_node("Size", ["x"], ["n"]),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["k"], to=INT64),
        helper.make_node("Range", ["k", "n", "one"], ["y"], name="r"),
    ]
    data = model(nodes, {"one": np.array(1)}, shape=("N", 4))
    refused(data, UnsupportedError, "takes its bounds from the run-time tensor", N=Bound(1, 4))


def test_sizes_that_depend_on_symbols_as_output() -> None:
    data = model([helper.make_node("Shape", ["x"], ["y"])], shape=("N", 4))
    refused(data, UnsupportedError, "output 'y' holds sizes that depend on symbols", N=Bound(1, 4))


def test_gather_from_nothing() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["i"], to=INT64), helper.make_node("Gather", ["none", "i"], ["y"])]
    data = model(nodes, {"none": np.zeros((0, 3), np.float32)}, shape=(2,))
    refused(data, UsageError, "gathers from axis 0 of .*, which has no element")


def test_crop_that_is_declared_with_another_rank() -> None:
    graph = helper.make_graph(
        [helper.make_node("CenterCropPad", ["x", "s"], ["y"])],
        "found",
        [helper.make_tensor_value_info("x", FLOAT, (4, 4)), helper.make_tensor_value_info("s", INT64, (2,))],
        [helper.make_tensor_value_info("y", FLOAT, (2,))],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    refused(made.SerializeToString(), UsageError, "is declared to give 1 axes for the 2 of its input")


def test_corrupt_names_stay_on_one_line() -> None:
    node = helper.make_node("Relu", ["nowhere"], ["y"], name="two\nlines")
    proto = onnx.ModelProto.FromString(model([node]))
    refused(proto.SerializeToString(), UsageError, "nowhere")
