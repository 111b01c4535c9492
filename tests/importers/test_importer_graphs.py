"""Whole graphs: folding, dead code, weights, outputs; and what is refused, with its sentence."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_cases import f, i, model_bytes, one_node

from compiler_kernels.errors import CuvilError, UnsupportedError, UsageError
from compiler_kernels.importers.node import make_node
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.verify import verify

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def build(
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray] | None = None,
    *,
    shape: tuple[int, ...] = (1, 4, 6, 8),
    outputs: tuple[str, ...] = ("y",),
    opset: int = 17,
    out_shape: list[object] | None = None,
    **more: object,
) -> bytes:
    info = [helper.make_tensor_value_info("x", FLOAT, shape)]
    outs = [helper.make_tensor_value_info(o, FLOAT, out_shape) for o in outputs]
    tensors = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    return model_bytes(helper.make_graph(nodes, "g", info, outs, tensors), opset, **more)


def node(op: str, inputs: str, outputs: str = "y", **attrs: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"n_{op}", **attrs)


def load(data: bytes) -> Module:
    module, _ = import_onnx(data, filename="m.onnx")
    verify(module)
    return module


def kinds(data: bytes) -> list[str]:
    return [op.kind for op in load(data).main.ops]


def test_shape_arithmetic_disappears() -> None:
    """The reshape that older exporters write: Shape, Gather, Unsqueeze, Concat."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n ax", "n1"),
        node("Concat", "n1 rest", "shape", axis=0),
        node("Reshape", "x shape"),
    ]
    module = load(build(nodes, {"zero": np.array(0), "ax": i(0), "rest": i(-1)}))
    assert [(op.kind, op.out.shape) for op in module.main.ops] == [("reshape", (1, 192))]
    assert module.main.weights == ()


def test_float_size_arithmetic_of_an_upsampling() -> None:
    """Sizes scaled in float: Shape, Slice, Cast, Mul, Floor, Cast, Concat, Resize."""
    nodes = [
        node("Shape", "x", "s"),
        node("Slice", "s two four", "hw"),
        node("Cast", "hw", "hwf", to=FLOAT),
        node("Mul", "hwf factor", "big"),
        node("Floor", "big", "floor"),
        node("Cast", "floor", "hwi", to=INT64),
        node("Slice", "s zero two", "nc"),
        node("Concat", "nc hwi", "sizes", axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    constants = {"two": i(2), "four": i(4), "zero": i(0), "factor": np.array([1.5, 1.26], np.float32)}
    module = load(build(nodes, constants))
    assert [(op.kind, op.out.shape) for op in module.main.ops] == [("resize", (1, 4, 9, 10))]


def test_constant_float_arithmetic_is_left_to_the_numerics_passes() -> None:
    nodes = [node("Mul", "w two", "w2"), node("Transpose", "w2", "w3"), node("Add", "x w3")]
    data = build(nodes, {"w": f(8, 6), "two": np.array(2, np.float32)})
    assert kinds(data) == ["mul", "transpose", "add"]


def test_moved_constants_are_folded_and_stored_once() -> None:
    nodes = [
        node("Transpose", "w", "t"),
        node("Unsqueeze", "t ax", "u"),
        node("Add", "x u", "a"),
        node("Sub", "a w2"),
    ]
    w = f(8, 6)
    module = load(build(nodes, {"w": w, "ax": i(0), "w2": np.ascontiguousarray(w.T)[None]}))
    assert [op.kind for op in module.main.ops] == ["add", "sub"]
    assert len(module.main.weights) == 1


def test_half_precision_weights_widen_exactly() -> None:
    w = f(4, 1, 1).astype(np.float16)
    module, store = import_onnx(
        build([node("Cast", "w", "wf", to=FLOAT), node("Mul", "x wf")], {"w": w}), filename="m.onnx"
    )
    np.testing.assert_array_equal(store.get(module.main.weights[0]), w.astype(np.float32))


def test_negative_conv_pads_become_a_slice() -> None:
    data = build([node("Conv", "x w", pads=[-1, 1, 0, -2])], {"w": f(2, 4, 2, 2)})
    module = load(data)
    assert [op.kind for op in module.main.ops] == ["slice", "conv"]
    assert module.main.ops[0].out.shape == (1, 4, 5, 6)
    assert module.main.ops[1].ints("pads") == (0, 1, 0, 0)
    assert [op.tensor for op in module.main.ops] == ["", "y"]


def test_transposed_same_padding_with_a_stride_beyond_the_kernel() -> None:
    """ONNX: the result is input times stride, so what the taps do not reach is output padding."""
    data = build([node("ConvTranspose", "x w", auto_pad="SAME_UPPER", strides=[3, 2])], {"w": f(4, 1, 2, 2)})
    op = load(data).main.ops[0]
    assert op.out.shape == (1, 1, 18, 16)
    assert (op.ints("pads"), op.ints("output_padding")) == ((0, 0, 0, 0), (1, 0))


def test_float_defaults_are_binary32() -> None:
    op = load(one_node("InstanceNormalization", [(1, 2, 3), f(2), f(2)], 13)).main.ops[0]
    assert op.float_("epsilon") == float(np.float32(1e-5)) != 1e-5


def test_dead_nodes_of_unknown_kind_are_ignored() -> None:
    nodes = [node("Relu", "x"), helper.make_node("NonZero", ["x"], ["dead"])]
    assert kinds(build(nodes)) == ["relu"]


def test_outputs_are_distinct_results() -> None:
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "b"), node("Identity", "x", "c"), node("Identity", "w", "d")]
    module = load(build(nodes, {"w": f(3)}, outputs=("a", "b", "c", "d")))
    assert [op.kind for op in module.main.ops] == ["relu", "reshape", "reshape", "reshape"]
    assert len(set(module.main.outputs)) == 4 and module.main.output_names == ("a", "b", "c", "d")


