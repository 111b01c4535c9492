"""One-node models with random operands and what NumPy makes of them, as cases for compiled engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from evidence.conformance import Case

Array = npt.NDArray[Any]


def node_model(
    op: str,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    attrs: Mapping[str, Any] | None = None,
    constants: Sequence[str] = (),
    absent: Sequence[int] = (),
    opset: int = 21,
) -> onnx.ModelProto:
    """A model of one node whose inputs are run-time inputs but for ``constants``; ``absent``: positions left out."""
    names = list(inputs)
    for position in absent:
        names.insert(position, "")
    node = helper.make_node(op, names, list(outputs), name="the_node", **(attrs or {}))

    def info(name: str, array: Array) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        [node],
        "made",
        [info(n, a) for n, a in inputs.items() if n not in constants],
        [info(n, a) for n, a in outputs.items()],
        [numpy_helper.from_array(inputs[n], n) for n in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.checker.check_model(model, full_check=False)
    return model


def case(
    name: str,
    op: str,
    inputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    rtol: float = 1e-5,
    atol: float = 1e-6,
    **options: Any,
) -> Case:
    """``options`` are those of :func:`node_model`."""
    constants = options.get("constants", ())
    model = node_model(op, inputs, expected, **options)
    given = {n: a for n, a in inputs.items() if n not in constants}
    return Case(name, op, model, given, dict(expected), rtol, atol)


def ints(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    """Values of a type: floats around zero with both signs, integers over the whole type, either truth value."""
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape) > 0)
    if "float" in dtype:
        return np.asarray(rng.standard_normal(shape)).astype(helper.tensor_dtype_to_np_dtype(TENSOR[dtype]))
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


TENSOR = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}
