"""Stages up to the frozen graph with bounded symbols, and accesses of whole graphs: no sound one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler_kernels.errors import CuvilError, UnsupportedError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.symbols import symbols_of
from compiler_kernels.proofs.access import prove_accesses
from compiler_kernels.stage import Artifact
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import FROZEN_GRAPH, IR_L0, SOURCE_MODEL, freeze
from evidence.conformance.cases import onnx_node_cases

MODELS = Path(__file__).parents[3] / "shared" / "models"
POLICY = 'version: 1\nmodel: {name: m, version: "1"}\n'


def small() -> bytes:
    """Convolution, batch normalisation, ReLU, and a skip connection over half the height."""
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.normal(size=(3, 3, 3, 3)).astype(np.float32),
        **{name: rng.uniform(0.5, 1.5, 3).astype(np.float32) for name in ("s", "b", "m", "v")},
        "two": np.array([1, 1, 2, 2], np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="/conv"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], name="/norm"),
        helper.make_node("Relu", ["n"], ["r"], name="/relu"),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="/pool"),
        helper.make_node("Resize", ["p", "", "two"], ["u"], mode="nearest", name="/up"),
        helper.make_node("Add", ["u", "r"], ["y"], name="/add"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


def run_stages(shapes: str) -> dict[str, Artifact]:
    artefacts = {
        "model.onnx": Artifact("model.onnx", small()),
        "policy.yaml": Artifact("policy.yaml", (POLICY + shapes).encode()),
    }
    config = {"model_filename": "m.onnx", "policy_filename": "p.yaml", "input_shapes": {}, "conversion": None}
    for stage in (SOURCE_MODEL, IR_L0, FROZEN_GRAPH):
        result = stage.execute(artefacts, config)
        artefacts |= {f"{stage.name}/{a.name}": a for a in result.artifacts}
        if stage is FROZEN_GRAPH:
            assert isinstance(result.facts["index_bounds_proved"], int) and result.facts["index_bounds_proved"] > 20
            assert result.facts["accesses_not_described"] == []
    return artefacts


def test_stages_take_the_bounds_of_the_policy() -> None:
    made = run_stages("shapes: {batch: [1, 4], height: {min: 2, max: 64, multiple: 2}}\n")
    module = parse_module(made["frozen_graph/frozen_graph.txt"].text)
    assert {n: str(b) for n, b in symbols_of(module.meta).items()} == {"batch": "1..4", "height": "2..64 step 2"}
    assert module.main.types()[module.main.outputs[0]].shape == ("batch", 3, "height", 8)
    assert {op.kind for op in module.main.ops} == {"conv", "relu", "max_pool", "resize", "add"}
    neutral = json.loads(made["frozen_graph/frozen_graph.json"].text)
    assert neutral["inputs"][0]["shape"] == ["batch", 3, "height", 8]


def test_stages_refuse_what_is_not_proved() -> None:
    with pytest.raises(UnsupportedError, match=r"^height = 3 breaks node '/add' .*\[1, 3, 2, 8\] and \[1, 3, 3, 8\]"):
        run_stages("shapes: {batch: [1, 4], height: [2, 64]}\n")


@pytest.mark.slow
def test_sound_graphs_of_the_onnx_suite_are_proved() -> None:
    """All tests of the onnx package that the importer takes; a refusal would be a wrong description."""
    proved = 0
    for name in sorted(onnx_node_cases()):
        data, _ = onnx_node_cases()[name].variant("frozen")
        try:
            module = import_onnx(data, filename=name)[0]
        except CuvilError:
            continue
        proved += prove_accesses(module).operations > 0
    assert proved > 1000


@pytest.mark.parametrize(
    ("name", "pins"),
    [
        ("fundus_vessel_unet", {"rgb": (1, 3, 64, 64)}),
        ("brainmaze_seizure_cnn_bilstm", {"x": (1, 100, 40)}),
        ("ppocr_v4_rec_svtr", {"x": (1, 3, 48, 320)}),
        ("openspindlenet_eeg_unet1d", {"raw_signal": (1, 1, 7500), "spectrogram": (1, 15, 7500)}),
    ],
)
def test_functions_of_lowered_models_are_proved(name: str, pins: dict[str, tuple[int, ...]]) -> None:
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not here (shared/models is not part of the project)")
    module, store = import_onnx(path.read_bytes(), filename=path.name, pins=pins)
    lowered = lower_to_l2(freeze(module, store)[0], store)
    assert len(lowered.graphs) > 5
    report = prove_accesses(lowered)
    assert report.undescribed == () and report.operations >= len(lowered.graphs) - 1
