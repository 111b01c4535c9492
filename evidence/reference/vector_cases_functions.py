"""Vectors of normalisations, attention, rotary embedding, losses and of products in other types (since CA-1.4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from evidence.reference.vector_cases import ABSENT, Case, binary32, given, random, weight
from evidence.reference.vector_model import VectorInput

VERSION = "CA-1.4"
EPSILON: dict[str, Any] = {"epsilon": binary32(1e-3)}


def functions() -> Iterator[Case]:
    """All cases of this family, in file order."""
    yield from _by_row()
    yield from _by_channel()
    yield from _attention()
    yield from _rotary()
    yield from _losses()
    yield from _other_types()


def _case(
    name: str, op: str, inputs: Sequence[VectorInput], opset: int = 23, output: int = 0, **attributes: Any
) -> Case:
    return Case(name, op, attributes, tuple(inputs), opset=opset, version=VERSION, output=output)


def _label(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _by_row() -> Iterator[Case]:
    for shape, axis in (((2, 5), -1), ((2, 16), 1), ((3, 64), 1), ((2, 2, 768), -1), ((2, 1500), 1), ((2, 3, 7, 5), 1)):
        size = shape[axis % len(shape) :]
        operands = (random("x", *shape, shift=2), weight("s", *size))
        yield _case(f"rms_normalization_{_label(shape)}", "RMSNormalization", operands, axis=axis, **EPSILON)
    odd = [
        float("nan"),
        1.0,
        float("inf"),
        2.0,
        -0.0,
        0.0,
        -0.0,
        0.0,
        1e30,
        -1e30,
        2e30,
        0.5,
        1e-40,
        -1e-40,
        0.0,
        1e-42,
    ]
    special = (given("x", odd, 4, 4), weight("s", 4))
    yield _case("rms_normalization_special", "RMSNormalization", special, axis=-1)
    for dtype in ("float16", "bfloat16"):
        x, s, b = random("x", 3, 40, dtype=dtype), random("s", 40, dtype=dtype), random("b", 40, dtype=dtype)
        yield _case(f"rms_normalization_{dtype}", "RMSNormalization", (x, s), axis=-1)
        for output in range(3):
            yield _case(
                f"layer_normalization_{dtype}_output{output}", "LayerNormalization", (x, s, b), output=output, axis=-1
            )
    for shape, axis in (((3, 70), 1), ((2, 3, 7, 5), 2), ((2, 2, 3, 20), -3)):
        x = random("x", *shape, shift=1)
        for output in (1, 2):
            name = f"layer_normalization_{_label(shape)}_output{output}"
            yield _case(
                name, "LayerNormalization", (x, weight("s", *shape[axis:])), output=output, axis=axis, **EPSILON
            )
    for p in (1, 2):
        x = random("x", 3, 20, 2, shift=1)
        yield _case(f"lp_normalization_p{p}_axis1", "LpNormalization", (x,), p=p, axis=1)
        yield _case(f"lp_normalization_p{p}_last", "LpNormalization", (random("x", 2, 90),), p=p)
    rows = [0.0, -0.0, 0.0, float("inf"), 1.0, 2.0, float("nan"), 1.0, 0.0, 1e-40, 0.0, -1e-40]
    for p in (1, 2):
        yield _case(f"lp_normalization_p{p}_special", "LpNormalization", (given("x", rows, 4, 3),), p=p)
    yield _case("lp_normalization_float16", "LpNormalization", (random("x", 2, 30, dtype="float16"),))


def _by_channel() -> Iterator[Case]:
    for shape, size in (((1, 7, 3, 2), 3), ((2, 5, 4), 4), ((1, 3, 2, 2), 1), ((1, 4, 2, 3, 2), 9)):
        attributes: dict[str, Any] = {"alpha": binary32(0.3), "bias": binary32(0.7), "beta": binary32(0.6)}
        x = random("x", *shape, shift=2)
        yield _case(f"lrn_{_label(shape)}_size{size}", "LRN", (x,), size=size, **attributes)
    yield _case("lrn_defaults", "LRN", (random("x", 1, 6, 2, 2, shift=6),), size=5)
    for dtype in ("float32", "float16"):
        shape, c = (3, 4, 5), 4
        per = [random(n, c, dtype=dtype) for n in "sbm"] + [random("v", c, kind="positive", dtype=dtype)]
        operands = (random("x", *shape, dtype=dtype), *per)
        yield _case(f"batch_normalization_runtime_{dtype}", "BatchNormalization", operands, 15, **EPSILON)
        for output in (0, 2):
            name = f"batch_normalization_training_{dtype}_output{output}"
            yield _case(name, "BatchNormalization", operands, 15, output, training_mode=1, momentum=binary32(0.7))
    for dtype in ("float16", "bfloat16"):
        operands = (random("x", 2, 4, 9, dtype=dtype), *(random(n, 4, dtype=dtype) for n in "sb"))
        yield _case(f"instance_normalization_{dtype}", "InstanceNormalization", operands, 22, **EPSILON)
        yield _case(f"group_normalization_{dtype}", "GroupNormalization", operands, num_groups=2, **EPSILON)


def _attention() -> Iterator[Case]:
    def case(label: str, operands: Sequence[VectorInput], opset: int = 24, output: int = 0, **attributes: Any) -> Case:
        return _case(f"attention_{label}", "Attention", operands, opset, output, **attributes)

    def qkv(
        heads: int = 2, kv: int = 2, rows: int = 3, columns: int = 5, depth: int = 8, dtype: str = "float32"
    ) -> Any:
        def draw(name: str, *shape: int) -> VectorInput:
            return random(name, *shape, shift=1, dtype=dtype)

        return draw("q", 1, heads, rows, depth), draw("k", 1, kv, columns, depth), draw("v", 1, kv, columns, 6)

    odd = [math.inf, -math.inf, 0.0, 1.0, math.nan, -math.inf, -math.inf, -1.0]
    nothing = [-math.inf] * 5
    mask = random("m", 3, 5, shift=1)
    yield case("plain", qkv())
    yield case("long", qkv(1, 1, 2, 600, 70))
    yield case("scale", qkv(), scale=binary32(0.3))
    yield case("causal", qkv(), is_causal=1)
    yield case("softcap", qkv(), softcap=binary32(1.5))
    yield case("mask", (*qkv(), mask))
    yield case("mask_short", (*qkv(), random("m", 1, 2, 3, 4)))
    yield case("mask_special", (*qkv(1, 1, 2, 4), given("m", odd, 2, 4)))
    yield case("bool_mask_row_empty", (*qkv(), given("m", [1, 0, 1, 1, 0, *[0] * 5, *[1] * 5], 3, 5, dtype="bool")))
    yield case("grouped_past_causal_mask", (*_with_past(qkv(4, 2, 3, 4)),), is_causal=1)
    past = _with_past(qkv(4, 2, 3, 4))
    for output in (1, 2):
        yield case(f"past_output{output}", past, output=output)
    for mode in range(4):
        operands = (*qkv(), given("m", [0.0, 0.0, -math.inf, 1.0, 2.0, *nothing, 1.0, 2.0, 3.0, 4.0, 5.0], 3, 5))
        attributes: dict[str, Any] = {"softcap": 2.0, "qk_matmul_output_mode": mode}
        yield case(f"scores_mode{mode}", operands, output=3, **attributes)
    flat = (random("q", 2, 3, 32, shift=1), random("k", 2, 5, 16), random("v", 2, 5, 12))
    yield case("packed_heads", flat, q_num_heads=4, kv_num_heads=2)
    length = VectorInput("length", (2,), False, {"values": [3, 5]})
    four = (random("q", 2, 1, 2, 4), random("k", 2, 1, 5, 4), random("v", 2, 1, 5, 4))
    yield case("sequence_lengths", (*four, ABSENT, ABSENT, ABSENT, length))
    for dtype in ("float16", "bfloat16"):
        yield case(dtype, qkv(dtype=dtype), is_causal=1)


def _with_past(qkv: Sequence[VectorInput]) -> tuple[VectorInput, ...]:
    """Two rows of past key and value, and a mask over all six columns."""
    kv, depth, width = qkv[1].shape[1], qkv[1].shape[3], qkv[2].shape[3]
    past = (random("pk", 1, kv, 2, depth), random("pv", 1, kv, 2, width))
    return (*qkv, random("m", qkv[0].shape[2], qkv[1].shape[2] + 2), *past)


def _rotary() -> Iterator[Case]:
    places = VectorInput("p", (2, 3), False, {"values": [0, 4, 2, 1, 1, 3]})
    caches = (random("c", 5, 4), random("s", 5, 4))
    x = random("x", 2, 2, 3, 8)
    yield _case("rotary_embedding", "RotaryEmbedding", (x, *caches, places))
    yield _case("rotary_embedding_interleaved", "RotaryEmbedding", (x, *caches, places), interleaved=1)
    part = (x, random("c", 2, 3, 2), random("s", 2, 3, 2))
    yield _case("rotary_embedding_part", "RotaryEmbedding", part, rotary_embedding_dim=4)
    half = tuple(random(n, *s, dtype="float16") for n, s in (("x", (2, 3, 16)), ("c", (5, 4)), ("s", (5, 4))))
    yield _case("rotary_embedding_float16", "RotaryEmbedding", (*half, places), num_heads=2)


def _losses() -> Iterator[Case]:
    target = VectorInput("t", (3, 4), False, {"values": [0, 1, 2, 3, 4, 4, 2, 1, 1, 0, 3, 2]})
    x, w = random("x", 3, 5, 4), random("w", 5, kind="positive")
    for op, label in (("NegativeLogLikelihoodLoss", "nll"), ("SoftmaxCrossEntropyLoss", "cross_entropy")):
        for reduction in ("none", "sum", "mean"):
            yield _case(f"{label}_{reduction}", op, (x, target), 13, reduction=reduction)
            yield _case(f"{label}_{reduction}_weighted", op, (x, target, w), 13, reduction=reduction, ignore_index=1)
        yield _case(f"{label}_ignored", op, (x, target), 13, ignore_index=4)
    yield _case("cross_entropy_logarithms", "SoftmaxCrossEntropyLoss", (x, target), 13, 1)


def _other_types() -> Iterator[Case]:
    """Products, softmax and windows in half types and, where kernels exist, in binary64."""
    for axis in (-1, 0):
        for op in ("Softmax", "LogSoftmax"):
            for dtype in ("float64", "float16", "bfloat16"):
                x = random("x", 3, 40, shift=2, dtype=dtype)
                yield _case(f"{op.lower()}_{dtype}_axis{axis % 2}", op, (x,), 13, axis=axis)
    for k in (7, 70, 600):
        # products of 24-bit numbers of one size would be exact, and so would their sums
        a, b = (random(n, *s, kind="wide", dtype="float64") for n, s in (("a", (3, k)), ("b", (k, 2))))
        yield _case(f"matmul_float64_k{k}", "MatMul", (a, b), 13)
        yield _case(f"gemm_float64_k{k}", "Gemm", (a, b, random("c", 2, dtype="float64")), 13, alpha=binary32(0.3))
    for dtype in ("float16", "bfloat16"):
        a = given("a", [k / 7 - 1.3 for k in range(24)], 2, 12, dtype=dtype)
        x = given("x", [k / 9 - 2.1 for k in range(40)], 1, 2, 4, 5, dtype=dtype)
        yield _case(f"matmul_{dtype}", "MatMul", (a, random("b", 12, 3, dtype=dtype)), 13)
        yield _case(
            f"gemm_{dtype}", "Gemm", (a, random("b", 12, 3, dtype=dtype), random("c", 3, dtype=dtype)), 13, beta=0.5
        )
        yield _case(f"conv_{dtype}", "Conv", (x, random("w", 3, 2, 2, 2, dtype=dtype)), 22)
        yield _case(f"global_average_pool_{dtype}", "GlobalAveragePool", (x,), 22)
