"""Functions that a model brings along: attributes, absent inputs, nesting, subgraphs, versions, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from function_models import DOMAIN, case, failures, model, opsets
from onnx import TensorProto, helper

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.importers import functions as importer
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Module

X = np.random.default_rng(7).normal(size=(2, 6)).astype(np.float32)


def referring(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    """A node whose attributes of value ``@NAME`` refer to the function's attribute NAME."""
    own = {k: v for k, v in attributes.items() if not (isinstance(v, str) and v.startswith("@"))}
    node = helper.make_node(op, inputs.split(), output.split(), **own)
    for key, value in attributes.items():
        if key not in own:
            node.attribute.append(onnx.AttributeProto(name=key, ref_attr_name=value[1:], type=_kind(key)))
    return node


def _kind(key: str) -> onnx.AttributeProto.AttributeType:
    return {"alpha": onnx.AttributeProto.FLOAT, "perm": onnx.AttributeProto.INTS}.get(key, onnx.AttributeProto.INT)


def function(name: str, inputs: str, outputs: str, nodes: list[onnx.NodeProto], **options: Any) -> onnx.FunctionProto:
    versions = {"onnx": options.pop("onnx", 23), DOMAIN: 1}
    return helper.make_function(DOMAIN, name, inputs.split(), outputs.split(), nodes, opsets(**versions), **options)


def call(name: str, inputs: list[str], outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(
        name, inputs, outputs.split(), domain=DOMAIN, name=attributes.pop("label", ""), **attributes
    )


LEAKY = function("Leaky", "a", "b", [referring("LeakyRelu", "a", "b", alpha="@slope")], attributes=["slope"])
DEFAULTED = function(
    "Defaulted", "a", "b", [referring("LeakyRelu", "a", "b", alpha="@slope")],
    attribute_protos=[helper.make_attribute("slope", 0.5)],
)  # fmt: skip
TWICE = function(
    "Twice", "a", "c",
    [helper.make_node("Leaky", ["a"], ["b"], domain=DOMAIN, slope=0.3), referring("Leaky", "b", "c", alpha="@slope")],
    attributes=["slope"],
)  # fmt: skip
TWICE.node[1].domain = DOMAIN
TWICE.node[1].attribute[0].name = "slope"


def imported(made: onnx.ModelProto) -> Module:
    return import_onnx(made.SerializeToString(), filename="m.onnx")[0]


def kinds(made: onnx.ModelProto) -> list[str]:
    return [op.kind for op in imported(made).main.ops]


def test_values_are_those_of_onnxruntime() -> None:
    """Attributes by reference and by default, nesting, a function of an older opset with operators that have not
    changed, a subgraph that reads a formal input, two calls that must not share names, an output that is an input."""
    bound = helper.make_function(
        DOMAIN, "Bound", ["a", "lo", "hi"], ["b"], [helper.make_node("Clip", ["a", "lo", "hi"], ["b"])], opsets(onnx=13)
    )
    older = function("Older", "a", "b", [helper.make_node("Gelu", ["a"], ["b"])], onnx=20)
    then = helper.make_graph([helper.make_node("Neg", ["a"], ["t"])], "then", [], [_value("t")])
    other = helper.make_graph([helper.make_node("Abs", ["a"], ["e"])], "else", [], [_value("e")])
    choice = function(
        "Choice", "a", "b",
        [helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True])),
         helper.make_node("If", ["c"], ["b"], then_branch=then, else_branch=other)],
    )  # fmt: skip
    apart = [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Identity", ["a"], ["c"])]
    through = function("Through", "a", "b c", apart)
    high = helper.make_node("Constant", [], ["high"], value_float=0.25)
    models = {
        "reference": model([call("Leaky", ["x"], slope=0.2)], {"x": X}, functions=[LEAKY]),
        "default": model([call("Defaulted", ["x"])], {"x": X}, functions=[DEFAULTED]),
        "overridden": model([call("Defaulted", ["x"], slope=0.125)], {"x": X}, functions=[DEFAULTED]),
        "nested": model([call("Twice", ["x"], slope=0.7)], {"x": X}, functions=[LEAKY, TWICE]),
        "absent": model([high, call("Bound", ["x", "", "high"])], {"x": X}, functions=[bound]),
        "older": model([call("Older", ["x"])], {"x": X}, functions=[older]),
        "subgraph": model([call("Choice", ["x"])], {"x": X}, functions=[choice]),
        "again": model(
            [call("Twice", ["x"], "z", slope=0.7, label="f"), call("Twice", ["z"], slope=0.1, label="g")],
            {"x": X}, functions=[LEAKY, TWICE],
        ),
        "through": model([call("Through", ["x"], "y z")], {"x": X}, ["y", "z"], functions=[through]),
    }  # fmt: skip
    assert failures([case(made, {"x": X}, name) for name, made in models.items()]) == []


def _value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 6])


