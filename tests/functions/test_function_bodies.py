"""Operators that are their ONNX function bodies, and normalisations: random forms, half types, what is not computed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from function_models import Array, case, failures, model
from onnx import helper

from compiler_kernels.errors import UnsupportedError
from compiler_kernels.importers.onnx_importer import import_onnx
from evidence.conformance.cases import Case
from evidence.reference.vectors import expected_output, load_vectors

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def kinds(made: onnx.ModelProto) -> list[str]:
    return [op.kind for op in import_onnx(made.SerializeToString(), filename="m.onnx")[0].main.ops]


def node(op: str, inputs: list[str], outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs.split(), **attributes)


def attention_case(seed: int) -> Case:
    """Grouped heads, past, masks of every rank and type, causal, softcap, scale, packed heads, stages of the scores."""
    rng = np.random.default_rng(seed)
    kv, group, batch = (int(rng.integers(1, 4)) for _ in range(3))
    rows, columns, depth, width = (int(rng.integers(1, 9)) for _ in range(4))
    past = int(rng.integers(1, 5)) if rng.random() < 0.4 else 0

    def draw(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    values: dict[str, Array] = {
        "q": draw(batch, kv * group, rows, depth),
        "k": draw(batch, kv, columns, depth),
        "v": draw(batch, kv, columns, width),
    }
    attributes: dict[str, Any] = {"is_causal": int(rng.integers(2))}
    if rng.random() < 0.6:
        lead = [(), (1,), (batch, 1), (batch, kv * group)][int(rng.integers(4))]
        mask = draw(*lead, rows, columns + past)
        values["m"] = mask > -1.0 if rng.random() < 0.5 else mask
    if past:
        values |= {"pk": draw(batch, kv, past, depth), "pv": draw(batch, kv, past, width)}
    if rng.random() < 0.4:
        attributes["softcap"] = 1.5
    if rng.random() < 0.4:
        attributes["scale"] = 0.4
    if not past and rng.random() < 0.5:
        for name in "qkv":
            n, heads, length, size = values[name].shape
            values[name] = values[name].transpose(0, 2, 1, 3).reshape(n, length, heads * size)
        attributes |= {"q_num_heads": kv * group, "kv_num_heads": kv}
    attributes["qk_matmul_output_mode"] = int(rng.integers(3))
    names = [n if n in values else "" for n in ("q", "k", "v", "m", "pk", "pv")]
    outputs = ["y", "nk", "nv", "scores"]
    made = model([node("Attention", names, " ".join(outputs), **attributes)], values, outputs, onnx=24)
    return case(made, values, f"attention {seed} {attributes}", reference=True)


def test_attention() -> None:
    assert failures([attention_case(seed) for seed in range(24)]) == []


@pytest.mark.slow
def test_attention_at_length() -> None:
    assert failures([attention_case(seed) for seed in range(24, 300)]) == []


def test_attention_computes_no_more_than_it_must() -> None:
    """Without a mask, or with one that follows from shapes, only products, bias and softmax are left."""
    x = np.zeros((1, 2, 4, 8), np.float32)
    values = {"q": x, "k": x, "v": x}
    for attributes in ({}, {"is_causal": 1}):
        made = model([node("Attention", ["q", "k", "v"], **attributes)], values, onnx=24)
        arithmetic = [k for k in kinds(made) if k not in ("reshape", "transpose")]
        assert arithmetic == ["mul", "mul", "matmul", "add", "softmax", "matmul"]


def close_in_float64(op: str, dtype: str, values: dict[str, Array], outputs: int = 1, **attributes: Any) -> Case:
    """Half operands: within one unit in the last place of what binary32 operands of the same values give."""
    names, results = list(values), [f"y{i}" for i in range(outputs)]
    given = {n: v.astype(HALVES[dtype]) if v.dtype == np.float32 else v for n, v in values.items()}
    wide = {n: v.astype(np.float32) if v.dtype == HALVES[dtype] else v for n, v in given.items()}
    made = model([node(op, names, " ".join(results), **attributes)], wide, results, onnx=26)
    exact = case(made, wide, f"{op} {dtype}", reference=True)
    proto = onnx.ModelProto()
    proto.CopyFrom(exact.model)
    kind = helper.np_dtype_to_tensor_dtype(HALVES[dtype])
    for info in (*proto.graph.input, *proto.graph.output):
        if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            info.type.tensor_type.elem_type = kind
    expected = {n: v.astype(HALVES[dtype]) for n, v in exact.expected.items()}
    step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
    return Case(exact.name, op, proto, given, expected, rtol=step, atol=step / 16)


@pytest.mark.parametrize("dtype", HALVES)
def test_half_types_round_once(dtype: str) -> None:
    rng = np.random.default_rng(3)

    def draw(*shape: int) -> Array:
        return rng.normal(size=shape).astype(np.float32)

    x = draw(1, 4, 5, 8)
    target = rng.integers(0, 6, (2, 5))
    cases = [
        close_in_float64("Attention", dtype, {"q": x, "k": draw(1, 2, 6, 8), "v": draw(1, 2, 6, 4)}, 3),
        close_in_float64("RotaryEmbedding", dtype, {"x": x, "c": draw(1, 5, 4), "s": draw(1, 5, 4)}),
        close_in_float64("MeanVarianceNormalization", dtype, {"x": x}, axes=[0, 2, 3]),
        close_in_float64("NegativeLogLikelihoodLoss", dtype, {"x": draw(2, 6, 5), "t": target, "w": abs(draw(6))}),
        close_in_float64("SoftmaxCrossEntropyLoss", dtype, {"x": draw(2, 6, 5), "t": target}, 2),
        close_in_float64("LRN", dtype, {"x": x}, size=3),
        close_in_float64("LpNormalization", dtype, {"x": x}, axis=2),
        close_in_float64("RMSNormalization", dtype, {"x": x, "s": draw(8)}),
        close_in_float64("InstanceNormalization", dtype, {"x": x, "s": draw(4), "b": draw(4)}),
        close_in_float64("Conv", dtype, {"x": x, "w": draw(3, 4, 2, 2), "b": draw(3)}),
        close_in_float64("ConvTranspose", dtype, {"x": x, "w": draw(4, 3, 2, 2)}),
        close_in_float64("Gemm", dtype, {"a": draw(3, 9), "b": draw(9, 2), "c": draw(2)}),
        close_in_float64("LogSoftmax", dtype, {"x": x}, axis=1),
    ]
    # onnx.reference knows LRN of the first sample only
    assert failures(cases) == []


def test_state_of_an_absent_type_is_that_of_the_node() -> None:
    """LinearAttention's state has a type variable of its own, which only an absent input would name."""
    x = np.random.default_rng(1).normal(size=(1, 3, 8)).astype(np.float16)
    values = {"q": x, "k": x, "v": x}
    made = model(
        [node("LinearAttention", ["q", "k", "v"], "y s", q_num_heads=2, kv_num_heads=2, update_rule="linear")],
        values, ["y", "s"], onnx=27,
    )  # fmt: skip
    module = import_onnx(_half_outputs(made), filename="m.onnx")[0]
    types = module.main.types()
    assert [types[o].dtype for o in module.main.outputs] == ["float16", "float16"]


