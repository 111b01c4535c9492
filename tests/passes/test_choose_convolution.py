"""The choice of a convolution's arithmetic before the freeze: rules, policy, and the error it records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler_kernels.arithmetic.winograd import WINOGRAD
from compiler_kernels.errors import IRError
from compiler_kernels.importers.onnx_importer import import_onnx
from compiler_kernels.ir.graph import Module
from compiler_kernels.ir.verify import verify
from compiler_kernels.ir.weights import WeightStore
from compiler_kernels.passes.convolution_error import EXTENT, SEED, measured_errors
from compiler_kernels.policy import Numerics
from compiler_kernels.stage import Json
from compiler_kernels.stages.frontend import freeze
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefNode
from evidence.reference.products import conv


def imported(x: Sequence[int], w: np.ndarray, **attrs: object) -> tuple[Module, WeightStore]:
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="node", **attrs)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return import_onnx(data, filename="net.onnx", pins={})


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chosen(
    x: Sequence[int], w: np.ndarray, numerics: Numerics | None = None, **attrs: object
) -> tuple[str, list[dict[str, Json]]]:
    module, store = imported(x, w, **attrs)
    frozen, notes = freeze(module, store, numerics)
    op = frozen.main.ops[0]
    return (op.str_("arithmetic") if op.has("arithmetic") else "direct"), notes


SAME = {"pads": [1, 1, 1, 1]}


def test_a_wide_layer_is_computed_in_a_winograd_form() -> None:
    form, notes = chosen((1, 64, 56, 56), weights(64, 64, 3, 3), **SAME)
    assert form in WINOGRAD and WINOGRAD[form].axes == 2
    (note,) = notes
    assert note["pass"] == "choose-convolution" and note["node"] == "node" and note["arithmetic"] == form
    assert note["multiplications"] == {"direct": 56 * 56 * 64 * 64 * 9, form: 28 * 28 * 64 * 64 * 16}
    errors = note["rms_relative_error"]
    assert isinstance(errors, dict) and set(errors) == {"direct", form}
    assert all(isinstance(e, float) and 1e-9 < e < 1e-6 for e in errors.values())


def test_a_long_kernel_is_computed_three_taps_at_a_time() -> None:
    form, notes = chosen((1, 32, 1250), weights(32, 32, 15), pads=[7, 7])
    assert form in WINOGRAD and WINOGRAD[form].axes == 1
    assert notes[0]["multiplications"] == {"direct": 1250 * 32 * 32 * 15, form: 625 * 32 * 32 * 20}


@pytest.mark.parametrize(
    ("x", "w", "attrs"),
    [
        ((1, 8, 56, 56), (64, 8, 3, 3), SAME),
        ((1, 64, 56, 56), (4, 64, 3, 3), SAME),
        ((1, 512, 4, 4), (512, 512, 3, 3), SAME),
        ((1, 64, 56, 56), (64, 64, 3, 3), {**SAME, "strides": [2, 2]}),
        ((1, 64, 56, 56), (64, 64, 3, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
        ((1, 64, 56, 56), (64, 32, 3, 3), {**SAME, "group": 2}),
        ((1, 64, 56, 56), (64, 64, 1, 1), {}),
        ((1, 64, 56, 56), (64, 64, 5, 5), {}),
        ((1, 64, 1000), (64, 64, 2), {}),
    ],
    ids=["few channels", "few outputs", "few tiles", "stride", "dilation", "groups", "1x1", "5x5", "two taps"],
)
def test_other_layers_stay_direct(x: Sequence[int], w: Sequence[int], attrs: dict[str, object]) -> None:
    assert chosen(x, weights(*w), **attrs) == ("direct", [])


@pytest.mark.parametrize("numerics", [Numerics(winograd="forbid"), Numerics(prefer="size")])
def test_the_policy_keeps_layers_direct(numerics: Numerics) -> None:
    assert chosen((1, 64, 56, 56), weights(64, 64, 3, 3), numerics, **SAME) == ("direct", [])


def test_weights_whose_transform_overflows_stay_direct() -> None:
    w = weights(64, 64, 3, 3)
    w[5, 7] = np.float32(3e38)
    assert chosen((1, 64, 56, 56), w, **SAME) == ("direct", [])


def test_a_form_of_another_shape_is_refused() -> None:
    module, _ = imported((1, 64, 9, 9), weights(64, 64, 3, 3))
    for name in ("W1-23/32", "W23/64", "winograd"):
        op = module.main.ops[0].with_attrs(arithmetic=name)
        changed = replace(module, graphs=(replace(module.main, ops=(op,)),))
        with pytest.raises(IRError, match="arithmetic"):
            verify(changed)


@pytest.mark.parametrize(
    ("form", "shape"),
    [("W23/32", (16, 40, 3, 3)), ("W23/16", (20, 24, 3, 3)), ("W1-23/32", (16, 32, 15)), ("W1-23/16", (8, 20, 7))],
)
def test_measured_error_is_that_of_the_definition(form: str, shape: tuple[int, ...]) -> None:
    """Against the independent reference, on the same numbers; the emulated fma differs in about 1 step of 2^29."""
    w = weights(*shape)
    found = measured_errors(w, form)
    rows = w[np.unique(np.linspace(0, shape[0] - 1, 16).astype(int))]
    extent = tuple(EXTENT + k - 1 for k in shape[2:])
    x = np.maximum(np.random.default_rng(SEED).standard_normal((shape[1], *extent)), 0).astype(np.float32)[None]
    out = (1, len(rows), *(EXTENT for _ in extent))
    exact = conv(
        ARITHMETICS["float64"], RefNode("conv", (), "y", out, "float32", {}), x.astype("f8"), rows.astype("f8")
    )
    for name in ("direct", form):
        node = RefNode("conv", (), "y", out, "float32", {"arithmetic": name})
        y = conv(ARITHMETICS["ca1"], node, x, rows)
        assert found[name] == pytest.approx(np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2)), rel=1e-6)


def test_onnx_is_the_yardstick_of_the_sample() -> None:
    """The binary64 form of the sample is ONNX's convolution: the reference evaluator agrees to binary32 accuracy."""
    w = weights(4, 20, 3, 3)
    x = np.random.default_rng(1).standard_normal((1, 20, 6, 6)).astype(np.float32)
    node = RefNode("conv", (), "y", (1, 4, 4, 4), "float32", {"arithmetic": "W23/32"})
    ours = conv(ARITHMETICS["ca1"], node, x, w)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    (theirs,) = onnx.reference.ReferenceEvaluator(helper.make_model(graph)).run(None, {"x": x})
    assert np.allclose(ours, theirs, rtol=0, atol=1e-4)
