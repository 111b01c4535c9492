"""Convolutions with computed weights: a padding tap times an infinity is NaN, as the definition says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.neutral import neutral_json
from compiler_kernels.ir.weights import pack
from compiler_kernels.stages.backend import lower_to_l2
from compiler_kernels.stages.frontend import freeze
from evidence.reference import load_graph, run
from evidence.reference.vector_model import Expected
from evidence.vector_engines import Compiled, compare, input_bytes, program

sys.path.append(str(Path(__file__).resolve().parents[1] / "vectors"))
from vector_targets import compile_program, run_program, ways


def _model(op: str, shape: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...], **attrs: Any) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], name="n", **attrs)],
        "runtime",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("w", weight))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "model",
    [
        _model("Conv", (1, 2, 4, 4), (3, 2, 3, 3), (1, 3, 4, 4), pads=[1, 1, 1, 1]),
        _model("ConvTranspose", (1, 3, 3, 3), (3, 2, 3, 3), (1, 2, 7, 7), strides=[2, 2]),
    ],
    ids=["conv", "conv_transpose"],
)
def test_padding_taps_are_executed(model: bytes, tmp_path: Path) -> None:
    module, store = import_onnx(model, filename="runtime.onnx")
    frozen, _ = freeze(module, store)
    graph = load_graph(neutral_json(frozen.main), pack(frozen.main, store))
    rng = np.random.default_rng(3)
    given = {t.name: rng.standard_normal(t.shape).astype(np.float32) for t in graph.inputs}
    given["w"][0, 0, 0, 0] = given["w"][0, 0, 2, 2] = np.inf
    values = run(graph, given)
    expected = Expected.of(values[graph.outputs[0][0]].reshape(-1))
    assert np.isnan(values[graph.outputs[0][0]]).any()
    lowered = lower_to_l2(frozen, store)
    item = Compiled("runtime", lowered, store, tuple(given[v.name] for v in lowered.main.inputs), expected)
    way = ways()[0]
    product = compile_program(program([item], way.isa), way, tmp_path)
    assert compare([item], run_program(product, way, input_bytes([item]), tmp_path)) == {}
