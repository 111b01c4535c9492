"""LSTM, GRU and RNN through importer and reference against onnxruntime and onnx.reference: all directions, outputs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler_kernels.errors import UsageError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from evidence.reference import load_graph, run

TIME, BATCH, INPUT, HIDDEN = 7, 3, 5, 9
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def recurrent_model(op: str, direction: str, outputs: list[str], **options: Any) -> tuple[bytes, dict[str, Any]]:
    """A one-node model. Options: ``states`` (initial states as inputs), ``bias``, ``peepholes``, ``lengths``, and
    attributes."""
    rng = np.random.default_rng(len(op) + len(direction))
    d, g = DIRECTIONS[direction], GATES[op]
    first = options.get("layout", 0) == 1
    states = options.pop("states", False)
    constants: dict[str, Any] = {
        "w": rng.standard_normal((d, g * HIDDEN, INPUT)), "r": rng.standard_normal((d, g * HIDDEN, HIDDEN)) / 2
    }  # fmt: skip
    operands = ["x", "w", "r"]
    if options.pop("bias", True):
        constants["b"] = rng.standard_normal((d, 2 * g * HIDDEN))
        operands.append("b")
    else:
        operands.append("")
    lengths = options.pop("lengths", None)
    operands.append("" if lengths is None else "lengths")
    inputs = {"x": rng.standard_normal((BATCH, TIME, INPUT) if first else (TIME, BATCH, INPUT)).astype(np.float32)}
    if states:
        for name in ("h0", "c0") if op == "LSTM" else ("h0",):
            shape = (BATCH, d, HIDDEN) if first else (d, BATCH, HIDDEN)
            inputs[name] = rng.standard_normal(shape).astype(np.float32)
            operands.append(name)
    if options.pop("peepholes", False):
        operands += [""] * (7 - len(operands)) + ["p"]
        constants["p"] = rng.standard_normal((d, 3 * HIDDEN))
    floats = {k: v.astype(np.float32) for k, v in constants.items()}
    if lengths is not None:
        floats["lengths"] = np.array(lengths, dtype=np.int32)
    while not operands[-1]:
        operands.pop()
    names = [n if n in outputs else "" for n in ("y", "y_h", "y_c")[: 3 if op == "LSTM" else 2]]
    while not names[-1]:
        names.pop()
    node = helper.make_node(op, operands, names, name="cell", hidden_size=HIDDEN, direction=direction, **options)
    graph = helper.make_graph(
        [node], "net",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in floats.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", options.pop("opset", 17))], ir_version=8)
    return made.SerializeToString(), inputs


def ours(data: bytes, inputs: dict[str, Any]) -> dict[str, Any]:
    module, store = import_onnx(data, filename="m.onnx")
    graph = load_graph(neutral_json(module.main), pack(module.main, store))
    values = run(graph, inputs)
    return {name: values[value_id] for value_id, name in graph.outputs}


OUTPUTS = {"LSTM": ["y", "y_h", "y_c"], "GRU": ["y", "y_h"], "RNN": ["y", "y_h"]}


def forms() -> list[tuple[str, str, dict[str, Any]]]:
    found: list[tuple[str, str, dict[str, Any]]] = []
    for op, direction in itertools.product(GATES, DIRECTIONS):
        extra: list[dict[str, Any]] = [
            {},
            {"states": True},
            {"bias": False},
            {"lengths": [TIME] * BATCH},
            {"clip": 0.6},
        ]
        if op == "GRU":
            extra += [{"linear_before_reset": 1}, {"linear_before_reset": 1, "bias": False, "states": True}]
        if op == "LSTM":
            extra += [{"peepholes": True}, {"input_forget": 1}, {"peepholes": True, "states": True}]
        found += [(op, direction, e) for e in extra]
    return found


@pytest.mark.parametrize(("op", "direction", "options"), forms(), ids=str)
def test_every_form_agrees_with_onnxruntime(op: str, direction: str, options: dict[str, Any]) -> None:
    for outputs in ([*OUTPUTS[op]], *[[o] for o in OUTPUTS[op]]):
        data, inputs = recurrent_model(op, direction, outputs, **options)
        expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(outputs, inputs)
        found = ours(data, inputs)
        assert list(found) == outputs
        for name, value in zip(outputs, expected, strict=True):
            assert found[name].shape == value.shape
            np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_direction_agrees_with_the_onnx_reference(op: str, direction: str) -> None:
    data, inputs = recurrent_model(op, direction, OUTPUTS[op])
    expected = ReferenceEvaluator(onnx.load_from_string(data)).run(None, inputs)
    for name, value in zip(OUTPUTS[op], expected, strict=True):
        np.testing.assert_allclose(ours(data, inputs)[name], value, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("op", GATES)
def test_batch_first(op: str) -> None:
    """Layout 1 gives the numbers of layout 0, transposed (onnxruntime does not run layout 1)."""
    for direction in DIRECTIONS:
        data, inputs = recurrent_model(op, direction, OUTPUTS[op], layout=1, states=True)
        swapped, other = recurrent_model(op, direction, OUTPUTS[op], states=True)
        other = {k: np.ascontiguousarray(v.swapaxes(0, 1)) for k, v in inputs.items()}
        first, second = ours(data, inputs), ours(swapped, other)
        np.testing.assert_array_equal(first["y"], second["y"].transpose(2, 0, 1, 3))
        for name in OUTPUTS[op][1:]:
            np.testing.assert_array_equal(first[name], second[name].swapaxes(0, 1))


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sequence_lengths_agree_with_onnxruntime(op: str, direction: str) -> None:
    """Y is zero behind the end of a sequence, Y_h and Y_c are those of its last step, also where there is none."""
    data, inputs = recurrent_model(op, direction, OUTPUTS[op], lengths=[2, TIME, 0])
    expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, inputs)
    for name, value in zip(OUTPUTS[op], expected, strict=True):
        np.testing.assert_allclose(ours(data, inputs)[name], value, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lengths": [TIME, TIME + 1, TIME]}, "sequence lengths"),
        ({"lengths": [TIME]}, "sequence lengths of shape"),
        ({"activations": ["Relu", "Tanh"]}, "it needs 3 of relu"),
        ({"activations": ["Relu", "Tanh", "Gelu"]}, "it needs 3 of relu"),
    ],
)
def test_contradictions(options: dict[str, Any], words: str) -> None:
    data, _ = recurrent_model("LSTM", "forward", ["y"], **options)
    with pytest.raises(UsageError, match=words):
        import_onnx(data, filename="m.onnx")


@pytest.mark.parametrize(
    ("activations", "fast"),
    [
        (["Sigmoid", "Tanh", "Tanh"], True),
        (["HardSigmoid", "Relu", "Elu"], True),
        (["Sigmoid", "ThresholdedRelu", "Tanh"], False),
    ],
)
def test_which_activations_have_vector_kernels(activations: list[str], fast: bool) -> None:
    data, _ = recurrent_model("LSTM", "forward", ["y"], activations=activations)
    frozen, _ = freeze(*(made := import_onnx(data, filename="m.onnx")))
    kinds = [op.kind for graph in lower_to_l2(frozen, made[1]).graphs[1:] for op in graph.ops]
    assert ("lstm_steps" in kinds) == fast and ("lstm" in kinds) != fast


def test_contradicting_weights_are_the_models_fault() -> None:
    data, _ = recurrent_model("LSTM", "forward", ["y"])
    model = onnx.load_from_string(data)
    next(a for a in model.graph.node[0].attribute if a.name == "hidden_size").i = HIDDEN + 1
    with pytest.raises(UsageError, match=r"hidden size|weights"):
        import_onnx(model.SerializeToString(), filename="m.onnx")
