"""Every operator form: the L0 operations it becomes, and equality of both sides run by onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from l0_to_onnx import to_onnx
from onnx_cases import CASES, Case, one_node

from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.parser import parse_module
from compiler_kernels.ir.text import print_module
from compiler_kernels.ir.verify import verify


def run(model: bytes, feeds: list[np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return session.run(None, dict(zip(names, feeds, strict=True)))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operator_form(case: Case) -> None:
    data = one_node(case.op, list(case.operands), case.opset, case.outputs, **case.attrs)
    module, store = import_onnx(data, filename="case.onnx")
    verify(module)
    assert parse_module(print_module(module)) == module
    assert tuple(op.kind for op in module.main.ops) == case.kinds
    assert {op.node for op in module.main.ops} == {"the_node"}
    assert list(module.main.output_names) == [f"y{n}" for n in range(case.outputs)]

    rng = np.random.default_rng(7)
    low = 0.1 if case.positive else -2.0
    feeds = [rng.uniform(low, 2, v.type.dims).astype(np.float32) for v in module.main.inputs]
    for ours, theirs in zip(run(to_onnx(module, store), feeds), run(data, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)
