"""Models that call functions, judged by onnxruntime or the evaluator of the onnx package through compiled engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from evidence.conformance.cases import Case
from evidence.conformance.outcome import Kind
from evidence.conformance.suite import run_jobs

Array = npt.NDArray[Any]
DOMAIN = "local"


def opsets(**versions: int) -> list[onnx.OperatorSetIdProto]:
    """``onnx`` stands for the standard domain."""
    return [helper.make_opsetid("" if d == "onnx" else d, v) for d, v in versions.items()]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str] = ("y",),
    functions: Sequence[onnx.FunctionProto] = (),
    **versions: int,
) -> onnx.ModelProto:
    """Outputs are declared as float32 of any shape; :func:`case` states what they are."""
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()
    ]
    found = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(list(nodes), "functions", given, found)
    imports = opsets(**{"onnx": 23, DOMAIN: 1, **versions})
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def case(
    made: onnx.ModelProto, inputs: Mapping[str, Array], label: str, reference: bool = False, **bounds: float
) -> Case:
    """Expected values by onnxruntime, or by the onnx package's evaluator; output types and shapes become theirs."""
    names = [o.name for o in made.graph.output]
    if reference:
        values = ReferenceEvaluator(made).run(names, dict(inputs))
    else:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values = session.run(names, dict(inputs))
    expected = {n: np.asarray(v) for n, v in zip(names, values, strict=True)}
    typed = onnx.ModelProto()
    typed.CopyFrom(made)
    for info in typed.graph.output:
        found = expected[info.name]
        kind = helper.np_dtype_to_tensor_dtype(found.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, found.shape))
    return Case(label, label, typed, dict(inputs), expected, **{"rtol": 1e-4, "atol": 1e-6, **bounds})


def failures(cases: Sequence[Case]) -> list[str]:
    """Of cases through compiled engines: what differs from the expected values or from the reference's bits."""
    outcomes = run_jobs([(c, "as-is") for c in cases], batch=100)
    return [f"{o.name}: {o.kind.value}: {o.detail}" for o in outcomes if o.kind is not Kind.PASSED]
