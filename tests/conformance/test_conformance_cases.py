"""The list of names, the choice of cases, and which inputs become constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from compiler_kernels.errors import UsageError
from evidence.conformance import onnx_node_cases
from evidence.conformance.cases import denominator, listed, select
from evidence.conformance.deviations import DEVIATIONS
from evidence.conformance.steering import STEERING


def test_the_list_names_every_test_of_the_package_and_the_denominators_are_fixed() -> None:
    assert set(listed()) == set(onnx_node_cases())
    assert (len(listed()), len(denominator("target")), len(denominator("onnxruntime"))) == (1884, 769, 1593)
    assert denominator("target") < denominator("onnxruntime")


def test_operators_of_the_list_are_those_of_the_models() -> None:
    for name, case in onnx_node_cases().items():
        if "_expanded" not in name:
            assert listed()[name].op in {node.op_type for node in case.model.graph.node} | {""}, name


def frozen_names(name: str) -> set[str]:
    case = onnx_node_cases()[name]
    data, inputs = case.variant("frozen")
    model = onnx.load_from_string(data)
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    names = set(case.inputs) - set(inputs)
    assert [i.name for i in model.graph.input] == list(inputs)
    for constant in names:
        np.testing.assert_array_equal(constants[constant], case.inputs[constant])
    return names


@pytest.mark.parametrize(
    ("name", "frozen"),
    [
        ("test_slice", {"starts", "ends", "axes", "steps"}),
        ("test_constant_pad", {"pads"}),
        ("test_resize_upsample_scales_nearest", {"scales"}),
        ("test_reduce_sum_keepdims_random", {"axes"}),
        ("test_reduce_l2_keep_dims_random_expanded", {"axes"}),
        ("test_range_float_type_positive_delta_expanded", {"start", "limit", "delta"}),
        ("test_nonmaxsuppression_suppress_by_IOU", {"max_output_boxes_per_class"}),
        ("test_clip", set()),
        ("test_gather_0", set()),
        ("test_lstm_with_initial_bias", set()),
    ],
)
def test_which_inputs_are_frozen(name: str, frozen: set[str]) -> None:
    assert frozen_names(name) == frozen


def test_as_is_leaves_the_model_alone() -> None:
    case = onnx_node_cases()["test_slice"]
    data, inputs = case.variant("as-is")
    assert data == case.model.SerializeToString()
    assert list(inputs) == ["x", "starts", "ends", "axes", "steps"]
    with pytest.raises(UsageError, match="as-is, frozen"):
        case.variant("half")


def test_positions_of_the_table_are_inputs_of_the_operators() -> None:
    for op, positions in STEERING.items():
        versions = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == op and s.domain == ""]
        widest = max(versions, key=lambda s: len(s.inputs))
        assert max(positions) < len(widest.inputs), op


def test_selection() -> None:
    names = ["test_relu", "test_conv_with_strides_padding", "test_basic_conv_with_padding", "test_relu_expanded_ver18"]
    assert select(names, "relu") == ["test_relu", "test_relu_expanded_ver18"]
    assert select(names, "test_rel?") == ["test_relu"]
    assert select(names, op="conv,Clip") == names[1:3]
    with pytest.raises(UsageError, match="--only nothing: no node test matches"):
        select(names, "nothing")


def test_deviations_are_tests_of_the_list_outside_the_target() -> None:
    assert set(DEVIATIONS) <= set(listed()) - denominator("target")
