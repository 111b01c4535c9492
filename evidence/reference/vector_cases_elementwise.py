"""Vectors of casts, arithmetic in every element type, further elementwise operators, random numbers (since CA-1.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evidence.reference.vector_cases import ABSENT, Case, given, random
from evidence.reference.vector_model import VectorInput

VERSION = "CA-1.4"
CODES = {
    "float32": 1, "float64": 11, "float16": 10, "bfloat16": 16, "int8": 3, "int16": 5, "int32": 6, "int64": 7,
    "uint8": 2, "uint16": 4, "uint32": 12, "uint64": 13, "bool": 9,
}  # fmt: skip
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = tuple(name for name in CODES if "int" in name)
EDGES = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 127.5, -128.5, 255.49, 255.5, 65504.0, 65519.996,
    65520.0, 2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 3.4e38, 1e-8, 6e-8, 1e-40, 1e-310, 1e300,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
_TURNS = (
    1e-30, 0.7853981, 0.7853982, 1.5707963, 3.1415927, 355.0, 1e5, 2.0**30, 16367173.0, 1e15, 2.1e25, 1.1e38, 3.4e38,
    -1e-40, -22.0, -0.0, float("inf"), float("nan"),
)  # fmt: skip
_SMALL = (-1.0, -0.999, -0.5, -0.1, -1e-10, -0.0, 0.0, 1e-40, 0.3, 0.5, 0.75, 0.99999994, 1.0, 1.5, float("nan"))


def _case(name: str, op: str, attrs: dict[str, Any], *inputs: VectorInput, opset: int = 21) -> Case:
    return Case(f"{op.lower()}_{name}", op, attrs, inputs, opset, VERSION)


def _edges(name: str, dtype: str) -> VectorInput:
    return given(name, EDGES, dtype=dtype)


def casts() -> Iterator[Case]:
    """Floating-point edges to every type; patterns over the whole range of integers to each kind of type."""
    for a in FLOATS:
        for b in CODES:
            yield _case(f"{a}_to_{b}_edges", "Cast", {"to": CODES[b]}, _edges("x", a))
    for place, a in enumerate((*INTEGERS, "bool")):
        other = INTEGERS[place - 3]
        for b in ("float32", "float16", "bool", other):
            yield _case(f"{a}_to_{b}", "Cast", {"to": CODES[b]}, random("x", 24, kind="bits", dtype=a))
    pairs = "float32 int32 int64 float64 float16 uint16 uint8 int8 uint32 float32 bfloat16 int16".split()
    for a, b in zip(pairs[::2], pairs[1::2], strict=True):
        yield _case(f"{a}_to_{b}", "BitCast", {"to": CODES[b]}, random("x", 8, kind="small", dtype=a), opset=26)


def arithmetic() -> Iterator[Case]:
    """Arithmetic and comparisons on patterns over the whole range of every type but float32, broadcast."""
    binary = "Add Sub Mul Div Min Max Less GreaterOrEqual".split()
    for dtype in (*INTEGERS, *FLOATS[1:]):
        for op in binary:
            operands = random("a", 5, 6, kind="bits", dtype=dtype), random("b", 6, kind="bits", dtype=dtype)
            yield _case(dtype, op, {}, *operands)
        few = random("a", 4, 5, kind="small", dtype=dtype), random("b", 5, kind="small", dtype=dtype)
        yield _case(f"{dtype}_small", "Div", {}, *few)
        yield _case(f"{dtype}_small", "Mod", {"fmod": 1}, *few, opset=13)
        signed = "Relu Abs" if dtype.startswith("u") else "Relu Abs Neg"
        for op in (*signed.split(), "Sign"):
            if op != "Relu" or not dtype.startswith("u"):
                yield _case(dtype, op, {}, random("x", 24, kind="bits", dtype=dtype))
    for dtype in FLOATS[1:]:
        for op in "Sqrt Reciprocal Floor Ceil Round".split():
            yield _case(f"{dtype}_edges", op, {}, _edges("x", dtype), opset=22)
        yield _case(dtype, "Mean", {}, *(random(n, 4, dtype=dtype) for n in "abc"), opset=13)
    for dtype in INTEGERS:
        operands = random("a", 4, 6, kind="bits", dtype=dtype), random("b", 6, kind="small", dtype=dtype)
        if dtype in ("int8", "uint32", "int64"):
            for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
                yield _case(dtype, op, {}, *operands, opset=18)
            yield _case(dtype, "BitwiseNot", {}, operands[0], opset=18)
        for side in ("LEFT", "RIGHT"):
            yield _case(f"{dtype}_{side.lower()}", "BitShift", {"direction": side}, *operands, opset=28)
        yield _case(f"{dtype}_floored", "Mod", {"fmod": 0}, *operands, opset=13)
    for op in ("Equal", "LessOrEqual", "Greater"):
        edges = given("a", EDGES, 32, 1, dtype="float16"), given("b", EDGES[:9], 1, 9, dtype="float16")
        yield _case("float16_edges", op, {}, *edges)
        yield _case("uint64", op, {}, *(random(n, 20, kind="small", dtype="uint64") for n in "ab"))
    for op in ("And", "Or", "Xor"):
        yield _case("all", op, {}, given("a", [0, 0, 1, 1], dtype="bool"), given("b", [0, 1, 0, 1], dtype="bool"))
    yield _case("all", "Not", {}, given("a", [0, 1], dtype="bool"))
    for dtype in CODES:
        condition = random("c", 3, 1, kind="bits", dtype="bool")
        yield _case(dtype, "Where", {}, condition, *(random(n, 8, kind="bits", dtype=dtype) for n in "ab"))
    yield _case("float32_signs", "Mod", {"fmod": 1}, given("a", EDGES, 32, 1), given("b", EDGES[2:8], 1, 6), opset=13)
    yield _case("float64_signs", "Mod", {"fmod": 0}, given("a", EDGES, 32, 1, dtype="float64"),
                given("b", [-3.0, 0.7, float("inf"), -0.0], 1, 4, dtype="float64"), opset=28)  # fmt: skip


def functions() -> Iterator[Case]:
    """Functions computed in binary64, and those of binary64 and half operands."""
    trigonometric, unit = ("Sin", "Cos", "Tan"), ("Asin", "Acos", "Atanh")
    for op in (*trigonometric, *unit, "Atan", "Sinh", "Cosh", "Asinh", "Acosh"):
        special = _TURNS if op in trigonometric else _SMALL if op in unit else EDGES
        for dtype in FLOATS:
            yield _case(f"{dtype}_special", op, {}, given("x", special, dtype=dtype), opset=22)
            kind, shift = ("wide", 6) if op not in unit else ("unit", 0)
            if dtype in ("float32", "float64"):
                yield _case(dtype, op, {}, random("x", 100, kind=kind, shift=shift, dtype=dtype), opset=22)
    for op in "Exp Log Erf Tanh Sigmoid Softplus HardSwish Mish Softsign Selu Elu".split():
        for dtype in FLOATS if op in ("Mish", "Softsign", "Selu") else FLOATS[1:]:
            yield _case(f"{dtype}_edges", op, {}, _edges("x", dtype), opset=22)
            if dtype in ("float32", "float64"):
                yield _case(dtype, op, {}, random("x", 60, shift=3, dtype=dtype), opset=22)
    for dtype in FLOATS:
        x = random("x", 40, shift=2, dtype=dtype)
        if dtype != "float32":
            yield _case(dtype, "LeakyRelu", {"alpha": 0.0625}, x)
            yield _case(dtype, "HardSigmoid", {"alpha": 0.25, "beta": 0.5}, x, opset=22)
            for approximate in ("none", "tanh"):
                yield _case(f"{dtype}_{approximate}", "Gelu", {"approximate": approximate}, x)
            yield _case(dtype, "PRelu", {}, random("x", 3, 8, dtype=dtype), random("slope", 8, dtype=dtype))
            yield _case(dtype, "Pow", {}, random("a", 20, 1, kind="positive", shift=3, dtype=dtype),
                        random("b", 5, shift=3, dtype=dtype), opset=15)  # fmt: skip
            yield _case(f"{dtype}_edges", "Pow", {}, given("a", EDGES[:10] + EDGES[-4:], 14, 1, dtype=dtype),
                        given("b", [2.0, 3.0, 0.5, -1.0, 7.0, float("inf")], 1, 6, dtype=dtype), opset=15)  # fmt: skip
        yield _case(f"{dtype}_bent", "Celu", {"alpha": 0.75}, x, opset=28)
        yield _case(dtype, "ThresholdedRelu", {"alpha": 0.75}, x, opset=22)
        if dtype != "bfloat16":  # which ONNX's Shrink does not take
            yield _case(dtype, "Shrink", {"bias": 0.25, "lambd": 0.75}, x, opset=9)
        yield _case(dtype, "Swish", {"alpha": 1.25}, x, opset=24)
        yield _case(dtype, "Hardmax", {"axis": 1}, random("x", 2, 6, 3, kind="small", dtype=dtype), opset=13)
        yield _case(f"{dtype}_edges", "IsNaN", {}, _edges("x", dtype), opset=20)
        yield _case(f"{dtype}_edges", "IsInf", {"detect_negative": 0}, _edges("x", dtype), opset=20)
        stated = given("lo", [-1.5], dtype=dtype), given("hi", [0.75], dtype=dtype)
        bounds = [VectorInput(b.name, (), False, b.source) for b in stated]
        yield _case(f"{dtype}_run_time", "Clip", {}, _edges("x", dtype), *bounds, opset=13)
        if dtype != "float32":
            yield _case(f"{dtype}_open", "Clip", {}, _edges("x", dtype), ABSENT, bounds[1], opset=13)
    yield _case("plain", "Celu", {"alpha": 0.75}, random("x", 40, shift=2), opset=12)
    for dtype, other in (("int32", "int64"), ("int64", "uint8"), ("int32", "float32"), ("float32", "int32")):
        powers = random("a", 5, 1, kind="small", dtype=dtype), random("b", 7, kind="small", dtype=other)
        yield _case(f"{dtype}_{other}", "Pow", {}, *powers, opset=15)
    yield _case("int32", "Pow", {}, random("a", 5, 1, kind="small", dtype="int32"),
                random("b", 9, kind="small", dtype="int32"), opset=15)  # fmt: skip


def generators() -> Iterator[Case]:
    """Random numbers of seeds of the nodes' own."""
    for dtype in FLOATS:
        shape = {"shape": [3, 40], "seed": 7.5, "dtype": CODES[dtype]}
        yield _case(dtype, "RandomUniform", {**shape, "low": -1.0, "high": 2.5}, opset=22)
        yield _case(dtype, "RandomNormal", {**shape, "mean": 0.5, "scale": 2.0}, opset=22)
        like = random("x", 2, 9, dtype=dtype)
        yield _case(dtype, "RandomUniformLike", {"seed": 1.0}, like, opset=22)
        yield _case(dtype, "Bernoulli", {"seed": 3.0}, random("x", 50, kind="positive", dtype=dtype), opset=22)
    for code in ("int32", "int64"):
        draws = {"sample_size": 30, "seed": 2.0, "dtype": CODES[code]}
        yield _case(code, "Multinomial", draws, random("x", 2, 5, shift=2), opset=22)


def elementwise() -> Iterator[Case]:
    yield from casts()
    yield from arithmetic()
    yield from functions()
    yield from generators()
