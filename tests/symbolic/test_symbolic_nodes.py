"""ONNX's node tests with one axis of their inputs open: every operator over run-time sizes, bits of the reference.

An axis (the first, second or last) of all inputs of the size of the first one's becomes the symbol S. The inputs are
the test's own, at its size, and cut to one less; sizes at which the reference refuses the inputs (an index out of
range) are left out.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx.backend.test.loader import load_model_tests
from symbolic_programs import WAYS, Case, Ready, differing, ready
from vector_targets import Way

from compiler_kernels.errors import CuvilError
from evidence.reference import ReferenceError

Array = npt.NDArray[Any]
TYPES = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}
PER_PROGRAM = 120


def opened(model: onnx.ModelProto, which: str) -> tuple[onnx.ModelProto, dict[str, int], int] | None:
    """The model with S in it, the axis of every input that is S, and its size."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    axes: dict[str, int] = {}
    size = 0
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        axis = {"first": 0, "second": 1, "last": len(dims) - 1}[which]
        if not 0 <= axis < len(dims) or (len(dims) == 1 and value.type.tensor_type.elem_type == onnx.TensorProto.INT64):
            continue
        found = dims[axis].dim_value
        if found < 2 or (size and found != size):
            continue
        size, axes[value.name] = found, axis
        dims[axis].dim_param = "S"
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return (model, axes, size) if axes else None


def inputs_of(test: Any, model: onnx.ModelProto) -> dict[str, Array] | None:
    """The first data set; ``None`` where it holds something but plain arrays."""
    arrays = test.data_sets[0][0]
    if len(arrays) != len(model.graph.input):
        return None
    if not all(isinstance(a, np.ndarray) and a.dtype.str[1:] in TYPES for a in arrays):
        return None
    return {value.name: array for value, array in zip(model.graph.input, arrays, strict=True)}


def cases(which: str) -> list[tuple[Ready, list[list[Array]]]]:
    """What compiles, with the reference's outputs."""
    done = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = load_model_tests(kind="node")
    for test in tests:
        source = test.model
        parts = opened(source, which)
        if parts is None or "_expanded" in test.name:
            continue
        model, axes, size = parts
        given = inputs_of(test, source)
        if given is None:
            continue
        shorter = {n: np.take(a, range(size - 1), axes[n]) if n in axes else a for n, a in given.items()}
        bounds = f"S: [{size - 1}, {size + 2}]"
        try:
            whole = ready(Case(test.name, model, bounds, [({"S": size}, given)]))
        except (CuvilError, AssertionError):
            continue  # refused, or S has no part in the graph
        try:
            expected = whole.expected()
        except ReferenceError:
            continue
        both = Case(test.name, model, bounds, [*whole.case.runs, ({"S": size - 1}, shorter)])
        try:
            two = Ready(both, whole.module, whole.frozen)
            done.append((two, two.expected()))
        except (ReferenceError, IndexError, ValueError):
            done.append((whole, expected))
    return done


BEST = [w for w in WAYS if "gcc" not in w.name and w.run == ()][-1:]


@pytest.mark.slow
@pytest.mark.parametrize("way", BEST, ids=lambda w: w.name)
@pytest.mark.parametrize("which", ["first", "second", "last"])
def test_node_tests_with_an_open_axis(which: str, way: Way, tmp_path: Path) -> None:
    items = cases(which)
    assert len(items) > 250, "the node tests changed, or symbolic models are refused that were not"
    wrong = []
    for start in range(0, len(items), PER_PROGRAM):
        part = items[start : start + PER_PROGRAM]
        folder = tmp_path / str(start)
        folder.mkdir()
        wrong += differing([item for item, _ in part], [expected for _, expected in part], way, folder)
    assert wrong == []
