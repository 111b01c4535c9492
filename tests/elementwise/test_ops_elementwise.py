"""Elementwise operators in every element type ONNX allows and every opset that changed them, against onnx.reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from elementwise_models import FLOATS, SIGNED, UNSIGNED, Array, case_of, dtype_of, failures, numbers

from compiler_kernels.errors import CuvilError
from compiler_kernels.importers.onnx_importer import import_onnx
from evidence.conformance.cases import Case

INTEGERS = (*SIGNED, *UNSIGNED)
LOOSE = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Two units in the last place: onnx.reference rounds every step of a composite to the half type."""
TRIG = "Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh"
PLAIN = "Abs Neg Sign Floor Ceil Round Sqrt Reciprocal Exp Log Sigmoid Tanh Erf Relu"
SMOOTH = f"{TRIG} {PLAIN} Softsign HardSwish Mish Softplus"


def loose(dtype: str, tight: float = 2e-6) -> float:
    return LOOSE.get(dtype, tight)


def unary() -> Iterator[Case]:
    rng = np.random.default_rng(1)
    for op in SMOOTH.split():
        for dtype in FLOATS:
            x = numbers(rng, (3, 7), dtype)
            if op in ("Asin", "Acos", "Atanh"):
                x = np.clip(x.astype(np.float32) / 9, -0.99, 0.99).astype(dtype_of(dtype))
            if op in ("Sqrt", "Log", "Acosh"):
                x = (np.abs(x.astype(np.float32)) + 1).astype(dtype_of(dtype))
            if op == "Tan":  # the reference computes it in the half type
                x = np.clip(x.astype(np.float32) / 9, -0.99, 0.99).astype(dtype_of(dtype))
            yield case_of(op, {"x": x}, opset=22, rtol=4 * loose(dtype), atol=4 * loose(dtype, 1e-9))
    for op, types in (("Abs", INTEGERS), ("Neg", SIGNED), ("Sign", INTEGERS), ("Relu", SIGNED)):
        for dtype in types:
            yield case_of(op, {"x": numbers(rng, (5, 4), dtype)}, opset=21)
    for dtype in INTEGERS:
        yield case_of("BitwiseNot", {"x": numbers(rng, (6,), dtype)}, opset=18)
    for dtype in FLOATS:
        x = np.array([np.nan, np.inf, -np.inf, 0, 1], dtype=dtype_of(dtype))
        yield case_of("IsNaN", {"x": x}, np.isnan(x.astype(np.float32)), opset=20)
        for side in ({}, {"detect_negative": 0}, {"detect_positive": 0}, {"detect_positive": 0, "detect_negative": 0}):
            wide = x.astype(np.float32)
            want = ((wide == np.inf) & bool(side.get("detect_positive", 1))) | (
                (wide == -np.inf) & bool(side.get("detect_negative", 1))
            )
            yield case_of("IsInf", {"x": x}, want, opset=20, **side)


def activations() -> Iterator[Case]:
    rng = np.random.default_rng(2)
    for dtype in FLOATS:
        x, rtol = numbers(rng, (2, 9), dtype), 4 * loose(dtype, 1e-5)
        near = {"rtol": rtol, "atol": rtol}
        yield case_of("Selu", {"x": x}, opset=22, **near)
        yield case_of("Selu", {"x": x}, opset=22, alpha=1.5, gamma=0.75, **near)
        for opset in (12, 28):
            yield case_of("Celu", {"x": x}, opset=opset if dtype in ("float32", "bfloat16") else 28, alpha=0.7, **near)
        yield case_of("Elu", {"x": x}, opset=22, alpha=0.5, **near)
        yield case_of("ThresholdedRelu", {"x": x}, opset=22, alpha=0.5)
        yield case_of("Shrink", {"x": x}, opset=9, bias=0.25, lambd=1.0, **near)
        yield case_of("LeakyRelu", {"x": x}, opset=16, alpha=0.125)
        yield case_of("HardSigmoid", {"x": x}, opset=22, alpha=0.25, beta=0.5, **near)
        yield case_of("PRelu", {"x": x, "slope": numbers(rng, (9,), dtype)}, opset=16, rtol=loose(dtype))
        for approximate in ("none", "tanh"):
            yield case_of("Gelu", {"x": x}, opset=20, approximate=approximate, **near)
        yield case_of("Swish", {"x": x}, opset=24, alpha=1.25, **near)
        for axis in (0, 1, -1):
            yield case_of("Hardmax", {"x": numbers(rng, (4, 3, 5), dtype)}, opset=13, axis=axis)
    for dtype in ("int32", "uint32", "int64", "uint64"):
        yield case_of("PRelu", {"x": numbers(rng, (3, 4), dtype), "slope": numbers(rng, (4,), dtype)}, opset=16)
    for dtype in INTEGERS:
        x = numbers(rng, (9,), dtype)
        wide = x.astype(np.float64)
        want = np.where(wide < -2, wide + 1, np.where(wide > 2, wide - 1, 0)).astype(x.dtype)
        yield case_of("Shrink", {"x": x}, want, opset=9, bias=1.0, lambd=2.0)
    x = numbers(rng, (2, 3, 4), "float32")
    flat = x.reshape(2, 12)
    ones = (np.arange(12) == flat.argmax(axis=1)[:, None]).astype(np.float32).reshape(x.shape)
    yield case_of("Hardmax", {"x": x}, ones, opset=11)
    special = np.array([[1, np.nan, np.nan, 3], [np.inf, 2, np.inf, 0], [-np.inf] * 4], dtype=np.float32)
    yield case_of("Hardmax", {"x": special}, np.eye(4, dtype=np.float32)[[1, 0, 0]], opset=13)