def test_empty_concat_operands_vanish() -> None:
    nodes = [node("Slice", "x four four one", "e"), node("Concat", "e x", "c", axis=1), node("Relu", "c")]
    assert kinds(build(nodes, {"four": i(4), "one": i(1)})) == ["relu"]


def test_initialisers_listed_as_inputs_are_constants() -> None:
    graph = onnx.load_model_from_string(build([node("Mul", "x w")], {"w": f(8)}))
    graph.graph.input.append(helper.make_tensor_value_info("w", FLOAT, (8,)))
    module = load(graph.SerializeToString())
    assert [v.name for v in module.main.inputs] == ["x"] and len(module.main.weights) == 1


def test_local_functions_are_inlined() -> None:
    body = [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Neg", ["r"], ["b"])]
    function = helper.make_function("local", "NegRelu", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    call = helper.make_node("NegRelu", ["x"], ["y"], domain="local")
    proto = onnx.load_model_from_string(build([call]))
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("local", 1))
    assert kinds(proto.SerializeToString()) == ["relu", "neg"]


def refused(data: bytes, sentence: str, kind: type[CuvilError]) -> None:
    with pytest.raises(kind, match=sentence) as caught:
        import_onnx(data, filename="m.onnx")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("op", "operands", "opset", "attrs", "sentence"),
    [
        ("ImageDecoder", [(9,)], 20, {}, r"node 'the_node' \(ImageDecoder, domain ai.onnx, opset 20\) decodes"),
        ("GridSample", [np.zeros((1, 1, 4, 4), np.int32), (1, 2, 2, 2)], 20, {}, "interpolates int32 elements"),
        ("Resize", [(1, 1, 4, 4), None, f(4, low=1)], 18, {"antialias": 1}, "antialias in mode nearest"),
        ("Reshape", [(4,), (2,)], 13, {}, "takes its shape from the run-time tensor 'x1'"),
        ("Dropout", [(4,), np.array(0.5, np.float32), np.array(True)], 13, {}, "training mode"),
        ("Cast", [(4,)], 13, {"to": TensorProto.STRING}, "casts to STRING"),
        ("Cast", [(4,)], 19, {"to": TensorProto.FLOAT8E4M3FN}, "casts to FLOAT8E4M3FN"),
        ("MaxPool", [(1, 1, 4)], 12, {"kernel_shape": [2], "pads": [-1, 0]}, "negative pads"),
    ],
)
def test_unsupported(op: str, operands: list[object], opset: int, attrs: dict[str, object], sentence: str) -> None:
    refused(one_node(op, operands, opset, **attrs), sentence, UnsupportedError)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "sentence"),
    [
        ("Conv", [(1, 3, 8, 8), f(4, 2, 3, 3)], {}, "3 input channels do not match w"),
        ("Conv", [(1, 2, 2, 2), f(4, 2, 3, 3)], {}, "does not fit"),
        ("MatMul", [(2, 3), (4, 2)], {}, "inner sizes 3 and 4 differ"),
        ("Add", [(2, 3), (4, 2)], {}, "do not broadcast"),
        ("Reshape", [(4, 3), i(5, -1)], {}, r"cannot reshape \[4, 3\] to \[5, -1\]"),
        ("Concat", [(4, 3), (4, 2)], {"axis": 0}, "differ outside axis 0"),
        ("Softmax", [(4, 3)], {"axis": 2}, "axis 2 of a tensor of rank 2"),
        ("MatMul", [(2,), np.array([1, np.inf], np.float32)], {}, "constant 'x1' .* infinity at element 1"),
        ("Mul", [(2, 2), np.eye(2)], {}, "operand 1 is float64 where the others are float32"),
        ("Transpose", [(2, 3)], {"perm": [0, 0]}, "not a permutation"),
        ("Squeeze", [(2, 3), i(0)], {}, "squeezes axes"),
        ("Clip", [(2,), np.array(np.nan, np.float32)], {}, "NaN as a bound"),
        ("Resize", [(1, 1, 4, 4), None, f(4, low=1)], {"mode": "cubic", "cubic_coeff_a": np.inf}, "is not finite"),
        ("ReduceMean", [(4, 3)], {"keepdims": 2}, "has keepdims 2, where ONNX defines 0 and 1"),
    ],
)
def test_contradictory(op: str, operands: list[object], attrs: dict[str, object], sentence: str) -> None:
    refused(one_node(op, operands, 13, **attrs), sentence, UsageError)  # type: ignore[arg-type]


