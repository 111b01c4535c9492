"""Measured error of a convolution's forms: its own weights on seeded inputs, against binary64."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.arithmetic.order import RADIX, SumOrder, sum_order
from compiler_kernels.arithmetic.winograd import DIRECT, WINOGRAD, transformed_weights

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
SEED: Final = 20261130
EXTENT: Final = 8
OUTPUTS: Final = 16


def measured_errors(w: F32, form: str) -> dict[str, float]:
    """Root mean square error of ``direct`` and of ``form`` relative to that of the result, for ``w`` [M, C, k...].

    Inputs are 1 x C x (8 or 8x8 outputs' worth) rectified normal numbers of a fixed seed; at most 16 output channels,
    evenly chosen, are computed. The fused multiply-add is emulated as an exact product and a sum rounded to binary64
    and then to binary32, which differs from one rounding in about one step in 2^29.
    """
    chosen = w[np.unique(np.linspace(0, w.shape[0] - 1, OUTPUTS).astype(int))]
    kernel = w.shape[2:]
    extent = tuple(EXTENT + k - 1 for k in kernel)
    x = np.maximum(np.random.default_rng(SEED).standard_normal((w.shape[1], *extent)), 0).astype(np.float32)
    taps = _windows(x, kernel)
    exact = np.einsum("cpo,mcp->mo", taps.astype(np.float64), chosen.reshape(*chosen.shape[:2], -1).astype(np.float64))
    order = sum_order(w.shape[1], taps.shape[1])
    found = {
        DIRECT: _sums(order, taps, chosen.reshape(*chosen.shape[:2], -1)),
        form: _winograd(form, x, chosen),
    }
    scale = float(np.sqrt(np.mean(exact**2))) or 1.0
    return {name: float(np.sqrt(np.mean((y - exact) ** 2))) / scale for name, y in found.items()}


def _windows(x: F32, kernel: tuple[int, ...]) -> F32:
    """[channels, positions, outputs] of a stride-1 window without padding."""
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=tuple(range(1, x.ndim)))
    rank = len(kernel)
    axes = (0, *range(rank + 1, 2 * rank + 1), *range(1, rank + 1))
    return np.ascontiguousarray(view.transpose(axes)).reshape(x.shape[0], int(np.prod(kernel)), -1)


def _sums(order: SumOrder, x: F32, w: F32) -> F32:
    """Sums of products of ``x`` [C, P, outputs] and ``w`` [M, C, P] in ``order``: [M, outputs]."""
    values = []
    for leaf in order.leaf_taps():
        acc = np.zeros((w.shape[0], x.shape[2]), dtype=np.float32)
        for channel, position in leaf:
            product = w[:, channel, position, None].astype(np.float64) * x[channel, position].astype(np.float64)
            acc = (product + acc).astype(np.float32)
        values.append(acc)
    while len(values) > 1:
        nodes = []
        for first in range(0, len(values), RADIX):
            node = values[first]
            for child in values[first + 1 : first + RADIX]:
                node = node + child
            nodes.append(node)
        values = nodes
    return values[0]


def _inputs(d: list[F32]) -> list[F32]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _outputs(m: list[F32]) -> list[F32]:
    return [(m[0] + m[1]) + m[2], (m[1] - m[2]) - m[3]]


def _winograd(name: str, x: F32, w: F32) -> F32:
    """The Winograd form of ``w`` [M, C, k...] over ``x`` without padding: [M, outputs]."""
    form = WINOGRAD[name]
    u = transformed_weights(name, w)
    groups = form.groups(w.shape[2:])
    order = form.order(w.shape[1], w.shape[2:])
    half = EXTENT // 2
    if form.axes == 2:
        end = 2 * half
        down = [_inputs([x[:, i : i + end : 2, j : j + end : 2] for i in range(4)]) for j in range(4)]
        v = [value for a in range(4) for value in _inputs([down[j][a] for j in range(4)])]
        m = [_sums(order, v[p].reshape(x.shape[0], 1, -1), u[p]) for p in range(16)]
        under = [_outputs([m[4 * a + b] for a in range(4)]) for b in range(4)]
        rows = [_outputs([under[b][i] for b in range(4)]) for i in range(2)]
        grid = np.stack([np.stack(row, -1).reshape(-1, half, half, 2) for row in rows], 2)
        return grid.reshape(w.shape[0], -1)
    padded = np.pad(x, ((0, 0), (0, 3 * groups)))
    read = [
        np.stack([padded[:, 3 * g + i : 3 * g + i + 2 * half : 2] for g in range(groups)], axis=1) for i in range(4)
    ]
    m = [_sums(order, value, u[p]) for p, value in enumerate(_inputs(read))]
    return np.stack(_outputs(m), -1).reshape(w.shape[0], -1)
