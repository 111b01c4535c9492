"""Damaged files end in one sentence of a CuvilError, never in anything else."""

from __future__ import annotations

from functools import cache

import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_cases import CASES, f, i, model_bytes, one_node

from compiler_kernels.errors import CuvilError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.verify import verify


@cache
def small_network() -> bytes:
    """Convolution, size arithmetic, resize, concat, gemm, softmax in one model of 1.5 kB."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "b", "b", "b", "v"], ["n"], name="norm"),
        helper.make_node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["n"], ["s"]),
        helper.make_node("Resize", ["p", "", "", "s"], ["r"], mode="linear"),
        helper.make_node("Concat", ["n", "r"], ["k"], axis=1),
        helper.make_node("Reshape", ["k", "flat"], ["l"]),
        helper.make_node("Gemm", ["l", "g"], ["m"], transB=1),
        helper.make_node("Clip", ["m", "", "top"], ["q"]),
        helper.make_node("Softmax", ["q"], ["y"], axis=-1),
    ]
    constants = {
        "w": f(3, 1, 3, 3), "b": f(3), "v": f(3, low=1), "flat": i(1, -1), "g": f(2, 96), "top": f(),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return model_bytes(graph, 17)


def attempt(data: bytes) -> bool:
    """Whether ``data`` imports; a refusal must be one line that says something."""
    try:
        module, _ = import_onnx(data, filename="damaged.onnx", pins={"x": (1, 1, 4, 4)})
    except CuvilError as error:
        assert str(error) and "\n" not in str(error)
        return False
    verify(module)
    return True


def test_the_undamaged_network_imports() -> None:
    assert attempt(small_network())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_truncation(data: st.DataObject) -> None:
    whole = small_network()
    cut = data.draw(st.integers(0, len(whole) - 1))
    attempt(whole[:cut])


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=4))
def test_bit_flips(flips: list[tuple[int, int]]) -> None:
    damaged = bytearray(small_network())
    for position, bit in flips:
        damaged[position % len(damaged)] ^= 1 << bit
    attempt(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.integers(0, 10**6), st.integers(0, 7))
def test_bit_flips_in_every_operator(case: object, position: int, bit: int) -> None:
    damaged = bytearray(one_node(case.op, list(case.operands), case.opset, case.outputs, **case.attrs))
    damaged[position % len(damaged)] ^= 1 << bit
    try:
        verify(import_onnx(bytes(damaged), filename="damaged.onnx")[0])
    except CuvilError as error:
        assert str(error) and "\n" not in str(error)


def test_every_attribute_of_every_case_survives_removal_and_a_wrong_value() -> None:
    for case in CASES:
        for index in range(len(case.attrs)):
            for value in (None, -3, [0, 0], b"none"):
                proto = onnx.load_model_from_string(
                    one_node(case.op, list(case.operands), case.opset, case.outputs, **case.attrs)
                )
                node = proto.graph.node[0]
                name = node.attribute[index].name
                del node.attribute[index]
                if value is not None:
                    node.attribute.append(helper.make_attribute(name, value))
                try:
                    verify(import_onnx(proto.SerializeToString(), filename="m.onnx")[0])
                except CuvilError as error:
                    assert "\n" not in str(error)
