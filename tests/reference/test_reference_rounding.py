"""The emulated fma against exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ca1_naive import bits_to_float, round_to_binary32
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evidence.reference.rounding import fma_chains, fmaf


def exact_fma_bits(a: int, b: int, c: int) -> int:
    x, y, z = (bits_to_float(v) for v in (a, b, c))
    product, addend = Fraction(x) * Fraction(y), Fraction(z)
    product_negative = bool((a ^ b) >> 31)
    negative_zero = product == 0 and addend == 0 and product_negative and bool(c >> 31)
    return round_to_binary32(product + addend, negative_zero)


def fma_bits(a: int, b: int, c: int) -> int:
    x, y, z = (np.array([v], dtype=np.uint32).view(np.float32) for v in (a, b, c))
    return int(fmaf(x, y, z).view(np.uint32)[0])


finite_bits = st.builds(
    lambda sign, exponent, fraction: (sign << 31) | (exponent << 23) | fraction,
    st.integers(0, 1),
    st.one_of(
        st.integers(0, 254), st.integers(0, 3), st.integers(60, 70), st.integers(120, 130), st.integers(250, 254)
    ),
    st.one_of(st.integers(0, 0x7FFFFF), st.sampled_from([0, 1, 0x7FFFFF, 0x400000, 0x3FFFFF, 0x400001])),
)


@settings(max_examples=800, deadline=None)
@given(finite_bits, finite_bits, finite_bits)
@example(0x3F800000, 0x7F7FFFFF, 0x73000000)  # largest + half an ulp: the tie that overflows
@example(0x3F800000, 0x7F7FFFFF, 0x72FFFFFF)  # just under it
@example(0x80000000, 0x3F800000, 0x80000000)  # -0 + -0
@example(0x1F800000, 0x9F800000, 0x00000001)
def test_fmaf_rounds_once(a: int, b: int, c: int) -> None:
    assert fma_bits(a, b, c) == exact_fma_bits(a, b, c)


@settings(max_examples=800, deadline=None)
@given(
    st.integers(1 << 23, (1 << 24) - 1),
    st.integers(1 << 23, (1 << 24) - 1),
    st.integers(-150, 60),
    st.sampled_from([-1, 1]),
    st.integers(-1, 1),
)
def test_fmaf_next_to_every_kind_of_tie(x: int, y: int, scale: int, sign: int, nudge: int) -> None:
    """The addend brings the exact sum to within a product's last bit of a binary32 midpoint."""
    product = Fraction(x * y) * Fraction(2) ** (scale - 46)
    coarse = round_to_binary32(product * (1 << 26) + nudge, False)
    a, b = np.float32(x * 2.0**-23), np.float32(y * 2.0 ** (scale - 23))
    c = np.array([coarse], dtype=np.uint32).view(np.float32) * np.float32(sign)
    bits = [int(np.asarray(v, dtype=np.float32).reshape(1).view(np.uint32)[0]) for v in (a, b, c)]
    assert fma_bits(*bits) == exact_fma_bits(*bits)


def test_fmaf_midpoint_with_a_sticky_bit_far_below() -> None:
    """The product is 2^-24 (1 - 2^-46), just short of half an ulp of the odd 1 + 2^-23; binary64 forgets the 2^-70."""
    a, b, odd = np.float32(2.0**-12 * (1 + 2.0**-23)), np.float32(2.0**-12 * (1 - 2.0**-23)), np.float32(1 + 2.0**-23)
    twice_rounded = (np.float64(a) * np.float64(b) + np.float64(odd)).astype(np.float32)
    assert float(fmaf(a, b, odd)) == float(odd) != float(twice_rounded)
    assert float(fmaf(-a, b, odd)) == float(odd)


def test_fmaf_musl_case() -> None:
    value = fmaf(np.float32(1126341 * 2.0**-75), np.float32(15618881 * 2.0**-119), np.float32(2.0**-127))
    assert int(value.view(np.uint32)) == 0x00400001


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [(np.inf, 0, 1, "nan"), (np.inf, 1, -np.inf, "nan"), (np.inf, -2, 1, "-inf"), (3e38, 3e38, -np.inf, "-inf")],
)
def test_fmaf_special_values(a: float, b: float, c: float, expected: str) -> None:
    assert str(float(fmaf(a, b, c))) == expected


@pytest.mark.parametrize(
    ("rows", "taps", "columns", "pixels"), [(1, 9, 5, 7), (3, 40, 70, 1), (2, 17, 1, 300), (1, 0, 2, 3)]
)
@pytest.mark.parametrize("scale", [1.0, 2.0**-70])
def test_chains_equal_single_steps(rows: int, taps: int, columns: int, pixels: int, scale: float) -> None:
    """``scale`` 2^-70 makes every product and sum subnormal or nearly so."""
    rng = np.random.default_rng(rows * taps + columns)
    x = (rng.standard_normal((rows, taps, pixels)) * scale).astype(np.float32)
    w = (rng.standard_normal((rows, taps, columns)) * scale).astype(np.float32)
    expected = np.zeros((rows, columns, pixels), dtype=np.float32)
    for t in range(taps):
        expected = fmaf(x[:, t, None, :], w[:, t, :, None], expected)
    assert fma_chains(x, w).tobytes() == expected.tobytes()
