"""Vectors of reductions of every type, run-time bounds and amounts, Range, Col2Im, and of convolutions, pools and norms
in binary64 and products of integers (since CA-1.4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from evidence.reference.vector_cases import ABSENT, Case, given, integers, random
from evidence.reference.vector_model import VectorInput

VERSION = "CA-1.4"


def shapes() -> Iterator[Case]:
    """All cases of this family, in file order."""
    yield from _reductions()
    yield from _moves()
    yield from _products()


def _case(name: str, op: str, inputs: Sequence[VectorInput], opset: int = 20, **attributes: Any) -> Case:
    return Case(name, op, attributes, tuple(inputs), opset=opset, version=VERSION)


def _reductions() -> Iterator[Case]:
    def reduce(op: str, label: str, x: VectorInput, axes: Sequence[int], **attributes: Any) -> Case:
        name = f"{op.lower()}_{label}_{'x'.join(map(str, x.shape))}_axes{''.join(map(str, axes))}"
        return _case(name, op, (x, integers("axes", axes)), **attributes)

    for shape, axes in (((2, 70), (1,)), ((2, 1100), (1,)), ((130, 3), (0,)), ((3, 5, 7), (0, 2)), ((600, 2), (0,))):
        for op, dtype in itertools.product(("ReduceSum", "ReduceMean"), ("float64",)):
            yield reduce(op, dtype, random("x", *shape, kind="wide", dtype=dtype), axes)
        for dtype in ("float32", "float64"):
            # factors near 1, so that the product stays in range and every order rounds differently
            yield reduce("ReduceProd", dtype, _near_one(shape, dtype), axes)
    for dtype in ("float16", "bfloat16"):
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceL2", "ReduceLogSumExp"):
            yield reduce(op, dtype, random("x", 3, 40, kind="positive", dtype=dtype), (1,), keepdims=0)
    for dtype in ("int32", "int64", "uint32", "uint64"):
        for op in ("ReduceSum", "ReduceProd", "ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceMax", "ReduceMin"):
            yield reduce(op, dtype, random("x", 3, 5, 2, kind="bits", dtype=dtype), (0, 2))
        yield reduce("ReduceL2", dtype, random("x", 3, 9, kind="small", dtype=dtype), (1,))
    for dtype in ("int8", "uint8", "bool"):
        for op in ("ReduceMax", "ReduceMin"):
            yield reduce(op, dtype, random("x", 4, 6, kind="bits", dtype=dtype), (1,), keepdims=0)
    for dtype in ("float32", "float64"):
        x = random("x", 4, 90, kind="positive", shift=2, dtype=dtype)
        for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"):
            yield reduce(op, dtype, x, (1,))
            yield reduce(op, dtype, x, (0,), keepdims=0)
        odd = [float("nan"), 1.0, float("inf"), -float("inf"), -0.0, 0.0, -0.0, -0.0, 3.0, -2.0, 0.5, 1e30]
        special = given("x", odd, 4, 3, dtype=dtype)
        for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceLogSumExp"):
            yield reduce(op, f"special_{dtype}", special, (1,))
            yield reduce(op, f"special_{dtype}", special, (0,))
    for op in ("ReduceLogSum", "ReduceSumSquare", "ReduceL2"):
        yield _case(f"{op.lower()}_noop", op, (random("x", 3, 4, kind="positive"),), noop_with_empty_axes=1)


def _near_one(shape: Sequence[int], dtype: str) -> VectorInput:
    """1 + u / 32 with u in (-1, 1), stated as bits: a product of hundreds of them stays near 1."""
    count, state, values = 1, 20260112, []
    for size in shape:
        count *= size
    for _ in range(count):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        values.append(1.0 + ((state >> 40) - (1 << 23)) * 2.0**-28)
    return given("x", values, *shape, dtype=dtype)


def _moves() -> Iterator[Case]:
    """Operands are run-time inputs unless said otherwise."""

    def steer(name: str, *values: int) -> VectorInput:
        return integers(name, values, constant=False)

    far = 2**63 - 1
    for label, start, end, axes, step in (
        ("plain", (1, 0), (3, 2), (0, 1), (1, 1)),
        ("negative", (-1, 5), (-(far + 1), 0), (1, 0), (-1, -2)),
        ("far", (-far, -far), (far, -1), (-1, -2), (2, 1)),
        ("long_step", (1, 4), (9, -far), (1, 0), (far, -far)),
    ):
        operands = [steer("starts", *start), steer("ends", *end), steer("axes", *axes), steer("steps", *step)]
        yield _case(f"slice_at_{label}", "Slice", (random("x", 6, 5, 3), *operands))
    yield _case("slice_at_no_axes", "Slice", (random("x", 4, 3, dtype="float16"), steer("s", 1, 0), steer("e", 3, 9)))
    for mode in ("constant", "edge", "reflect", "wrap"):
        value = given("value", 2.5) if mode == "constant" else ABSENT
        operands = [random("x", 3, 4), steer("pads", 2, 1, 0, 3), value]
        yield _case(f"pad_by_{mode}", "Pad", operands if value.name else operands[:2], mode=mode)
        yield _case(
            f"pad_by_{mode}_axes", "Pad", (*operands[:1], steer("pads", 1, 2), value, steer("axes", -1)), mode=mode
        )
    cut = (
        random("x", 5, 4, kind="small", dtype="int32"),
        steer("pads", -1, 2, 1, -3),
        given("value", 7, dtype="int32"),
    )
    yield _case("pad_by_cuts", "Pad", cut)
    for dtype, values in (
        ("float32", (0.1, 5.0, 0.7)), ("float64", (0.1, -5.0, -0.7)), ("int16", (32000, 32767, 100)),
        ("int32", (2**31 - 5, -(2**31), -(2**30))), ("int64", (-(2**63), 2**63 - 1, 2**61)),
        ("float32", (3.0, 1.0, 0.5)),
    ):  # fmt: skip
        operands = [given(n, v, dtype=dtype) for n, v in zip(("start", "limit", "delta"), values, strict=True)]
        yield _case(f"range_{dtype}_{str(values[2]).replace('-', 'm').replace('.', 'p')}", "Range", operands)
    images: tuple[tuple[str, tuple[int, ...], tuple[int, ...], int, dict[str, Any]], ...] = (
        ("plain", (4, 5), (2, 2), 12, {}),
        ("strided", (7, 5), (3, 2), 6, {"strides": [2, 2]}),
        ("padded", (3, 3), (3, 1), 15, {"pads": [1, 1, 1, 1]}),
        ("dilated", (6, 4), (2, 2), 12, {"dilations": [2, 1]}),
        ("wide_block", (10, 12), (9, 10), 6, {}),
        ("line", (9,), (3,), 4, {"strides": [2]}),
    )
    for label, image, block, columns, attributes in images:
        taps = 1
        for size in block:
            taps *= size
        for dtype in ("float32", "float64") if label in ("plain", "wide_block") else ("float32",):
            x = random("x", 2, 3 * taps, columns, dtype=dtype)
            operands = [x, integers("image", image), steer("block", *block)]
            yield _case(f"col2im_{label}_{dtype}", "Col2Im", operands, **attributes)


def _products() -> Iterator[Case]:
    """binary64 operands of many magnitudes, so that sums round; integers over their whole type."""

    def wide(name: str, *shape: int, constant: bool = False) -> VectorInput:
        return random(name, *shape, kind="wide", constant=constant, dtype="float64")

    for c in (3, 8, 20, 72):
        yield _case(f"conv_float64_c{c}", "Conv", (wide("x", 1, c, 4, 3), wide("w", 2, c, 3, 3, constant=True)),
                    pads=[1, 1, 1, 1])  # fmt: skip
    operands = (wide("x", 1, 520, 1, 2), wide("w", 2, 520, 1, 1, constant=True), wide("b", 2, constant=True))
    yield _case("conv_float64_1x1_c520", "Conv", operands)
    pair = (wide("x", 1, 16, 3, 3), wide("w", 16, 2, 3, 2, constant=True))
    yield _case("conv_transpose_float64", "ConvTranspose", pair, strides=[2, 1], pads=[1, 0, 0, 1])
    for op, size in (("AveragePool", [10, 11]), ("MaxPool", [3, 2])):
        yield _case(f"{op.lower()}_float64", op, (wide("x", 1, 2, 12, 12),), kernel_shape=size)
    yield _case("globalaveragepool_float64", "GlobalAveragePool", (wide("x", 2, 2, 30, 25),))
    yield _case("globalmaxpool_float64", "GlobalMaxPool", (wide("x", 2, 2, 3, 5),))
    parameters = [random(n, 3, kind="unit", constant=True, dtype="float64") for n in ("scale", "bias")]
    yield _case("instance_norm_float64", "InstanceNormalization", (wide("x", 2, 3, 70), *parameters))
    statistics = [random(n, 3, kind="positive", constant=True, dtype="float64") for n in ("mean", "var")]
    yield _case("batch_norm_float64", "BatchNormalization", (wide("x", 2, 3, 4), *parameters, *statistics))
    for dtype in ("int32", "int64", "uint32", "uint64"):
        factors = [random(n, *s, kind="bits", dtype=dtype) for n, s in (("a", (2, 3, 7)), ("b", (7, 4)))]
        yield _case(f"matmul_{dtype}", "MatMul", factors)
    for dtype in ("int8", "uint8"):
        x = random("x", 1, 2, 5, 6, kind="bits", dtype=dtype)
        yield _case(f"maxpool_{dtype}", "MaxPool", (x,), kernel_shape=[2, 3], strides=[2, 1], pads=[1, 0, 0, 2])
