"""Means, norms, softmax and resize weights against section 4 to 7 of the text, element by element."""

from __future__ import annotations

from fractions import Fraction

import ca1_naive as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.reference import elementary
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefNode
from evidence.reference.interpreter import evaluate
from evidence.reference.resize import nearest_binary, source_coordinate

F = np.float32
EPSILON = float(F(1e-3))


def apply(op: str, shape: tuple[int, ...], *operands: np.ndarray, **attrs: object) -> np.ndarray:
    return evaluate(ARITHMETICS["ca1"], RefNode(op, (), "y", shape, "float32", attrs), list(operands))


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(F)


@pytest.mark.parametrize(
    ("op", "shape", "axes", "lanes"),
    [
        ("reduce_mean", (1, 2, 9, 10), (2, 3), False),  # the mean of a feature map is global average pooling
        ("reduce_sum", (1, 2, 9, 10), (2, 3), True),
        ("reduce_mean", (1, 2, 3, 5, 6), (2, 3, 4), False),
        ("reduce_mean", (1, 2, 3, 5, 6), (3, 4), True),
        ("reduce_mean", (2, 3, 90), (2,), True),  # rank 3: the last axis
        ("reduce_mean", (2, 3, 90), (1, 2), True),
        ("reduce_mean", (90, 3), (0,), False),
        ("reduce_mean", (3, 90), (0, 1), True),
        ("reduce_sum", (30, 2, 5), (0, 2), False),
        ("reduce_sum", (2, 90, 1), (1,), False),  # axis numbers decide, not extents
    ],
)
def test_which_sum_a_reduction_is(op: str, shape: tuple[int, ...], axes: tuple[int, ...], lanes: bool) -> None:
    x = data(*shape)
    kept = [a for a in range(len(shape)) if a not in axes]
    out = tuple(1 if a in axes else n for a, n in enumerate(shape))
    got = apply(op, out, x, axes=list(axes), keepdims=1).reshape(-1)
    rows = x.transpose(*kept, *axes).reshape(got.size, -1)
    total = naive.sum_in_lanes if lanes else naive.sum_by_positions
    expected = [F(total([float(v) for v in row])) for row in rows]
    if op == "reduce_mean":
        expected = [v / F(rows.shape[1]) for v in expected]
    assert got.tobytes() == np.array(expected, dtype=F).tobytes()


@pytest.mark.parametrize("shape", [(2, 3, 9, 9), (1, 2, 130), (1, 2, 3, 5, 7)])
def test_global_average_pool_equals_the_mean_of_a_feature_map(shape: tuple[int, ...]) -> None:
    x = data(*shape)
    out = (*shape[:2], *(1,) * (len(shape) - 2))
    got = apply("global_average_pool", out, x).reshape(-1)
    rows = x.reshape(got.size, -1)
    expected = [F(naive.sum_by_positions([float(v) for v in row])) / F(rows.shape[1]) for row in rows]
    assert got.tobytes() == np.array(expected, dtype=F).tobytes()


@pytest.mark.parametrize(("shape", "axis", "lanes"), [((2, 70), 1, True), ((70, 2), 0, False), ((1, 90, 2), 1, False)])
@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_softmax(op: str, shape: tuple[int, ...], axis: int, lanes: bool) -> None:
    x = data(*shape) * F(3)
    got = np.moveaxis(apply(op, shape, x, axis=axis), axis, -1).reshape(-1, shape[axis])
    for row, values in zip(got, np.moveaxis(x, axis, -1).reshape(-1, shape[axis]), strict=True):
        shifted = values - values.max()
        e = elementary.exp(shifted)
        total = F((naive.sum_in_lanes if lanes else naive.sum_by_positions)([float(v) for v in e]))
        expected = e / total if op == "softmax" else shifted - elementary.log(np.array([total], dtype=F))
        assert row.tobytes() == expected.tobytes()


def normalised(values: np.ndarray, scale: np.ndarray, bias: np.ndarray, lanes: bool) -> list[float]:
    total = naive.sum_in_lanes if lanes else naive.sum_by_positions
    n = F(len(values))
    mean = F(total([float(v) for v in values])) / n
    d = [F(v - mean) for v in values]
    variance = F(total([float(v) for v in d], squares=True)) / n
    r = F(1) / np.sqrt(variance + F(EPSILON))
    return [naive.fma(float(F(v * r)), float(s), float(b)) for v, s, b in zip(d, scale, bias, strict=True)]


