"""The Winograd forms of a convolution (docs/arithmetic.md, 3.6 to 3.9), without the bias."""

from __future__ import annotations

from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.errors import ReferenceError
from evidence.reference.graph import RefNode

LEAVES = {"32": 32, "16": 16}


def winograd(ar: Arithmetic, node: RefNode, form: str, x: Array, w: Array) -> Array:
    """``form`` of ``x [N, C, (H,) W]`` and ``w [M, C, (3,) k]``; :class:`ReferenceError` if it does not exist."""
    family, _, leaf = form.partition("/")
    rank = w.ndim - 2
    plain = (
        int(node.attrs.get("group", 1)) == 1
        and all(int(v) == 1 for key in ("strides", "dilations") for v in node.attrs.get(key) or [1] * rank)
        and leaf in LEAVES
    )
    pads = [int(p) for p in node.attrs.get("pads") or [0] * (2 * rank)]
    if plain and family == "W23" and rank == 2 and w.shape[2:] == (3, 3):
        return _plane(ar, x, w, pads, LEAVES[leaf], node.shape)
    if plain and family == "W1-23" and rank == 1:
        return _line(ar, x, w, pads, LEAVES[leaf], node.shape)
    raise ReferenceError(f"node {node.node!r}: a convolution with kernel {list(w.shape[2:])} has no form {form!r}")


def _weights(g: list[Array]) -> list[Array]:
    """Three taps, binary64, to four values."""
    half = np.float64(0.5)
    return [g[0], ((g[0] + g[1]) + g[2]) * half, ((g[0] - g[1]) + g[2]) * half, g[2]]


def _inputs(d: list[Array]) -> list[Array]:
    """Four values of x, binary32, to four values."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _outputs(m: list[Array]) -> list[Array]:
    """Four sums, binary32, to two outputs."""
    return [(m[0] + m[1]) + m[2], (m[1] - m[2]) - m[3]]


def _once(exact: Array) -> Array:
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    if not np.all(np.isfinite(rounded)):
        raise ReferenceError("a transformed weight is not finite; the Winograd form refuses it")
    return rounded


def _plane(ar: Arithmetic, x: Array, w: Array, pads: list[int], leaf: int, shape: tuple[int, ...]) -> Array:
    batch, channels, height, width = x.shape
    rows, columns = -(-shape[2] // 2), -(-shape[3] // 2)
    padded = np.zeros(
        (batch, channels, max(2 * rows + 2, height + pads[0]), max(2 * columns + 2, width + pads[1])), "f4"
    )
    padded[:, :, pads[0] : pads[0] + height, pads[1] : pads[1] + width] = x
    wide = w.astype(np.float64)
    # taps[a][b]: first along the height (a), then along the width (b); the same nesting for values and sums
    down = [_weights([wide[:, :, i, j] for i in range(3)]) for j in range(3)]
    taps = [_weights([down[j][a] for j in range(3)]) for a in range(4)]
    result = np.empty((batch, w.shape[0], 2 * rows, 2 * columns), dtype=np.float32)
    for n in range(batch):

        def piece(i: int, j: int, n: int = n) -> Array:
            found: Any = padded[n, :, i : i + 2 * rows : 2, j : j + 2 * columns : 2]
            return np.asarray(found)

        below = [_inputs([piece(i, j) for i in range(4)]) for j in range(4)]
        values = [_inputs([below[j][a] for j in range(4)]) for a in range(4)]
        sums = [
            [
                ar.product_sum(
                    values[a][b].reshape(1, channels, rows * columns), _once(taps[a][b]).T[None], channels, 1, leaf
                ).reshape(-1, rows, columns)
                for b in range(4)
            ]
            for a in range(4)
        ]
        under = [_outputs([sums[a][b] for a in range(4)]) for b in range(4)]
        for i in range(2):
            for j, y in enumerate(_outputs([under[b][i] for b in range(4)])):
                result[n, :, i::2, j::2] = y
    return result[:, :, : shape[2], : shape[3]]


def _line(ar: Arithmetic, x: Array, w: Array, pads: list[int], leaf: int, shape: tuple[int, ...]) -> Array:
    batch, channels, length = x.shape
    groups, pairs = -(-w.shape[2] // 3), -(-shape[2] // 2)
    padded = np.zeros((batch, channels, max(2 * pairs + 3 * groups, length + pads[0])), dtype=np.float32)
    padded[:, :, pads[0] : pads[0] + length] = x
    wide = np.zeros((w.shape[0], channels, 3 * groups), dtype=np.float64)
    wide[:, :, : w.shape[2]] = w
    taps = _weights([wide[:, :, i::3] for i in range(3)])
    result = np.empty((batch, w.shape[0], 2 * pairs), dtype=np.float32)
    for n in range(batch):
        read = [
            np.stack([padded[n, :, 3 * g + i : 3 * g + i + 2 * pairs : 2] for g in range(groups)], axis=1)
            for i in range(4)
        ]
        sums = [
            ar.product_sum(
                value.reshape(1, channels * groups, pairs),
                _once(tap).reshape(1, -1, channels * groups).transpose(0, 2, 1), channels, groups, leaf,
            )[0]
            for value, tap in zip(_inputs(read), taps, strict=True)
        ]  # fmt: skip
        for j, y in enumerate(_outputs(sums)):
            result[n, :, j::2] = y
    return result[:, :, : shape[2]]
