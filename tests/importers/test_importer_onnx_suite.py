"""ONNX's own node tests (shipped in the onnx package) through the importer, against the values they expect."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
from l0_to_onnx import to_onnx
from onnx import numpy_helper
from test_importer_operators import run

from compiler_kernels.errors import CuvilError
from compiler_kernels.importers.onnx_importer import OPERATORS, import_onnx
from compiler_kernels.ir.verify import verify

# Inputs that only steer an operator are frozen to initialisers, because engines have static shapes.
STEERING = {"scales", "roi", "min", "max", "ratio"}
# The way back to ONNX does not write these; test_importer_recurrent.py runs them through the reference.
RECURRENT = ("LSTM", "GRU", "RNN")
KNOWN = {
    "test_resize_downsample_scales_linear_align_corners": "onnxruntime aligns corners of the whole size, ONNX does not",
    "test_resize_downsample_sizes_nearest_not_smaller": "the way back to ONNX cannot round a size half up",
}


def array(value: object) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def frozen(model: onnx.ModelProto, values: list[np.ndarray]) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model with everything but float data as constants, and the data it still takes."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    pad = copy.graph.node[0].op_type == "Pad"
    feeds: dict[str, np.ndarray] = {}
    for info, value in zip(model.graph.input, values, strict=False):
        if value.dtype == np.float32 and info.name not in STEERING and not (pad and info.name == "value"):
            feeds[info.name] = value
        else:
            copy.graph.initializer.append(numpy_helper.from_array(value, info.name))
    kept = [i for i in model.graph.input if i.name in feeds]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    return copy.SerializeToString(), feeds


def test_onnx_node_tests() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # computing the expected values divides by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        cases = {c.name: c for c in collect_testcases(None)}
    passed, wrong = 0, []
    for name, case in cases.items():
        nodes = case.model.graph.node
        values = list(case.data_sets[0][0])
        if len(nodes) != 1 or nodes[0].domain or nodes[0].op_type not in OPERATORS:
            continue
        if nodes[0].op_type in RECURRENT:
            continue
        if not all(isinstance(v, np.ndarray | np.generic | onnx.TensorProto) for v in values):
            continue  # sequences and optionals
        data, feeds = frozen(case.model, [array(v) for v in values])
        pins = {k: v.shape for k, v in feeds.items()}
        try:
            module, store = import_onnx(data, filename=name, pins=pins)
        except CuvilError:
            continue  # other element types, training forms, cubic; their sentences are tested elsewhere
        verify(module)
        for ours, expected in zip(
            run(to_onnx(module, store), list(feeds.values())), case.data_sets[0][1], strict=False
        ):
            want = array(expected)
            if ours.shape != want.shape or not np.allclose(ours, want, rtol=1e-3, atol=1e-5, equal_nan=True):
                wrong.append(name)
                break
        else:
            passed += 1
    assert sorted(wrong) == sorted(KNOWN)
    assert passed >= 320
