"""The shipped model, its policy and its labels are what docs/demo.md says."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from demo_case import Case

from compiler_kernels.policy import load_policy
from cuvil_assets import demo, demo_data

DOC = Path(__file__).parents[2] / "docs" / "demo.md"
OPERATORS = {
    "BatchNormalization",
    "Concat",
    "Constant",
    "Conv",
    "ConvTranspose",
    "MaxPool",
    "Relu",
    "Resize",
    "Sigmoid",
}


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(demo.MODEL)


def test_model_is_the_one_that_is_documented() -> None:
    data = demo.MODEL.read_bytes()
    assert hashlib.sha256(data).hexdigest() == demo.MODEL_SHA256
    assert demo.MODEL_SHA256 in DOC.read_text(encoding="utf-8")
    assert len(data) < 200_000


def test_model_is_valid_and_has_the_documented_operators(model: onnx.ModelProto) -> None:
    onnx.checker.check_model(model, full_check=True)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
    assert {node.op_type for node in model.graph.node} == OPERATORS
    (resize,) = (node for node in model.graph.node if node.op_type == "Resize")
    assert next(a.s for a in resize.attribute if a.name == "mode") == b"linear"


def test_batch_normalization_is_left_unfolded_and_in_inference_form(model: onnx.ModelProto) -> None:
    norms = [node for node in model.graph.node if node.op_type == "BatchNormalization"]
    assert len(norms) == 10
    for node in norms:
        assert len(node.output) == 1
        assert all(a.i == 0 for a in node.attribute if a.name == "training_mode")


def test_model_interface_has_symbolic_sizes(model: onnx.ModelProto) -> None:
    def dims(info: onnx.ValueInfoProto) -> list[str | int]:
        return [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]

    assert [(i.name, dims(i)) for i in model.graph.input] == [("rgb", ["N", 3, "H", "W"])]
    assert [(o.name, dims(o)) for o in model.graph.output] == [("vessel", ["N", 1, "H", "W"])]


def test_model_carries_no_path_of_the_machine_it_was_made_on() -> None:
    data = demo.MODEL.read_bytes()
    assert not any(piece in data for piece in (b"/home", b"/root", b"/work", b"/tmp", b"site-packages", b".py"))


def test_policy_guards_input_and_output() -> None:
    policy = load_policy(demo.POLICY.read_bytes(), demo.POLICY.name)
    assert (policy.model.name, policy.model.version) == ("fundus_vessel_unet", "1.0.0")
    assert set(policy.inputs) == {demo.INPUT} and set(policy.outputs) == {demo.OUTPUT}
    for guard in (policy.inputs[demo.INPUT], policy.outputs[demo.OUTPUT]):
        assert guard.finite and guard.range == (0.0, 1.0) and guard.shape is None


def test_probability_map_is_sane(case: Case) -> None:
    """Every pixel is a probability, the black surround has no vessel, and most labelled pixels are found."""
    assert case.probability.shape == (1, 1, 640, 320) and case.probability.dtype == np.float32
    vessel = case.probability[0, 0]
    assert np.isfinite(vessel).all() and vessel.min() >= 0 and vessel.max() <= 1
    surround = ~demo_data.field_of_view(case.halves.held_out)
    assert surround.mean() > 0.1 and vessel[surround].max() < 0.5
    assert 0.8 < demo_data.dice(vessel > demo.THRESHOLD, case.label) < 0.9


def test_held_out_half_is_not_learnt_by_position(case: Case) -> None:
    """Turning the picture by 180 degrees turns the answer: the model looks at the picture, not at the place."""
    runtime = pytest.importorskip("onnxruntime", reason="the test extra installs onnxruntime")
    session = runtime.InferenceSession(str(demo.MODEL), providers=["CPUExecutionProvider"])
    turned = session.run(None, {demo.INPUT: demo_data.as_nchw(case.halves.held_out[::-1, ::-1])})[0]
    assert demo_data.dice(turned[0, 0, ::-1, ::-1] > demo.THRESHOLD, case.label) > 0.75
