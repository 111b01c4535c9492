"""Winograd forms of a convolution: names, transformed weights, order of the sums (docs/arithmetic.md, 3.6 to 3.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.arithmetic.order import SumOrder, sum_order

DIRECT: Final = "direct"
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Form:
    """``axes``: 2 for tiles of 2x2 outputs, 1 for pairs; ``leaf``: the number in the name."""

    axes: int
    leaf: int

    @property
    def products(self) -> int:
        """Positions of a tile, one sum each: 16 or 4."""
        return 16 if self.axes == 2 else 4

    def groups(self, kernel: Sequence[int]) -> int:
        """Groups of three taps along a line; a plane is one group."""
        return 1 if self.axes == 2 else -(-kernel[-1] // 3)

    def order(self, channels: int, kernel: Sequence[int]) -> SumOrder:
        """Order of each sum over (channel, group)."""
        return sum_order(channels, self.groups(kernel), self.leaf)


WINOGRAD: Final[Mapping[str, Form]] = {
    "W23/32": Form(2, 32),
    "W23/16": Form(2, 16),
    "W1-23/32": Form(1, 32),
    "W1-23/16": Form(1, 16),
}


def packing(name: str) -> str:
    """Name of the packed order of the transformed weights."""
    return name.lower().replace("-", "_").replace("/", "_")


def fits(name: str, kernel: Sequence[int]) -> bool:
    """Whether the form exists for a kernel of these spatial sizes."""
    form = WINOGRAD[name]
    return len(kernel) == form.axes and (form.axes == 1 or tuple(kernel) == (3, 3))


def _taps(g: list[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    return [g[0], ((g[0] + g[1]) + g[2]) * 0.5, ((g[0] - g[1]) + g[2]) * 0.5, g[2]]


def transformed_weights(name: str, w: Floats) -> Floats:
    """U of ``w`` [outputs, channels, kernel...] as [positions, outputs, channels, groups], rounded once from binary64.

    A result that is not finite stays so; the caller decides (a compiler refuses the name).
    """
    form = WINOGRAD[name]
    wide = w.astype(np.float64)
    with np.errstate(over="ignore"):
        if form.axes == 2:
            down = [_taps([wide[:, :, i, j] for i in range(3)]) for j in range(3)]
            rows = [_taps([down[j][a] for j in range(3)]) for a in range(4)]
            return np.stack([u for row in rows for u in row]).astype(np.float32)[..., None]
        groups = form.groups(w.shape[2:])
        padded = np.zeros((*w.shape[:2], 3 * groups))
        padded[:, :, : w.shape[2]] = wide
        return np.stack(_taps([padded[:, :, i::3] for i in range(3)])).astype(np.float32)