def test_names_say_where_an_operation_comes_from() -> None:
    made = model([call("Twice", ["x"], slope=0.7, label="outer")], {"x": X}, functions=[LEAKY, TWICE])
    ops = imported(made).main.ops
    assert [op.node for op in ops] == ["outer/b/b", "outer/c/b"]
    assert [op.tensor for op in ops] == ["outer/b", "y"]


def test_inner_names_do_not_hide_outer_ones() -> None:
    """A tensor of the model that is called as the function's inner one would be after renaming keeps its value."""
    body = function("Two", "a", "c", [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Exp", ["b"], ["c"])])
    nodes = [
        helper.make_node("Abs", ["x"], ["f/b"]),
        call("Two", ["x"], "z", label="f"),
        helper.make_node("Add", ["z", "f/b"], ["y"]),
    ]
    made = model(nodes, {"x": X}, functions=[body])
    assert failures([case(made, {"x": X}, "names")]) == []


def test_a_function_hides_the_operator_of_its_name() -> None:
    body = helper.make_function("", "Selu", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], opsets(onnx=23))
    made = model([helper.make_node("Selu", ["x"], ["y"])], {"x": X}, functions=[body])
    assert kinds(made) == ["neg"]


def test_unused_outputs_cost_nothing() -> None:
    body = function("Two", "a", "b c", [helper.make_node("Relu", ["a"], ["b"]), helper.make_node("Det", ["a"], ["c"])])
    made = model([call("Two", ["x"], "y")], {"x": X}, functions=[body])
    assert kinds(made) == ["relu"]


def refused(made: onnx.ModelProto, sentence: str, kind: type[CuvilError]) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        imported(made)
    assert "\n" not in str(caught.value)


def test_endless_and_growing_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = function("Endless", "a", "b", [call("Endless", ["a"], "b")])
    refused(model([call("Endless", ["x"])], {"x": X}, functions=[endless]), "must not be recursive", UsageError)
    growing = [LEAKY]
    for n in range(5):
        inner = growing[-1].name
        nodes = [call(inner, ["a"], "b", label="one"), call(inner, ["b"], "c", label="two")]
        growing.append(function(f"Grow{n}", "a", "c", nodes))
    made = model([call("Grow4", ["x"])], {"x": X}, functions=growing)
    assert len(kinds(made)) == 32
    monkeypatch.setattr(importer, "MOST_NODES", 40)
    refused(made, "expands functions to more than 40 nodes", UnsupportedError)


def test_wrong_calls() -> None:
    many = model([call("Leaky", ["x", "x"], slope=0.2)], {"x": X}, functions=[LEAKY])
    refused(many, "has 2 inputs and 1 outputs, but the function takes 1", UsageError)
    unknown = model([call("Nowhere", ["x"])], {"x": X}, functions=[LEAKY])
    refused(unknown, "belongs to a domain that is not compiled", UnsupportedError)