@pytest.mark.parametrize("attrs", [{"mode": "cubic"}, {"mode": "linear", "antialias": 1}])
def test_resizes_that_are_one_operation_per_axis(attrs: dict[str, object]) -> None:
    main = load(one_node("Resize", [(1, 1, 4, 6), None, np.array([1, 1, 0.5, 1.5], np.float32)], 18, **attrs)).main
    assert [(op.kind, op.out.shape) for op in main.ops] == [("resize", (1, 1, 4, 9)), ("resize", (1, 1, 2, 9))]


def test_other_domains_control_flow_and_types() -> None:
    foreign = helper.make_node("Fancy", ["x"], ["y"], domain="com.example")
    proto = onnx.load_model_from_string(build([foreign]))
    proto.opset_import.append(helper.make_opsetid("com.example", 3))
    refused(proto.SerializeToString(), r"Fancy, domain com.example, opset 3\) belongs to a domain", UnsupportedError)
    proto = onnx.load_model_from_string(build([node("Relu", "x")]))
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    refused(proto.SerializeToString(), r"input 'x' is complex64\[1, 4, 6, 8\], an element type", UnsupportedError)
    decoder = build([node("ImageDecoder", "x")], opset=20)
    refused(decoder, "ImageDecoder, domain ai.onnx, opset 20", UnsupportedError)


def test_other_element_types() -> None:
    proto = onnx.load_model_from_string(build([node("Relu", "x")]))
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT16
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT16
    main = load(proto.SerializeToString()).main
    assert [op.out.dtype for op in main.ops] == ["int16"]
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    main = load(proto.SerializeToString()).main
    assert [(op.kind, op.out.dtype) for op in main.ops] == [
        ("cast", "float32"), ("relu", "float32"), ("cast", "bfloat16"),
    ]  # fmt: skip


def test_declared_output_shape_must_hold() -> None:
    data = build([node("Relu", "x")], out_shape=["N", 4, 6, 9])
    refused(data, r"'y' is declared as float32\[N, 4, 6, 9\], but the graph computes", UsageError)


def test_opsets_outside_the_range() -> None:
    newest = onnx.defs.onnx_opset_version()
    future = build([node("Relu", "x")], opset=newest + 1)
    refused(future, f"uses opset {newest + 1} of ai.onnx; opsets 7 to", UnsupportedError)
    older = build([node("Relu", "x")], opset=5)
    refused(older, r"uses opset 5 of ai.onnx \(Relu changed before 7\); opsets 7 to", UnsupportedError)


def test_older_opsets_whose_operators_did_not_change() -> None:
    """Relu of opset 6 is that of opset 7, Sigmoid too; Add took its broadcasting attributes until 7."""
    assert kinds(build([node("Relu", "x", "r"), node("Sigmoid", "r")], opset=6)) == ["relu", "sigmoid"]
    refused(build([node("Relu", "x", "r"), node("Add", "r x")], opset=6), r"\(Add changed before 7\)", UnsupportedError)


def test_external_weights() -> None:
    proto = onnx.load_model_from_string(build([node("Mul", "x w")], {"w": f(8)}))
    tensor = proto.graph.initializer[0]
    onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    tensor.ClearField("raw_data")
    refused(proto.SerializeToString(), "m.onnx keeps the weights 'w' in another file", UnsupportedError)


def test_huge_constants_are_not_built() -> None:
    nodes = [node("ConstantOfShape", "s", "c"), node("Add", "x c")]
    refused(build(nodes, {"s": i(2**20, 2**20)}), "more than .* elements", UnsupportedError)


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x08\x07", bytes(100)])
def test_files_that_are_no_models(data: bytes) -> None:
    refused(data, "^m.onnx is (empty|not an ONNX model)", UsageError)


def test_no_operator_form_leaves_an_attribute_unread() -> None:
    """An attribute of a newer schema must be refused, not skipped."""
    proto = helper.make_node("Relu", ["x"], ["y"], novel=1, momentum=0.5)
    made = make_node(proto, 0, 28)
    assert made.unread() == ["novel"] and made.int_("novel", 0) == 1 and made.unread() == []


def test_tensors_beyond_31_bits_are_refused() -> None:
    data = build([node("Expand", "x s")], {"s": i(2**20, 4, 6, 512)}, shape=(1, 4, 6, 1))
    refused(data, r"node 'n_Expand' computes more than 2147483647 elements", UnsupportedError)


def test_aspect_ratio_policies() -> None:
    """ONNX: one ratio for all axes, sizes rounded half up."""
    for policy, expected, scale in (("not_larger", (1, 2), 0.5), ("not_smaller", (2, 3), 0.75)):
        resize = helper.make_node(
            "Resize", ["x", "", "", "s"], ["y"], mode="nearest", axes=[2, 3], keep_aspect_ratio_policy=policy
        )
        op = load(build([resize], {"s": i(1, 3)}, shape=(1, 1, 2, 4), opset=18)).main.ops[0]
        assert op.out.shape[2:] == expected and op.floats("scales") == (1.0, 1.0, scale, scale)
