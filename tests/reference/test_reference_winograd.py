"""The Winograd forms of the reference against docs/arithmetic.md 3.6 to 3.9, written out one output at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ca1_naive import add, fma, tree

from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.errors import ReferenceError
from evidence.reference.graph import RefNode
from evidence.reference.products import conv
from evidence.reference.vectors import expected_output, load_vectors

VECTORS = {v.name: v for v in load_vectors(Path(__file__).parents[2] / "docs" / "vectors" / "ca1.json")}
Read = Callable[[int, int], tuple[float, float]]


def sub(x: float, y: float) -> float:
    return add(x, -y)


def from_taps(g: list[float]) -> list[float]:
    """Binary64; Python floats are that."""
    return [g[0], ((g[0] + g[1]) + g[2]) * 0.5, ((g[0] - g[1]) + g[2]) * 0.5, g[2]]


def from_values(d: list[float]) -> list[float]:
    return [sub(d[0], d[2]), add(d[1], d[2]), sub(d[2], d[1]), sub(d[1], d[3])]


def from_sums(m: list[float]) -> list[float]:
    return [add(add(m[0], m[1]), m[2]), sub(sub(m[1], m[2]), m[3])]


def sum_of(channels: int, groups: int, leaf: int, read: Read) -> float:
    """3.1 to 3.3 for up to 9 groups."""
    cb = 8 if channels >= 8 else 1
    blocks = [range(c, min(c + cb, channels)) for c in range(0, channels, cb)]
    per = max(1, leaf // (cb * groups))
    values = []
    for first in range(0, len(blocks), per):
        acc = 0.0
        for block in blocks[first : first + per]:
            for group in range(groups):
                for channel in block:
                    acc = fma(*read(channel, group), acc)
        values.append(acc)
    return tree(values)


def plane(x: Any, w: Any, b: Any, pads: list[int], leaf: int, out: tuple[int, ...]) -> Any:
    y = np.zeros(out, dtype=np.float32)
    channels, height, width = x.shape[1:]
    for n, m, r, c in np.ndindex(out[0], out[1], -(-out[2] // 2), -(-out[3] // 2)):
        v, u = [], []
        for k in range(channels):

            def at(i: int, j: int, n: int = n, k: int = k, r: int = r, c: int = c) -> float:
                row, column = 2 * r - pads[0] + i, 2 * c - pads[1] + j
                return float(x[n, k, row, column]) if 0 <= row < height and 0 <= column < width else 0.0

            columns = [from_values([at(i, j) for i in range(4)]) for j in range(4)]
            v.append([from_values([columns[j][a] for j in range(4)]) for a in range(4)])
            taps = [from_taps([float(w[m, k, i, j]) for i in range(3)]) for j in range(3)]
            u.append([[float(np.float32(t)) for t in from_taps([taps[j][a] for j in range(3)])] for a in range(4)])

        def read(k: int, _: int, a: int, e: int, v: list[Any] = v, u: list[Any] = u) -> tuple[float, float]:
            return v[k][a][e], u[k][a][e]

        sums = [[sum_of(channels, 1, leaf, partial(read, a=a, e=e)) for e in range(4)] for a in range(4)]
        under = [from_sums([sums[a][e] for a in range(4)]) for e in range(4)]
        for i in range(2):
            for j, value in enumerate(from_sums([under[e][i] for e in range(4)])):
                if 2 * r + i < out[2] and 2 * c + j < out[3]:
                    y[n, m, 2 * r + i, 2 * c + j] = add(value, float(b[m]))
    return y


def line(x: Any, w: Any, b: Any, pads: list[int], leaf: int, out: tuple[int, ...]) -> Any:
    y = np.zeros(out, dtype=np.float32)
    channels, length = x.shape[1:]
    taps, groups = w.shape[2], -(-w.shape[2] // 3)
    for n, m, t in np.ndindex(out[0], out[1], -(-out[2] // 2)):

        def read(k: int, g: int, position: int, n: int = n, m: int = m, t: int = t) -> tuple[float, float]:
            places = [2 * t - pads[0] + 3 * g + i for i in range(4)]
            d = [float(x[n, k, p]) if 0 <= p < length else 0.0 for p in places]
            kernel = [float(w[m, k, 3 * g + i]) if 3 * g + i < taps else 0.0 for i in range(3)]
            return from_values(d)[position], float(np.float32(from_taps(kernel)[position]))

        sums = [sum_of(channels, groups, leaf, partial(read, position=j)) for j in range(4)]
        for i, value in enumerate(from_sums(sums)):
            if 2 * t + i < out[2]:
                y[n, m, 2 * t + i] = add(value, float(b[m]))
    return y


@pytest.mark.parametrize(
    ("form", "x", "w", "pads"),
    [
        ("W23/32", (1, 37, 3, 4), (2, 37, 3, 3), [1, 1, 1, 1]),
        ("W23/16", (2, 20, 4, 3), (1, 20, 3, 3), [0, 2, 1, 0]),
        ("W23/16", (1, 150, 2, 2), (1, 150, 3, 3), [1, 1, 1, 1]),
        ("W23/32", (1, 5, 3, 3), (2, 5, 3, 3), [0, 0, 0, 0]),
        ("W1-23/32", (1, 17, 7), (2, 17, 15), [7, 7]),
        ("W1-23/16", (2, 9, 6), (2, 9, 7), [1, 3]),
        ("W1-23/32", (1, 40, 5), (2, 40, 3), [1, 1]),
    ],
)
def test_bits_are_those_of_the_text(form: str, x: tuple[int, ...], w: tuple[int, ...], pads: list[int]) -> None:
    rng = np.random.default_rng(len(form) + x[1])
    xs, ws, b = (rng.standard_normal(s).astype(np.float32) for s in (x, w, (w[0],)))
    rank = len(w) - 2
    out = (x[0], w[0], *(x[2 + i] + pads[i] + pads[rank + i] - w[2 + i] + 1 for i in range(rank)))
    node = RefNode("conv", (), "y", out, "float32", {"pads": pads, "arithmetic": form})
    naive = (plane if rank == 2 else line)(xs, ws, b, pads, int(form.partition("/")[2]), out)
    assert conv(ARITHMETICS["ca1"], node, xs, ws, b).tobytes() == naive.tobytes()


@pytest.mark.parametrize("form", ["W23/32", "W1-23/16", "W23/8", "W43/32", "winograd"])
def test_a_form_of_another_shape_is_refused(form: str) -> None:
    """A 5x5 kernel has none of them."""
    x, w = np.zeros((1, 8, 9, 9), np.float32), np.zeros((1, 8, 5, 5), np.float32)
    node = RefNode("conv", (), "y", (1, 1, 5, 5), "float32", {"arithmetic": form})
    with pytest.raises(ReferenceError, match="no form"):
        conv(ARITHMETICS["ca1"], node, x, w)


@pytest.mark.parametrize("name", ["conv_w23_32_nan_and_infinities", "conv_w1_23_32_nan_and_infinities"])
def test_special_values_reach_their_tiles_only(name: str) -> None:
    """An output whose tile reads no special value is a number, close to that of the direct form."""
    vector = VECTORS[name]
    parts = vector.onnx_model_parts()
    x, w = parts.graph_inputs["x"], parts.initializers["w"]
    pads = list(vector.attributes["pads"])
    node = RefNode("conv", (), "y", vector.expected.shape, "float32", {"pads": pads})
    with np.errstate(all="ignore"):
        direct = conv(ARITHMETICS["ca1"], node, x, w)
    got = expected_output(vector)
    assert np.all(~np.isfinite(got[~np.isfinite(direct)]))
    spread = np.zeros(got.shape[2:], dtype=bool)
    reach = 4 if w.ndim == 4 else 3 * -(-w.shape[2] // 3) + 1
    for place in np.argwhere(~np.isfinite(x)):
        low = [(p + pads[0] - reach + 1) // 2 * 2 for p in place[2:]]
        spread[tuple(slice(max(0, a), p + pads[0] + 2) for a, p in zip(low, place[2:], strict=True))] = True
    assert not spread.all()
    np.testing.assert_allclose(got[:, :, ~spread], direct[:, :, ~spread], rtol=1e-5, atol=1e-6)