def binary() -> Iterator[Case]:
    rng = np.random.default_rng(3)
    shapes = (((3, 4), (3, 4)), ((2, 1, 4), (3, 1)), ((), (5,)))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        for dtype in INTEGERS:
            a, b = shapes[INTEGERS.index(dtype) % 3]
            yield case_of(op, {"a": numbers(rng, a, dtype), "b": numbers(rng, b, dtype)}, opset=18)
    for op in ("And", "Or", "Xor"):
        for a, b in shapes:
            yield case_of(op, {"a": numbers(rng, a, "bool"), "b": numbers(rng, b, "bool")}, opset=7)
    yield case_of("Not", {"a": numbers(rng, (7,), "bool")}, opset=7)
    for dtype in UNSIGNED:
        for side in ("LEFT", "RIGHT"):
            a, b = numbers(rng, (2, 6), dtype), numbers(rng, (6,), dtype) % 8
            yield case_of("BitShift", {"a": a, "b": b.astype(a.dtype)}, opset=11, direction=side)
    for dtype in INTEGERS:
        for fmod in (0, 1):
            a, b = numbers(rng, (4, 8), dtype), numbers(rng, (8,), dtype)
            b = np.where(b == 0, b.dtype.type(3), b)
            want = np.fmod(a, b) if fmod else np.mod(a, b)
            yield case_of("Mod", {"a": a, "b": b}, want, opset=13, fmod=fmod)
        zero = np.zeros(1, dtype=dtype)
        yield case_of(
            "Mod", {"a": numbers(rng, (4,), dtype), "b": zero}, np.zeros(4, dtype=dtype), opset=13, label="by_0"
        )
    for dtype in FLOATS:
        a, b = numbers(rng, (3, 5), dtype), numbers(rng, (5,), dtype)
        want = np.fmod(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
        yield case_of("Mod", {"a": a, "b": b}, want, opset=13, rtol=0.0, atol=0.0, fmod=1)
    for op in ("Sum", "Mean"):
        for dtype in FLOATS:
            three = {n: numbers(rng, s, dtype) for n, s in (("a", (2, 3)), ("b", (3,)), ("c", (2, 1)))}
            yield case_of(op, three, opset=13, rtol=4 * loose(dtype), atol=4 * loose(dtype))
    for op in ("Max", "Min"):
        for dtype in (*FLOATS, *INTEGERS):
            yield case_of(op, {n: numbers(rng, (2, 4), dtype) for n in "abc"}, opset=13)
        yield case_of(op, {"a": numbers(rng, (4,), "int16")}, opset=13)


def powers() -> Iterator[Case]:
    rng = np.random.default_rng(4)
    for dtype in FLOATS:
        a = np.abs(numbers(rng, (3, 4), dtype).astype(np.float32)) + 0.5
        a, b = a.astype(dtype_of(dtype)), numbers(rng, (4,), dtype, 1.0)
        want = np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
        yield case_of("Pow", {"a": a, "b": b}, want, opset=15, rtol=loose(dtype))
        for other in ("int8", "int32", "int64", "uint8", "float32", "float64"):
            exponent = np.abs(numbers(rng, (4,), other)).astype(other) % 5
            want = np.power(a.astype(np.float64), exponent.astype(np.float64)).astype(a.dtype)
            yield case_of("Pow", {"a": a, "b": exponent}, want, opset=15, rtol=loose(dtype), label="mixed")
    for dtype in ("int32", "int64"):
        a = numbers(rng, (3, 5), dtype)
        for other in (*INTEGERS, "float32", "float64"):
            exponent = (np.abs(numbers(rng, (5,), other)).astype(np.int64) % 5).astype(other)
            want = np.power(a, exponent.astype(np.int64)).astype(dtype)
            yield case_of("Pow", {"a": a, "b": exponent}, want, opset=15)
    base = np.array([0, 1, -1, 2, 7, -3], dtype=np.int32)
    want = np.array([0, 1, -1, 0, 0, 0], dtype=np.int32)
    yield case_of("Pow", {"a": base, "b": np.array([-3], dtype=np.int32)}, want, opset=15, label="negative")
    yield case_of("Pow", {"a": base, "b": np.array([33], dtype=np.int32)}, base**33, opset=15, label="wraps")


def bounds() -> Iterator[Case]:
    rng = np.random.default_rng(5)
    for dtype in (*FLOATS, *INTEGERS):
        x = numbers(rng, (3, 8), dtype)
        lo, hi = (np.array(v, dtype=dtype_of(dtype)) for v in ((1, 3) if dtype in UNSIGNED else (-2, 3)))
        for names in ((), ("lo", "hi")) if dtype in (*FLOATS, "int8", "uint64") else ((),):
            for given in ((lo, hi), (lo, None), (None, hi), (hi, lo)):
                present = dict(zip(("x", "lo", "hi"), (x, *given), strict=True))
                fixed = [n for n in names if present[n] is not None]
                want = x
                if given[0] is not None:
                    want = np.maximum(want, given[0])
                if given[1] is not None:
                    want = np.minimum(want, given[1])
                label = f"{given[0]}_{given[1]}_{'constant' if names else 'run'}"
                yield case_of("Clip", present, want, opset=13, constants=fixed, label=label, rtol=0.0, atol=0.0)
    x = numbers(rng, (9,), "float32")
    for opset in (6 + 1, 10):
        yield case_of("Clip", {"x": x}, np.clip(x, -1, 2), opset=opset, min=-1.0, max=2.0)
    infinite = np.array([np.inf, -np.inf, 1], dtype=np.float16)
    edge = np.finfo(np.float16).max
    yield case_of(
        "Clip", {"x": infinite}, np.array([edge, -edge, 1], dtype=np.float16), opset=13, rtol=0.0, label="inf"
    )


def selections() -> Iterator[Case]:
    rng = np.random.default_rng(6)
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        condition = numbers(rng, (2, 1, 4), "bool")
        inputs = {"c": condition, "a": numbers(rng, (3, 1), dtype), "b": numbers(rng, (4,), dtype)}
        yield case_of("Where", inputs, np.where(*inputs.values()), opset=16, rtol=0.0, atol=0.0)
    like = {"x": numbers(rng, (5,), "float32"), "t": np.zeros(1, np.int8)}
    yield case_of("CastLike", like, like["x"].astype(np.int8), opset=15)
    pairs = (
        ("float32", "int32"),
        ("int64", "float64"),
        ("float16", "uint16"),
        ("uint8", "int8"),
        ("float64", "uint64"),
    )
    for a, b in pairs:
        x = numbers(rng, (6,), a)
        yield case_of("BitCast", {"x": x}, x.view(b), opset=26, to=_code(b), rtol=0.0, atol=0.0)


def _code(dtype: str) -> int:
    import onnx

    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def test_operators() -> None:
    families = (unary, activations, binary, powers, bounds, selections)
    cases = [case for family in families for case in family()]
    assert len(cases) > 400
    assert failures(cases) == []


@pytest.mark.parametrize(
    ("op", "inputs", "opset", "attributes", "sentence"),
    [
        ("BitShift", {"a": np.ones(2, np.uint8), "b": np.ones(2, np.uint8)}, 11, {"direction": "UP"}, "direction 'UP'"),
        ("Clip", {"x": np.ones(2, np.float32), "lo": np.ones(2, np.float32)}, 13, {}, r"a bound 'lo' of shape \[2\]"),
        ("BitCast", {"x": np.ones(2, np.float32)}, 26, {"to": 7}, "reads float32 elements as int64"),
        ("Cast", {"x": np.ones(2, np.float32)}, 13, {"to": 99}, "casts to 99, which is no ONNX element type"),
        ("Gelu", {"x": np.ones(2, np.float32)}, 20, {"approximate": "soft"}, "approximate 'soft'"),
    ],
)
def test_refusals(op: str, inputs: dict[str, Array], opset: int, attributes: dict[str, object], sentence: str) -> None:
    case = case_of(op, inputs, np.ones(2, np.float32), opset=opset, **attributes)
    with pytest.raises(CuvilError, match=sentence):
        import_onnx(case.model.SerializeToString(), filename="m.onnx")
