"""Clinical logic over tensors whose sizes vary: symbols, and results whose size the data decides."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler_kernels.answer import number_json
from compiler_kernels.compile import compile_model
from compiler_kernels.engine import Engine, load_engine
from compiler_kernels.policy import Policy, load_policy
from compiler_kernels.targets.registry import resolve_target, runs_natively
from evidence.reference.clinical import decide

POLICY = """\
version: 1
model: {name: sizes, version: "1"}
shapes:
  height: [1, 5]
quantities:
  top: "max(mask[0, :, 1])"
  share: fraction(mask > 0.5)
  middle: percentile(mask, 50)
  total: sum(places)
  first: argmax(inputs.image)
decisions:
  found: total > 2 and share >= 0.25
safety:
  guards:
    wide: fraction(image > 0) > 0.1
fallbacks:
  not_a_number: {action: answer, decisions: {found: false}}
"""


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Policy]:
    if not runs_natively(resolve_target("x86_64-linux-musl")):
        pytest.skip("x86-64 engines do not run here")
    nodes = [
        helper.make_node("Add", ["image", "image"], ["mask"], "double"),
        helper.make_node("NonZero", ["line"], ["places"], "places"),
    ]
    graph = helper.make_graph(
        nodes,
        "sizes",
        [
            helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, "height", 3]),
            helper.make_tensor_value_info("line", TensorProto.FLOAT, [4]),
        ],
        [
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, "height", 3]),
            helper.make_tensor_value_info("places", TensorProto.INT64, [1, "count"]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    policy = load_policy(POLICY, "policy.yaml")
    path: Path = tmp_path_factory.mktemp("sizes") / "engine.so"
    target = "x86_64-linux-musl"
    compile_model(bytes(model.SerializeToString()), policy=policy, output=path, target=target)
    return load_engine(path), policy


@pytest.mark.parametrize("height", [1, 2, 5])
@pytest.mark.parametrize("line", [(0, 0, 0, 0), (1, 0, 2, 0), (1, 1, 1, 1)])
def test_regions_have_the_sizes_of_the_inference(
    sized: tuple[Engine, Policy], height: int, line: tuple[float, ...]
) -> None:
    engine, policy = sized
    image = np.arange(height * 3, dtype=np.float32).reshape(1, height, 3) * np.float32(0.1)
    values = {"image": image, "line": np.array(line, np.float32)}
    places = np.flatnonzero(values["line"]).astype(np.int64).reshape(1, -1)
    answer = engine.decide(values)
    wanted = decide(json.loads(policy.canonical_json()), values, {"mask": image + image, "places": places})
    assert answer.status == wanted.status
    assert {n: number_json(v) for n, v in answer.quantities.items()} == {
        n: number_json(v) for n, v in wanted.quantities.items()
    }
    assert dict(answer.decisions) == wanted.decisions and dict(answer.guards) == wanted.guards
