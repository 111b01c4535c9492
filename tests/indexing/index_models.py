"""One-node models with random operands, judged by onnxruntime (or onnx.reference where it lacks the type)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from evidence.conformance.cases import Case
from evidence.conformance.outcome import Kind, Outcome
from evidence.conformance.suite import run_jobs

Array = npt.NDArray[Any]
FLOATS = ("float32", "float64", "float16")
INTS = ("int8", "int32", "int64", "uint8", "uint16")
TYPES = (*FLOATS, "bfloat16", *INTS, "bool")


def draw(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    """Few different values, so that ties, duplicates and zeros are common."""
    values = np.asarray(rng.integers(-3, 4, tuple(shape)))
    if dtype == "bool":
        return np.asarray(values > 0)
    if dtype.startswith("u"):
        values = abs(values)
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def model_of(
    op: str,
    inputs: Mapping[str, Array | None],
    outputs: Mapping[str, Array],
    attributes: Mapping[str, Any],
    constants: Sequence[str] = (),
    opset: int = 21,
    domain: str = "",
    sizes: str = "fixed",
) -> onnx.ModelProto:
    """``sizes``: "fixed" declares the shapes of ``outputs``, "open" gives every axis a name.

    An output called ``_...`` is none of the model.
    """

    def info(name: str, value: Array, free: bool) -> onnx.ValueInfoProto:
        shape = [f"{name}_{a}" for a in range(value.ndim)] if free else list(value.shape)
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        return onnx.helper.make_tensor_value_info(name, kind, shape)

    node = onnx.helper.make_node(
        op, ["" if v is None else n for n, v in inputs.items()], list(outputs), name=op, domain=domain, **attributes
    )
    present = {n: v for n, v in inputs.items() if v is not None}
    graph = onnx.helper.make_graph(
        [node],
        op,
        [info(n, v, False) for n, v in present.items() if n not in constants],
        [info(n, v, sizes == "open") for n, v in outputs.items() if n[0] != "_"],
        [onnx.numpy_helper.from_array(v, n) for n, v in present.items() if n in constants],
    )
    opsets = [onnx.helper.make_opsetid("", opset)]
    if domain:
        opsets.append(onnx.helper.make_opsetid(domain, {"TreeEnsemble": 5, "LabelEncoder": 4}.get(op, 3)))
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


def judged(
    op: str,
    inputs: Mapping[str, Array | None],
    names: Sequence[str] = ("y",),
    *,
    constants: Sequence[str] = (),
    opset: int = 21,
    domain: str = "",
    sizes: str = "fixed",
    expected: Sequence[Array] | None = None,
    label: str = "",
    rtol: float = 1e-4,
    **attributes: Any,
) -> Case:
    """A case whose expected values are ``expected`` or what onnxruntime (onnx.reference) gives."""
    given = {n: v for n, v in inputs.items() if v is not None}
    if expected is None:
        scratch = model_of(op, inputs, {n: np.zeros(1) for n in names}, attributes, constants, opset, domain, "open")
        expected = values_of(scratch, {n: v for n, v in given.items() if n not in constants})
    outputs = dict(zip(names, expected, strict=True))
    model = model_of(op, inputs, outputs, attributes, constants, opset, domain, sizes)
    name = "_".join([op, label, *(f"{v.dtype}{list(v.shape)}" for v in given.values()), str(attributes)])
    kept = {n: v for n, v in outputs.items() if n[0] != "_"}
    run_time = {n: v for n, v in given.items() if n not in constants}
    return Case(name, op, model, run_time, kept, rtol=rtol, atol=1e-6)


def values_of(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in model.graph.node[0].output)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [np.asarray(v) for v in session.run(None, dict(inputs))]
    except Exception:  # not implemented for the type
        return [np.asarray(v) for v in ReferenceEvaluator(model).run(None, dict(inputs))]


def failures(cases: Sequence[Case]) -> list[str]:
    """Of cases through compiled engines: what differs from the expected values or from the reference's bits."""
    outcomes: list[Outcome] = run_jobs([(case, "as-is") for case in cases], batch=100)
    return [f"{o.name}: {o.kind.value}: {o.detail}" for o in outcomes if o.kind is not Kind.PASSED]
