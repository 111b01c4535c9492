"""Vectors of the Winograd forms of a convolution: leaves, tails, odd sizes, pads, infinities (since CA-1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evidence.reference.vector_cases import Case, given, random, weight

VERSION = "CA-1.2"


def winograd() -> Iterator[Case]:
    """W23 and W1-23 in both leaves; channel counts around every leaf, block and tree boundary."""

    def conv(
        form: str, name: str, x: Sequence[int], w: Sequence[int], bias: bool = True, kind: str = "unit", **attrs: Any
    ) -> Case:
        operands = [random("x", *x, kind=kind), weight("w", *w, kind=kind)]
        operands += [weight("b", w[0], shift=1)] if bias else []
        label = form.lower().replace("/", "_").replace("-", "_")
        return Case(f"conv_{label}_{name}", "Conv", attrs, tuple(operands), version=VERSION, arithmetic=form)

    same = [1, 1, 1, 1]
    for leaf in (32, 16):
        plane, line = f"W23/{leaf}", f"W1-23/{leaf}"
        for c in (3, 8, 16, 17, 24, 33, 64, 100):
            yield conv(plane, f"c{c}", (1, c, 4, 4), (3, c, 3, 3), pads=same)
            yield conv(line, f"c{c}_k15", (1, c, 10), (3, c, 15), pads=[7, 7])
        for c in (300, 600):
            yield conv(plane, f"c{c}", (1, c, 2, 2), (2, c, 3, 3), pads=same)
        yield conv(plane, "odd_5x7", (1, 20, 5, 7), (17, 20, 3, 3), pads=same)
        yield conv(plane, "no_pads", (1, 16, 6, 5), (3, 16, 3, 3))
        yield conv(plane, "batch_no_bias", (2, 16, 4, 6), (18, 16, 3, 3), bias=False, pads=same)
        for k in (1, 2, 3, 5, 7, 9, 31):
            yield conv(line, f"c40_k{k}", (1, 40, 40), (2, 40, k), pads=[k // 2, k // 2])
        yield conv(line, "odd_batch_no_bias", (2, 16, 9), (18, 16, 9), bias=False, pads=[3, 5])
    yield conv("W23/32", "one_output", (1, 8, 3, 3), (1, 8, 3, 3))
    yield conv("W23/32", "asymmetric_pads", (1, 10, 4, 5), (2, 10, 3, 3), pads=[0, 1, 2, 3])
    yield conv("W23/32", "wide_range", (1, 40, 4, 4), (3, 40, 3, 3), kind="wide", pads=same)
    yield conv("W1-23/32", "wide_range", (1, 40, 9), (3, 40, 9), kind="wide", pads=[4, 4])
    tiny = (random("x", 1, 16, 4, 4, shift=-80), weight("w", 3, 16, 3, 3, shift=-55))
    yield Case("conv_w23_32_subnormal_results", "Conv", {"pads": same}, tiny, version=VERSION, arithmetic="W23/32")
    zeros = (given("x", np.zeros((1, 1, 3, 3))), weight("w", 2, 1, 3, 3), given("b", [-0.0, 0.0], constant=True))
    yield Case("conv_w23_32_negative_zero_bias", "Conv", {"pads": same}, zeros, version=VERSION, arithmetic="W23/32")
    plane_special = np.ones((1, 2, 7, 6), dtype=np.float32)
    plane_special[0, 0, 0, 0], plane_special[0, 1, 4, 4], plane_special[0, 1, 6, 5] = np.nan, np.inf, -np.inf
    yield Case(
        "conv_w23_32_nan_and_infinities", "Conv", {"pads": same}, (given("x", plane_special), weight("w", 2, 2, 3, 3)),
        version=VERSION, arithmetic="W23/32",
    )  # fmt: skip
    line_special = np.ones((1, 2, 40), dtype=np.float32)
    line_special[0, 0, 3], line_special[0, 1, 30] = np.inf, np.nan
    yield Case(
        "conv_w1_23_32_nan_and_infinities", "Conv", {"pads": [1, 1]},
        (given("x", line_special), weight("w", 2, 2, 4)), version=VERSION, arithmetic="W1-23/32",
    )  # fmt: skip
