"""The vectorised sums against the same definition written out per output with rationals (ca1_naive.py)."""

from __future__ import annotations

import ca1_naive as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefNode
from evidence.reference.interpreter import evaluate
from evidence.reference.order import product_leaves, sum_lanes, sum_positions

CA1 = ARITHMETICS["ca1"]


def operand(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of very different size, some zeros, some tiny enough for subnormal products."""
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 13, shape)
    values[rng.random(shape) < 0.1] = 0
    if rng.random() < 0.3:
        values *= 2.0**-68
    return values.astype(np.float32)


@st.composite
def windows(
    draw: st.DrawFn, transposed: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, dict, tuple[int, ...]]:
    rank = draw(st.integers(1, 3))
    group = draw(st.sampled_from([1, 1, 1, 2]))
    per_group = draw(st.sampled_from([1, 2, 7, 8, 9, 12, 17]))
    columns = draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, {1: 13, 2: 4, 3: 2}[rank])) for _ in range(rank))
    size = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    attrs = {
        "group": group,
        "strides": [draw(st.integers(1, 3)) for _ in range(rank)],
        "dilations": [draw(st.integers(1, 2)) for _ in range(rank)],
        "pads": [draw(st.integers(0, 2)) for _ in range(2 * rank)],
    }
    out = []
    for i in range(rank):
        reach, pads = (kernel[i] - 1) * attrs["dilations"][i], attrs["pads"][i] + attrs["pads"][rank + i]
        if transposed:
            out.append(attrs["strides"][i] * (size[i] - 1) + reach + 1 - pads)
        else:
            out.append((size[i] + pads - reach - 1) // attrs["strides"][i] + 1)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    channels = group * per_group
    x = operand(rng, (1, channels, *size))
    w = operand(rng, (channels, columns, *kernel) if transposed else (group * columns, per_group, *kernel))
    b = operand(rng, (group * columns,)) if draw(st.booleans()) else None
    return x, w, b, attrs, tuple(out)


def usable(case: tuple) -> bool:
    x, w, _, _, out = case
    work = int(np.prod(w.shape[1:])) * x.shape[1] * int(np.prod(out))
    return min(out) >= 1 and max(out) <= 6 and work <= 20_000


@settings(max_examples=60, deadline=None)
@given(windows(transposed=False).filter(usable))
def test_conv_is_the_definition(case: tuple) -> None:
    x, w, b, attrs, out = case
    node = RefNode("conv", (), "y", (1, w.shape[0], *out), "float32", attrs)
    got = evaluate(CA1, node, [x, w] if b is None else [x, w, b])
    assert got.tobytes() == naive.conv(x, w, b, attrs, out).tobytes()


@settings(max_examples=60, deadline=None)
@given(windows(transposed=True).filter(usable))
def test_conv_transpose_is_the_definition(case: tuple) -> None:
    x, w, b, attrs, out = case
    node = RefNode("conv_transpose", (), "y", (1, w.shape[1] * attrs["group"], *out), "float32", attrs)
    got = evaluate(CA1, node, [x, w] if b is None else [x, w, b])
    assert got.tobytes() == naive.conv_transpose(x, w, b, attrs, out).tobytes()


@pytest.mark.parametrize("k", [0, 1, 7, 8, 64, 65, 71, 513, 577, 4200])
def test_gemm_matmul_and_1x1_conv_are_one_sum(k: int) -> None:
    rng = np.random.default_rng(k)
    a, b, c = operand(rng, (2, k)), operand(rng, (k, 2)), operand(rng, (2,))
    expected = np.zeros((2, 2), dtype=np.float32)
    bare = np.zeros((2, 2), dtype=np.float32)
    for i, j in np.ndindex(2, 2):

        def read(channel: int, _: int, i: int = i, j: int = j) -> tuple[float, float]:
            return float(a[i, channel]), float(b[channel, j])

        expected[i, j] = naive.sum_of_products(k, 1, read, float(c[j]))
        bare[i, j] = naive.sum_of_products(k, 1, read, 0.0)
    gemm = evaluate(CA1, RefNode("gemm", (), "y", (2, 2), "float32", {}), [a, b, c])
    conv = RefNode(
        "conv", (), "y", (2, 2, 1), "float32", {"group": 1, "strides": [1], "dilations": [1], "pads": [0, 0]}
    )
    as_conv = evaluate(CA1, conv, [a[:, :, None], np.ascontiguousarray(b.T)[:, :, None], c])[..., 0]
    matmul = evaluate(CA1, RefNode("matmul", (), "y", (2, 2), "float32", {}), [a, b])
    assert gemm.tobytes() == expected.tobytes() == as_conv.tobytes()
    assert matmul.tobytes() == bare.tobytes()


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 63, 64, 65, 200, 577, 1024, 1041, 1500, 4200])
@pytest.mark.parametrize("squares", [False, True])
def test_plain_sums_are_the_definition(count: int, squares: bool) -> None:
    values = operand(np.random.default_rng(count), (count,))
    numbers = [float(v) for v in values]
    assert float(sum_positions(values[:, None], squares)[0]) == naive.sum_by_positions(numbers, squares)
    assert float(sum_lanes(values[None], squares)[0]) == naive.sum_in_lanes(numbers, squares)


@pytest.mark.parametrize(
    ("channels", "positions", "sizes"),
    [
        (3, 9, [9, 9, 9]), (8, 9, [9] * 8), (20, 9, [72, 72, 36]), (16, 3, [48]), (16, 25, [72, 72, 56] * 2),
        (3, 49, [49, 49, 49]), (600, 1, [64] * 9 + [24]), (1, 9, [9]), (16, 27, [72, 72, 72] * 2), (7, 1, [7]),
        (2, 150, [72, 72, 6] * 2), (12, 4, [16] * 3), (24, 4, [64, 32]), (17, 25, [72, 72, 56] * 2 + [9, 9, 7]),
        (12, 3, [15, 15, 6]), (15, 1, [15]), (15, 9, [9] * 15), (16, 9, [72, 72]),
    ],
)  # fmt: skip
def test_leaf_sizes(channels: int, positions: int, sizes: list[int]) -> None:
    leaves = product_leaves(channels, positions)
    assert [len(leaf) for leaf in leaves] == sizes
    assert sorted(tap for leaf in leaves for tap in leaf) == [(c, p) for c in range(channels) for p in range(positions)]


def test_zero_sums_are_positive() -> None:
    """An underflowing negative product and a bias of -0 both end as +0."""
    x = np.full((1, 1, 1, 1), 2.0**-100, dtype=np.float32)
    node = RefNode("conv", (), "y", (1, 1, 1, 1), "float32", {"group": 1})
    for bias in ([], [np.array([-0.0], dtype=np.float32)]):
        assert evaluate(CA1, node, [x, -x, *bias]).tobytes() == bytes(4)
