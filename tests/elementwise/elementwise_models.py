"""Small models as cases of the conformance runner, which also compares the reference's bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator

from evidence.conformance.cases import Case
from evidence.conformance.outcome import Kind
from evidence.conformance.suite import run_jobs

Array = npt.NDArray[Any]
FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
TYPES = (*FLOATS, *SIGNED, *UNSIGNED, "bool")


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def info(name: str, value: Array) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    constants: Mapping[str, Array],
    opset: int,
) -> onnx.ModelProto:
    graph = onnx.helper.make_graph(
        list(nodes),
        "case",
        [info(n, v) for n, v in inputs.items()],
        [info(n, v) for n, v in outputs.items()],
        [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)


def case_of(
    op: str,
    inputs: Mapping[str, Array | None],
    expected: Array | None = None,
    *,
    opset: int = 21,
    constants: Sequence[str] = (),
    rtol: float = 2e-6,
    atol: float = 1e-9,
    label: str = "",
    **attributes: Any,
) -> Case:
    """One node with output y: ``expected``, or what onnx.reference gives. ``constants`` are inputs that are weights."""
    given = {n: v for n, v in inputs.items() if v is not None}
    node = onnx.helper.make_node(op, ["" if v is None else n for n, v in inputs.items()], ["y"], name=op, **attributes)
    fixed = {n: given[n] for n in constants}
    run_time = {n: v for n, v in given.items() if n not in fixed}
    if expected is None:
        scratch = model_of([node], run_time, {"y": np.zeros(1, np.float32)}, fixed, opset)
        with np.errstate(all="ignore"):
            expected = np.asarray(ReferenceEvaluator(scratch).run(["y"], run_time)[0])
    model = model_of([node], run_time, {"y": expected}, fixed, opset)
    types = "_".join(f"{v.dtype}{list(v.shape)}" for v in given.values())
    return Case(
        f"{op}_{label}_{types}_{opset}_{attributes}", op, model, run_time, {"y": expected}, rtol=rtol, atol=atol
    )


def failures(cases: Sequence[Case]) -> list[str]:
    """Of cases through compiled engines: what differs from the expected values or from the reference's bits."""
    outcomes = run_jobs([(case, "as-is") for case in cases], batch=150)
    return [f"{o.name}: {o.kind.value}: {o.detail}" for o in outcomes if o.kind is not Kind.PASSED]


def numbers(rng: np.random.Generator, shape: Sequence[int], dtype: str, scale: float = 3.0) -> Array:
    """Ordinary numbers of the type, of both signs where it has them."""
    target = dtype_of(dtype)
    if dtype in FLOATS:
        return (rng.standard_normal(tuple(shape)) * scale).astype(target)
    if dtype == "bool":
        return rng.integers(0, 2, tuple(shape)).astype(bool)
    return rng.integers(0 if dtype in UNSIGNED else -9, 10, tuple(shape)).astype(target)
