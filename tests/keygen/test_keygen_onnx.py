"""Canonical ONNX: the graph counts, names of intermediate tensors, order of listing and storage do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from evidence.keygen.kinds import canonical_form
from evidence.keygen.text import Unreadable

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def form(model: onnx.ModelProto, folder: Path = Path("nowhere")) -> str:
    return canonical_form("onnx", model.SerializeToString(), folder).decode()


def sample() -> onnx.ModelProto:
    """Two branches that meet, and an If whose branches take values from outside."""
    value = helper.make_tensor_value_info
    then = helper.make_graph([helper.make_node("Neg", ["h"], ["t"])], "then", [], [value("t", TensorProto.FLOAT, None)])
    other = helper.make_graph(
        [helper.make_node("Mul", ["h", "k"], ["e"])],
        "else",
        [],
        [value("e", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.float32([2.0]), "k")],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["left"], doc_string="left"),
        helper.make_node("LeakyRelu", ["h"], ["right"], alpha=0.1),
        helper.make_node("Add", ["left", "right"], ["sum"]),
        helper.make_node("If", ["c"], ["chosen"], then_branch=then, else_branch=other),
        helper.make_node("Mul", ["sum", "chosen"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, ["n", 2]), value("c", TensorProto.BOOL, [])],
        [value("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="one")


def test_the_form_reads_as_lines() -> None:
    lines = form(sample()).splitlines()
    assert lines[0] == 'opset "" 17'
    assert ' in0 "x" FLOAT["n",2]' in lines
    assert ' v0 = "" "MatMul" (in0 w0)' in lines
    assert '  "alpha" = float 3dcccccd' in lines
    assert lines[-1] == ' out0 = v5 "y" FLOAT["n",3]'


def rename(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    for node in graph.node:
        node.name = f"n{random.random()}"
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                rename(attribute.g, names)
    for item in (*graph.initializer, *graph.output):
        item.name = names.get(item.name, item.name)


def renamed(model: onnx.ModelProto) -> None:
    rename(model.graph, {n: f"other_{n}" for n in ("h", "left", "right", "sum", "chosen", "w", "t", "e", "k")})


def listed_otherwise(model: onnx.ModelProto) -> None:
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([nodes[0], nodes[4], nodes[2], nodes[1], nodes[3], nodes[5]])


def documented(model: onnx.ModelProto) -> None:
    model.doc_string = model.graph.doc_string = model.producer_name = model.graph.name = "text"
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["n", 3]))
    model.graph.node[0].metadata_props.add(key="trace", value="file.py:3")


def typed_data(model: onnx.ModelProto) -> None:
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.float_data.extend(WEIGHT.ravel().tolist())


def attributes_otherwise(model: onnx.ModelProto) -> None:
    branches = list(model.graph.node[4].attribute)
    del model.graph.node[4].attribute[:]
    model.graph.node[4].attribute.extend(reversed(branches))


@pytest.mark.parametrize("change", [renamed, listed_otherwise, documented, typed_data, attributes_otherwise])
def test_spelling_leaves_the_form(change: Callable[[onnx.ModelProto], None]) -> None:
    model = sample()
    change(model)
    assert model != sample()
    assert form(model) == form(sample())


def one_weight_bit(model: onnx.ModelProto) -> None:
    data = bytearray(model.graph.initializer[0].raw_data)
    data[5] ^= 1
    model.graph.initializer[0].raw_data = bytes(data)


def inner_weight(model: onnx.ModelProto) -> None:
    model.graph.node[4].attribute[0].g.initializer[0].raw_data = np.float32([3.0]).tobytes()


def swap(model: onnx.ModelProto) -> None:
    model.graph.node[3].input[:] = ["right", "left"]


def operator(model: onnx.ModelProto) -> None:
    model.graph.node[1].op_type = "Sigmoid"


def attribute(model: onnx.ModelProto) -> None:
    model.graph.node[2].attribute[0].f = np.nextafter(np.float32(0.1), np.float32(1))


def captured(model: onnx.ModelProto) -> None:
    model.graph.node[4].attribute[0].g.node[0].input[0] = "left"


def opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 18


def input_name(model: onnx.ModelProto) -> None:
    model.graph.input[0].name = model.graph.node[0].input[0] = "z"


def shape(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "m"


def split_node(model: onnx.ModelProto) -> None:
    """The same computation, no longer shared."""
    again = helper.make_node("MatMul", ["x", "w"], ["again"])
    model.graph.node.insert(0, again)
    model.graph.node[3].input[0] = "again"


def metadata(model: onnx.ModelProto) -> None:
    model.metadata_props.add(key="labels", value="a,b")


def unused_node(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Neg", ["h"], ["nobody"]))


CHANGES = [
    one_weight_bit, inner_weight, swap, operator, attribute, captured, opset, input_name, shape, split_node, metadata,
    unused_node,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_meaning_changes_the_form(change: Callable[[onnx.ModelProto], None]) -> None:
    model = sample()
    change(model)
    assert form(model) != form(sample())


def test_external_weights_are_the_weights(tmp_path: Path) -> None:
    onnx.save_model(sample(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    stored = (tmp_path / "m.onnx").read_bytes()
    assert canonical_form("onnx", stored, tmp_path).decode() == form(sample())
    data = bytearray((tmp_path / "m.data").read_bytes())
    data[3] ^= 1
    (tmp_path / "m.data").write_bytes(data)
    assert canonical_form("onnx", stored, tmp_path).decode() != form(sample())
    (tmp_path / "m.data").write_bytes(data[:5])
    with pytest.raises(Unreadable, match="too short"):
        canonical_form("onnx", stored, tmp_path)
    (tmp_path / "m.data").unlink()
    with pytest.raises(Unreadable, match=r"m\.data"):
        canonical_form("onnx", stored, tmp_path)


@pytest.mark.parametrize("place", ["../w", "/etc/passwd", ""])
def test_external_weights_stay_in_their_folder(place: str, tmp_path: Path) -> None:
    model = sample()
    weight = model.graph.initializer[0]
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=place)
    with pytest.raises(Unreadable, match="outside"):
        form(model, tmp_path)


@pytest.mark.parametrize(
    "kind",
    [TensorProto.FLOAT16, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.BOOL,
     TensorProto.UINT32, TensorProto.UINT64],
)  # fmt: skip
def test_both_ways_to_store_a_tensor_are_one(kind: int) -> None:
    array = np.array([0, 1, 1, 0, 1], helper.tensor_dtype_to_np_dtype(kind))
    forms = set()
    for raw in (True, False):
        model = sample()
        stored = helper.make_tensor("k", kind, [5], array.tobytes() if raw else array, raw=raw)
        model.graph.node[0].attribute.append(helper.make_attribute("a", stored))
        forms.add(form(model))
    assert len(forms) == 1


def test_functions_count() -> None:
    def model(inner: str) -> onnx.ModelProto:
        body = helper.make_function(
            "own", "F", ["a"], ["b"],
            [helper.make_node("Relu", ["a"], [inner]), helper.make_node("Neg", [inner], ["b"])],
            [helper.make_opsetid("", 17)],
        )  # fmt: skip
        graph = helper.make_graph(
            [helper.make_node("F", ["x"], ["y"], domain="own")],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        )
        return helper.make_model(graph, functions=[body])

    assert form(model("c")) == form(model("d"))
    other = model("c")
    other.functions[0].node[1].op_type = "Abs"
    assert form(other) != form(model("c"))


@pytest.mark.parametrize("data", [b"", b"\0\1\2", b"not a model", sample().SerializeToString()[:40]])
def test_what_is_no_model(data: bytes) -> None:
    with pytest.raises(Unreadable, match="ONNX"):
        canonical_form("onnx", data, Path("nowhere"))


def test_graphs_that_cannot_be() -> None:
    model = sample()
    model.graph.node[0].input[0] = "y"
    with pytest.raises(Unreadable, match="cycle"):
        form(model)
    model = sample()
    model.graph.node[0].input[0] = "nothing"
    with pytest.raises(Unreadable, match="nothing"):
        form(model)
    model = sample()
    model.graph.node[1].output[0] = "h"
    with pytest.raises(Unreadable, match="twice"):
        form(model)


def test_ten_thousand_nodes_in_a_row() -> None:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(10_000)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("v0", "v10000")]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]))
    assert form(model).count("Relu") == 10_000


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=12), st.randoms())
def test_any_topological_order_and_any_names(edges: list[tuple[int, int]], chance: random.Random) -> None:
    """Node i adds two earlier values; listing and names are then chosen at random."""

    def model(order: list[int], names: list[str]) -> onnx.ModelProto:
        nodes = [
            helper.make_node("Add", [names[edges[i][0] % (i + 1)], names[edges[i][1] % (i + 1)]], [names[i + 1]])
            for i in order
        ]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("x", "y")]
        nodes.append(helper.make_node("Sum", names, ["y"]))
        return helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]))

    count = len(edges)
    plain = model(list(range(count)), ["x", *(f"v{i}" for i in range(count))])
    order: list[int] = []
    while len(order) < count:
        ready = [i for i in range(count) if i not in order and all(e % (i + 1) - 1 in (-1, *order) for e in edges[i])]
        order.append(chance.choice(ready))
    labels = [f"n{i}" for i in range(count)]
    chance.shuffle(labels)
    assert form(model(order, ["x", *labels])) == form(plain)
