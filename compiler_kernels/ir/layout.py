"""Physical layouts after the freeze. A layout says where an element lies; it never changes what the element is.

``""``               plain row-major.
``c16 h [w...]``     activations N, C, spatial: ``[N][C/16][spatial + 2 halo][16]``, one halo width per spatial axis;
                     halo and padded channels hold +0 whenever the value is readable.
``planar h [w...]``  ``[N][C][spatial + 2 halo]``, for fewer than 8 channels.
``packed NAME n``    constants in a kernel family's own order, ``n`` elements (weights only).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """A parsed layout of a tensor of known shape."""

    kind: str
    shape: tuple[int, ...]
    halo: tuple[int, ...]
    packed: int = 0

    @property
    def blocks(self) -> int:
        """Channel blocks of 16 (``c16`` only)."""
        return -(-self.shape[1] // BLOCK)

    @property
    def spatial(self) -> tuple[int, ...]:
        """Spatial extents with their halo."""
        return tuple(s + 2 * h for s, h in zip(self.shape[2:], self.halo, strict=True))

    @property
    def elements(self) -> int:
        """Floats the tensor occupies in memory."""
        if self.kind == "plain":
            return prod(self.shape)
        if self.kind == "packed":
            return self.packed
        if self.kind == "planar":
            return self.shape[0] * self.shape[1] * prod(self.spatial)
        return self.shape[0] * self.blocks * prod(self.spatial) * BLOCK

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides in floats: batch, channel block (``planar``: channel), then each spatial axis."""
        lane = BLOCK if self.kind == "c16" else 1
        spatial = self.spatial
        inner = [lane * prod(spatial[a + 1 :]) for a in range(len(spatial))]
        channel = lane * prod(spatial)
        groups = self.blocks if self.kind == "c16" else self.shape[1]
        return (channel * groups, channel, *inner)

    @property
    def origin(self) -> int:
        """Offset in floats of spatial position 0, behind the leading halo."""
        return sum(h * s for h, s in zip(self.halo, self.steps[2:], strict=True))


def parse_layout(layout: str, shape: Sequence[int]) -> Layout:
    """The layout of a tensor; ``ValueError`` when the text is not a layout or does not fit the shape."""
    dims = tuple(shape)
    if not layout:
        return Layout("plain", dims, ())
    kind, *numbers = layout.split(" ")
    if kind == "packed" and len(numbers) == 2 and numbers[1].isdigit():
        return Layout(kind, dims, (), int(numbers[1]))
    if kind in ("c16", "planar") and all(n.isdigit() for n in numbers) and len(numbers) == len(dims) - 2 >= 1:
        return Layout(kind, dims, tuple(int(n) for n in numbers))
    raise ValueError(f"{layout!r} is not a layout of a tensor of rank {len(dims)}")


def c16(halo: Sequence[int]) -> str:
    """Text of the blocked layout with the given halo per spatial axis."""
    return " ".join(["c16", *map(str, halo)])


def planar(halo: Sequence[int]) -> str:
    return " ".join(["planar", *map(str, halo)])


def packed(name: str, elements: int) -> str:
    """Text of a constant's own order; ``name`` without spaces."""
    return f"packed {name} {elements}"
