"""Sums of products, pools and normalisations of binary64 values, and products of integers, through compiled engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_cases import Array, case, node_model, random_array
from onnx.reference import ReferenceEvaluator

from compiler_kernels.compile import freeze_model
from compiler_kernels.errors import UnsupportedError
from evidence.conformance import Case, Kind, run_jobs

TIGHT = {"rtol": 1e-13, "atol": 1e-13}


def passed(cases: list[Case]) -> None:
    outcomes = run_jobs([(c, "as-is") for c in cases])
    assert [(o.name, o.kind, o.detail) for o in outcomes if o.kind is not Kind.PASSED] == []


def evaluated(name: str, op: str, inputs: dict[str, Array], attrs: dict[str, Any], constants: tuple[str, ...]) -> Case:
    """Expected values of the onnx package's evaluator, which computes in binary64 where its operands are that."""
    guess = {"y": np.zeros((1,), next(iter(inputs.values())).dtype)}
    model = node_model(op, inputs, guess, attrs)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    want = ReferenceEvaluator(model).run(None, inputs)[0]
    return case(name, op, inputs, {"y": want}, attrs=attrs, constants=constants, **TIGHT)


def test_binary64() -> None:
    rng = np.random.default_rng(6)

    def r(*shape: int) -> Array:
        return random_array(rng, shape, "float64")

    conv: dict[str, Any] = {"pads": [1, 0, 1, 2], "strides": [2, 1], "dilations": [1, 2]}
    pool: dict[str, Any] = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}
    cases = [
        evaluated("conv", "Conv", {"x": r(2, 20, 6, 7), "w": r(5, 20, 3, 2), "b": r(5)}, conv, ("w", "b")),
        evaluated("conv_winograd_size", "Conv", {"x": r(1, 16, 6, 6), "w": r(16, 16, 3, 3)}, {"pads": [1] * 4}, ("w",)),
        evaluated("conv_run_time", "Conv", {"x": r(1, 4, 5), "w": r(6, 2, 3)}, {"group": 2, "pads": [1, 1]}, ()),
        evaluated("transposed", "ConvTranspose", {"x": r(1, 6, 4, 3), "w": r(6, 2, 3, 3), "b": r(2)},
                  {"strides": [2, 1], "pads": [1, 1, 0, 1]}, ("w",)),
        evaluated("gemm", "Gemm", {"a": r(70, 3), "b": r(4, 70), "c": r(1, 4)},
                  {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, ("b",)),
        evaluated("matmul", "MatMul", {"a": r(3, 1, 2, 600), "b": r(2, 600, 3)}, {}, ()),
        evaluated("max_pool", "MaxPool", {"x": r(1, 2, 7, 6)}, pool, ()),
        evaluated("average_pool", "AveragePool", {"x": r(1, 2, 7, 6)}, {**pool, "count_include_pad": 1}, ()),
        evaluated("large_average", "AveragePool", {"x": r(1, 1, 12, 12)}, {"kernel_shape": [10, 11]}, ()),
        evaluated("global_average", "GlobalAveragePool", {"x": r(2, 3, 9, 11)}, {}, ()),
        evaluated("global_max", "GlobalMaxPool", {"x": r(2, 3, 4, 2)}, {}, ()),
        evaluated("instance", "InstanceNormalization", {"x": r(2, 3, 30), "s": r(3), "b": r(3)}, {}, ("s",)),
        evaluated("batch", "BatchNormalization",
                  {"x": r(2, 3, 4), "s": r(3), "b": r(3), "m": r(3), "v": np.abs(r(3))}, {}, ("s", "b", "m", "v")),
        evaluated("softmax", "Softmax", {"x": r(2, 70, 3)}, {"axis": 1}, ()),
    ]  # fmt: skip
    passed(cases)


def test_integer_products_and_pools() -> None:
    """Modulo 2^width of the type, as NumPy computes."""
    rng = np.random.default_rng(7)
    cases = []
    for dtype in ("int32", "int64", "uint32", "uint64"):
        a, b = random_array(rng, (2, 1, 3, 5), dtype), random_array(rng, (4, 5, 2), dtype)
        cases.append(case(f"matmul_{dtype}", "MatMul", {"a": a, "b": b}, {"y": np.matmul(a, b)}))
        cases.append(case(f"vector_{dtype}", "MatMul", {"a": a, "b": b[0, :, 0]}, {"y": np.matmul(a, b[0, :, 0])}))
        a, b, c = (random_array(rng, s, dtype) for s in ((5, 3), (2, 5), (2,)))
        want = np.matmul(a.T, b.T) * np.array(3, dtype) + c * np.array(2, dtype)
        attrs = {"transA": 1, "transB": 1, "alpha": 3.0, "beta": 2.0}
        cases.append(case(f"gemm_{dtype}", "Gemm", {"a": a, "b": b, "c": c}, {"y": want}, attrs=attrs))
    for dtype in ("int8", "uint8"):
        x = random_array(rng, (1, 2, 6, 5), dtype)
        want = np.stack([x[:, :, i : i + 2, j : j + 2].max(axis=(2, 3)) for i in (0, 2, 4) for j in (0, 2)], axis=-1)
        pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
        cases.append(case(f"pool_{dtype}", "MaxPool", {"x": x}, {"y": want.reshape(1, 2, 3, 2)}, attrs=pool))
    passed(cases)


def test_integers_are_not_scaled_by_fractions() -> None:
    a = np.ones((2, 2), np.int32)
    model = node_model("Gemm", {"a": a, "b": a}, {"y": a}, {"alpha": 0.5})
    with pytest.raises(UnsupportedError, match=r"scales integers by alpha = 0\.5"):
        freeze_model(model.SerializeToString())
