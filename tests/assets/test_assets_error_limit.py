"""A build whose error passes the policy's multiple of onnxruntime's ends with exit code 1 and delivers nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil_assets.cli import main

POLICY = "version: 1\nmodel: {{name: offset, version: 1.0.0}}\nnumerics: {{max_error_ratio: {limit}}}\n"


def offset_model(folder: Path) -> Path:
    """(x + 1000) - 1000: both systems round alike, and the result keeps ten bits fewer than it could."""
    nodes = [
        helper.make_node("Add", ["x", "k"], ["s"], "shift"),
        helper.make_node("Sub", ["s", "k"], ["y"], "back"),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 32]) for n in "xy"]
    graph = helper.make_graph(
        nodes, "offset", info[:1], info[1:], [numpy_helper.from_array(np.array(1000, np.float32), "k")]
    )
    path = folder / "offset.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize(("limit", "code"), [(0.9, 1), (1.1, 0)])
def test_limit_decides(limit: float, code: int, tmp_path: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(limit=limit))
    engine = tmp_path / "out" / "inference-engine.bin"
    words = ["build", "--model", str(offset_model(tmp_path)), "--policy", str(policy), "--output", str(engine)]
    assert main([*words, "--target", "x86_64-linux-musl", "--json"]) == code
    assert engine.exists() == (code == 0)
    document = json.loads(capfd.readouterr().out)
    if code:
        assert document["check"] == "error-beyond-limit"
        assert "passes 0.9 times onnxruntime's" in document["message"] and "with 1 times" in document["message"]