def _half_outputs(made: onnx.ModelProto) -> bytes:
    for info in made.graph.output:
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    return bytes(made.SerializeToString())


def test_local_response_of_any_rank() -> None:
    """The operator's own sum over channels, in binary64; onnxruntime and the onnx package take images only."""
    vectors = [v for v in load_vectors("docs/vectors/ca1.json") if v.op_type == "LRN"]
    assert {len(v.expected.shape) for v in vectors} == {3, 4, 5}
    for vector in vectors:
        a = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, **vector.attributes}
        x = vector.onnx_model_parts().graph_inputs["x"].astype(np.float64)
        total = np.zeros_like(x)
        for c in range(x.shape[1]):
            low, high = max(0, c - (a["size"] - 1) // 2), min(x.shape[1], c + a["size"] // 2 + 1)
            total[:, c] = (x[:, low:high] ** 2).sum(axis=1)
        want = x / (a["bias"] + a["alpha"] / a["size"] * total) ** a["beta"]
        np.testing.assert_allclose(expected_output(vector), want, rtol=2e-6)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "sentence"),
    [
        ("RMSNormalization", {"x": (2, 4), "s": (2, 4)}, {"stash_type": 16}, "another type than float32"),
        ("LayerNormalization", {"x": (2, 4), "s": (2, 4)}, {"axis": -1}, "differs from row to row"),
        ("RMSNormalization", {"x": (2, 4), "s:float16": (4,)}, {}, "leaves open which type"),
    ],
)
def test_refused(op: str, shapes: dict[str, tuple[int, ...]], attributes: dict[str, Any], sentence: str) -> None:
    values = {n: np.ones(s, n.partition(":")[2] or np.float32) for n, s in shapes.items()}
    made = model([node(op, list(values), **attributes)], values)
    with pytest.raises(UnsupportedError, match=sentence):
        import_onnx(made.SerializeToString(), filename="m.onnx")
