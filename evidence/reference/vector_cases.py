"""What the vector file holds: one entry per one-node graph, before inputs are seeded and expected bits computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.reference.graph import storage
from evidence.reference.typed import to_storage
from evidence.reference.vector_model import VectorInput, array_to_words


@dataclass(frozen=True)
class Case:
    """A vector without its seeds and bits."""

    name: str
    op_type: str
    attributes: dict[str, Any]
    inputs: tuple[VectorInput, ...]
    opset: int = 17
    version: str = "CA-1.1"
    arithmetic: str = ""
    output: int = 0
    domain: str = ""


def random(
    name: str, *shape: int, kind: str = "unit", shift: int = 0, constant: bool = False, dtype: str = "float32"
) -> VectorInput:
    """A generated operand; the seed (``lcg``) is set by the generator."""
    named = {} if dtype == "float32" else {"dtype": dtype}
    return VectorInput(name, shape, constant, {"lcg": 0, "kind": kind, "shift": shift, **named})


def weight(name: str, *shape: int, kind: str = "unit", shift: int = 0) -> VectorInput:
    """A generated initialiser."""
    return random(name, *shape, kind=kind, shift=shift, constant=True)


def given(name: str, values: npt.ArrayLike, *shape: int, constant: bool = False, dtype: str = "float32") -> VectorInput:
    """An operand with stated values; those of a floating-point type are rounded once to it."""
    target = storage(dtype)
    exact = target.kind in "iub" or target == np.float32
    with np.errstate(over="ignore"):
        array = np.asarray(values, dtype=target) if exact else to_storage(np.asarray(values, dtype=np.float64), dtype)
    named = {} if dtype == "float32" else {"dtype": dtype}
    return VectorInput(name, shape or array.shape, constant, {"bits": array_to_words(array), **named})


def integers(name: str, values: Sequence[int], constant: bool = True) -> VectorInput:
    """An int64 operand of one dimension, by default an initialiser."""
    return VectorInput(name, (len(values),), constant, {"values": list(values)})


ABSENT = VectorInput("")


def binary32(value: float) -> float:
    """``value`` as the binary32 number an ONNX attribute would hold."""
    return float(np.float32(value))


def convolutions() -> Iterator[Case]:
    """Conv in one to three dimensions: block tails, one to three tree levels, groups, dilations, pads."""

    def conv(
        name: str, x: Sequence[int], w: Sequence[int], bias: bool = True, kind: str = "unit", **attrs: Any
    ) -> Case:
        operands = [random("x", *x, kind=kind), weight("w", *w, kind=kind)]
        return Case(f"conv_{name}", "Conv", attrs, (*operands, *((weight("b", w[0], shift=1),) if bias else ())))

    for c in (1, 3, 7, 8, 9, 12, 15, 16, 17, 20):
        yield conv(f"3x3_c{c}", (1, c, 5, 4), (3, c, 3, 3), pads=[1, 1, 1, 1])
        yield conv(f"1x1_c{c}", (1, c, 2, 3), (5, c, 1, 1))
    for c in (64, 65, 100, 512, 520, 600, 5000):
        yield conv(f"1x1_c{c}", (1, c, 1, 2), (2, c, 1, 1))
    yield conv("3x3_c72", (1, 72, 3, 4), (2, 72, 3, 3))
    yield conv("3x3_c520", (1, 520, 3, 3), (1, 520, 3, 3))
    for c in (3, 8, 16, 20):
        yield conv(f"5x5_c{c}", (1, c, 5, 6), (2, c, 5, 5), pads=[2, 2, 1, 1])
        yield conv(f"7x7_c{c}_stride2", (1, c, 8, 9), (2, c, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2])
    yield conv("9x9_c1", (1, 1, 9, 10), (2, 1, 9, 9))
    yield conv("2x2_c24", (1, 24, 3, 3), (2, 24, 2, 2))
    yield conv("1x9_c9", (1, 9, 2, 9), (2, 9, 1, 9), pads=[0, 4, 0, 4])
    yield conv("group2", (1, 24, 4, 4), (4, 12, 3, 3), group=2, pads=[1, 1, 1, 1])
    yield conv("group3_of_8", (1, 24, 3, 3), (3, 8, 3, 3), group=3)
    yield conv("depthwise_3x3", (1, 9, 4, 5), (9, 1, 3, 3), group=9, pads=[1, 1, 1, 1])
    yield conv("depthwise_5x5_twice", (1, 4, 6, 5), (8, 1, 5, 5), group=4, strides=[2, 1], pads=[2, 2, 2, 2])
    yield conv("dilated", (1, 8, 7, 8), (2, 8, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3])
    yield conv("asymmetric_pads", (1, 10, 4, 5), (2, 10, 3, 3), pads=[0, 1, 2, 3], strides=[1, 2])
    yield conv("batch", (3, 16, 3, 3), (2, 16, 3, 3), pads=[1, 0, 1, 0])
    yield conv("no_bias", (1, 16, 4, 4), (3, 16, 3, 3), bias=False)
    yield conv("wide_range", (1, 16, 4, 4), (3, 16, 3, 3), kind="wide")
    yield conv("1d_k3_c8", (1, 8, 9), (3, 8, 3), pads=[1, 1])
    yield conv("1d_k3_c16", (1, 16, 9), (3, 16, 3), pads=[1, 1])
    yield conv("1d_k3_c17", (1, 17, 9), (3, 17, 3), pads=[1, 1])
    yield conv("1d_k5_c40", (1, 40, 7), (2, 40, 5))
    yield conv("1d_k7_c16_dilated", (1, 16, 15), (2, 16, 7), dilations=[2], pads=[3, 6])
    yield conv("1d_k11_c9", (1, 9, 13), (2, 9, 11))
    yield conv("1d_k150_c2", (1, 2, 152), (2, 2, 150))
    for c in (1, 5, 8, 12):
        yield conv(f"3d_3x3x3_c{c}", (1, c, 3, 4, 3), (2, c, 3, 3, 3), pads=[1, 1, 1, 1, 0, 1])
    yield conv("3d_dilated", (1, 5, 6, 5, 7), (2, 5, 3, 3, 3), dilations=[2, 2, 2], pads=[2, 2, 2, 2, 2, 2])
    yield conv("3d_1x1x1_c70", (1, 70, 1, 2, 2), (2, 70, 1, 1, 1))
    yield conv("3d_2x2x2_stride2", (1, 9, 4, 4, 4), (2, 9, 2, 2, 2), strides=[2, 2, 2])
    tiny = (random("x", 1, 16, 3, 3, shift=-80), weight("w", 3, 16, 3, 3, shift=-55))
    yield Case("conv_subnormal_results", "Conv", {}, tiny)
    yield Case(
        "conv_underflow_to_zero", "Conv", {}, (random("x", 1, 8, 1, 1, shift=-100), weight("w", 3, 8, 1, 1, shift=-70))
    )
    yield Case("conv_negative_zero_bias", "Conv", {"pads": [1, 1, 1, 1]}, (
        given("x", np.zeros((1, 1, 2, 2))), weight("w", 2, 1, 3, 3), given("b", [-0.0, 0.0], constant=True),
    ))  # fmt: skip
    yield Case("conv_overflow", "Conv", {}, (random("x", 1, 16, 1, 2, shift=66), weight("w", 3, 16, 1, 1, shift=66)))
    special = np.ones((1, 2, 4, 4), dtype=np.float32)
    special[0, 0, 0, 0], special[0, 1, 3, 3], special[0, 1, 0, 3] = np.nan, np.inf, -np.inf
    yield Case(
        "conv_nan_and_infinities", "Conv", {"pads": [1, 1, 1, 1]}, (given("x", special), weight("w", 2, 2, 3, 3))
    )


def transposed() -> Iterator[Case]:
    """ConvTranspose: phases of unequal tap counts, output padding, a phase with no tap."""

    def case(name: str, x: Sequence[int], w: Sequence[int], group: int = 1, bias: bool = True, **attrs: Any) -> Case:
        if group > 1:
            attrs["group"] = group
        operands = (random("x", *x), weight("w", *w), *((weight("b", w[1] * group, shift=1),) if bias else ()))
        return Case(f"conv_transpose_{name}", "ConvTranspose", attrs, operands)

    for c in (3, 8, 16, 20):
        yield case(f"k2_s2_c{c}", (1, c, 3, 2), (c, 3, 2, 2), strides=[2, 2])
        yield case(f"k3_s2_c{c}", (1, c, 3, 2), (c, 2, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    yield case("k3_s1", (1, 12, 4, 3), (12, 2, 3, 3), pads=[1, 1, 1, 1])
    yield case("k5_s1", (1, 8, 3, 3), (8, 2, 5, 5), pads=[2, 2, 2, 2])
    yield case("k3_s2_asymmetric", (1, 9, 3, 3), (9, 2, 3, 3), strides=[2, 2], pads=[0, 1, 1, 0])
    yield case("k2_s3_gaps", (1, 8, 3, 3), (8, 2, 2, 2), strides=[3, 3])
    yield case("group2", (1, 16, 2, 3), (16, 2, 3, 3), group=2, strides=[2, 2])
    yield case("dilated", (1, 8, 3, 4), (8, 2, 3, 2), strides=[2, 3], dilations=[2, 2], pads=[1, 0, 2, 1])
    yield case("1d_k4_s2", (1, 24, 5), (24, 3, 4), strides=[2], pads=[1, 1], bias=False)
    yield case("3d_k2_s2", (1, 10, 2, 2, 2), (10, 2, 2, 2, 2), strides=[2, 2, 2])
    yield case("c600", (1, 600, 1, 2), (600, 2, 2, 2), strides=[2, 2])


def matrices() -> Iterator[Case]:
    """Gemm and MatMul: K around every leaf and tree boundary, scalings, transposition, broadcasting."""
    a: tuple[int, ...]
    b: tuple[int, ...]
    for k in (1, 7, 8, 20, 63, 64, 65, 100, 512, 513, 600, 1000, 4097, 5000):
        yield Case(f"gemm_k{k}", "Gemm", {}, (random("a", 2, k), weight("b", k, 3), weight("c", 3, shift=1)))
    for name, attrs, a, b, c in (
        ("trans_b", {"transB": 1}, (2, 100), (3, 100), (3,)),
        ("trans_a", {"transA": 1}, (100, 2), (100, 3), (2, 3)),
        ("alpha_beta", {"alpha": binary32(0.3), "beta": binary32(1.7)}, (2, 70), (70, 3), (3,)),
        ("beta_zero", {"beta": 0.0}, (2, 70), (70, 3), (3,)),
        ("alpha_only", {"alpha": binary32(-1.1), "transA": 1, "transB": 1}, (70, 2), (3, 70), (2, 1)),
        ("scalar_c", {"beta": binary32(0.1)}, (2, 70), (70, 3), (1,)),
    ):
        yield Case(f"gemm_{name}", "Gemm", attrs, (random("a", *a), weight("b", *b), weight("c", *c)))
    yield Case("gemm_no_c", "Gemm", {}, (random("a", 3, 130), weight("b", 130, 2)))
    yield Case("gemm_all_runtime", "Gemm", {}, (random("a", 3, 130), random("b", 130, 2), random("c", 3, 2)))
    yield Case("gemm_negative_zero", "Gemm", {}, (
        given("a", [[-1.0], [0.0]]), given("b", [[0.0, -0.0]], constant=True), given("c", [-0.0, 0.0], constant=True),
    ))  # fmt: skip
    for name, a, b in (
        ("2d", (3, 70), (70, 4)),
        ("k600", (2, 600), (600, 3)),
        ("k5000", (1, 5000), (5000, 2)),
        ("batched", (2, 1, 3, 20), (4, 20, 5)),
        ("broadcast", (2, 1, 2, 66), (1, 3, 66, 2)),
        ("1d_2d", (80,), (80, 3)),
        ("2d_1d", (3, 80), (80,)),
        ("1d_1d", (80,), (80,)),
    ):
        yield Case(f"matmul_{name}", "MatMul", {}, (random("a", *a), weight("b", *b)))
        yield Case(f"matmul_{name}_runtime", "MatMul", {}, (random("a", *a, kind="wide"), random("b", *b)))