def test_layer_normalization() -> None:
    x, scale, bias = data(2, 5, 15), data(5, 15), data(5, 15) * F(2)
    got = apply("layer_normalization", x.shape, x, scale, bias, axis=1, epsilon=EPSILON)
    for row, values in zip(got, x, strict=True):
        expected = normalised(values.reshape(-1), scale.reshape(-1), bias.reshape(-1), lanes=True)
        assert row.tobytes() == np.array(expected, dtype=F).tobytes()


@pytest.mark.parametrize(("op", "groups"), [("instance_normalization", 4), ("group_normalization", 2)])
def test_group_and_instance_normalization(op: str, groups: int) -> None:
    x, scale, bias = data(1, 4, 9, 5), data(4), data(4) * F(2)
    attrs = {"num_groups": groups} if op == "group_normalization" else {}
    got = apply(op, x.shape, x, scale, bias, epsilon=EPSILON, **attrs).reshape(groups, -1)
    per_element = (np.repeat(v, 45).reshape(groups, -1) for v in (scale, bias))
    for row, values, s, b in zip(got, x.reshape(groups, -1), *per_element, strict=True):
        assert row.tobytes() == np.array(normalised(values, s, b, lanes=False), dtype=F).tobytes()


def test_batch_normalization() -> None:
    x, scale, bias, mean, variance = data(1, 3, 4), data(3), data(3) + F(1), data(3) + F(2), np.abs(data(3))
    got = apply("batch_normalization", x.shape, x, scale, bias, mean, variance, epsilon=EPSILON)
    for c in range(3):
        a = float(scale[c]) / float(np.sqrt(np.float64(variance[c]) + EPSILON))
        b = float(bias[c]) - float(mean[c]) * a
        expected = [naive.fma(float(v), float(F(a)), float(F(b))) for v in x[0, c]]
        assert got[0, c].tobytes() == np.array(expected, dtype=F).tobytes()


@settings(max_examples=300, deadline=None)
@given(st.fractions(0, 1, max_denominator=1 << 26) | st.integers(0, 1 << 25).map(lambda n: Fraction(n, 1 << 25)))
def test_weights_are_rounded_once(value: Fraction) -> None:
    assert int(np.asarray(nearest_binary(value, np.float32)).view(np.uint32)) == naive.round_to_binary32(value, False)


def test_a_weight_that_two_roundings_would_get_wrong() -> None:
    """Just above a binary32 tie, closer to it than half an ulp of binary64."""
    value = Fraction(1, 2) + Fraction(1, 2**25) + Fraction(1, 2**60)
    assert float(F(float(value))) == 0.5
    assert float(nearest_binary(value, np.float32)) == 0.5 + 2.0**-24


def test_source_coordinates_of_the_text() -> None:
    half, third = Fraction(1, 2), Fraction(1, 3)
    unit = (Fraction(0), Fraction(1))
    assert source_coordinate("half_pixel", 0, 4, 8, Fraction(2), unit) == -Fraction(1, 4)
    assert source_coordinate("half_pixel_symmetric", 0, 4, 5, Fraction(13, 10), unit) == (
        2 * (1 - 5 / Fraction(52, 10)) + half / Fraction(13, 10) - half
    )
    assert source_coordinate("pytorch_half_pixel", 0, 4, 1, Fraction(1, 4), unit) == 0
    assert source_coordinate("half_pixel", 0, 4, 1, Fraction(1, 4), unit) == Fraction(3, 2)
    assert source_coordinate("align_corners", 1, 2, 4, Fraction(2), unit) == third
    assert source_coordinate("asymmetric", 3, 4, 8, Fraction(2), unit) == Fraction(3, 2)
    assert source_coordinate("tf_half_pixel_for_nn", 0, 4, 8, Fraction(2), unit) == Fraction(1, 4)
    assert source_coordinate("tf_crop_and_resize", 0, 5, 1, Fraction(1), (half, Fraction(1))) == 3
