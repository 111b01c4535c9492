"""Symbolic dimensions, pins, and the record of the source signature."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper
from onnx_cases import model_bytes

from compiler_kernels.errors import UnsupportedError, UsageError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.importers.signature import identifier, symbol
from compiler_kernels.ir.graph import Module, TensorType


def two_inputs(*shapes: list[object] | None, names: tuple[str, str] = ("a", "b")) -> bytes:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, shapes, strict=True)]
    nodes = [helper.make_node("Add", list(names), ["y"], name="add")]
    graph = helper.make_graph(nodes, "two", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return model_bytes(graph, 17, producer_name="case")


def load(data: bytes, **pins: tuple[int, ...]) -> Module:
    return import_onnx(data, filename="m.onnx", pins=pins)[0]


def test_one_pin_resolves_the_symbol_everywhere() -> None:
    module = load(two_inputs(["N", 3], ["N", 3]), a=(2, 3))
    assert [v.type for v in module.main.inputs] == [TensorType((2, 3)), TensorType((2, 3))]
    meta = dict(module.meta)
    assert meta["signature.a"] == meta["signature.b"] == "float32[N, 3]"
    assert (meta["opset"], meta["producer"], meta["model"]) == ("17", "case", "two")


def test_anonymous_dimensions_never_unify() -> None:
    for anonymous in ("", "?", -1, None):
        with pytest.raises(UnsupportedError, match=r"input 'b' .* anonymous dimension .* --input-shape b=\?,3"):
            load(two_inputs([anonymous, 3], [anonymous, 3]), a=(2, 3))


def test_unpinned_symbols_are_named_with_the_flag() -> None:
    with pytest.raises(UnsupportedError) as caught:
        load(two_inputs([1, "H", "W"], [1, "H", "W"]))
    assert str(caught.value) == (
        "input 'a' is float32[1, H, W] with the symbol H and the symbol W, of neither fixed nor bounded size; "
        "add --input-shape a=1,H,W with a number for H, W, or inputs.a.shape to the policy, "
        "or bounds such as [1, 8] as shapes.H and shapes.W"
    )
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("pins", "sentence"),
    [
        ({"c": (1, 2)}, "pinned for the input 'c', but the model's inputs are 'a', 'b'"),
        ({"a": (1, 2, 3)}, r"a=1,2,3 has rank 3, but input 'a' is float32\[N, 3\]; give 2 sizes"),
        ({"a": (1, 4)}, r"says 4 for axis 1, but input 'a' is float32\[N, 3\]; that axis must be 3"),
        ({"a": (0, 3)}, "has a dimension below 1"),
        ({"a": (2, 3), "b": (5, 3)}, "the symbol 'N' to 2 in input 'a' and to 5 in input 'b'"),
    ],
)
def test_contradicting_pins(pins: dict[str, tuple[int, ...]], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        load(two_inputs(["N", 3], ["N", 3]), **pins)


def test_same_symbol_twice_in_one_input() -> None:
    with pytest.raises(UsageError, match="the symbol 'N' to 2 in input 'a' and to 3 in input 'a'"):
        load(two_inputs(["N", "N"], ["N", "N"]), a=(2, 3))


def test_unknown_rank_needs_a_pin() -> None:
    data = two_inputs(None, [2])
    with pytest.raises(UnsupportedError, match="'a' has no declared shape; add --input-shape a="):
        load(data)
    assert load(data, a=(3, 2)).main.ops[0].type == TensorType((3, 2))


def test_ids_are_readable_and_distinct() -> None:
    module = load(two_inputs([2], [2], names=("in:0", "in/0")))
    assert [(v.id, v.name) for v in module.main.inputs] == [("in_0", "in:0"), ("in_0_2", "in/0")]
    assert identifier("v0", []) == "in_v0" and identifier("", []) == "input" and identifier("0a", []) == "in_0a"
    assert [symbol(t) for t in ("N", "", " ?", "-1", "a*b", "2x", "inf")] == [
        "N",
        "?",
        "?",
        "?",
        "a_b",
        "d_2x",
        "d_inf",
    ]
