"""One item of a data set, by digests: of its bytes, of its pixels, and of how it looks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compiler_kernels.stage import Json
from evidence.keygen.key import framed

Array = npt.NDArray[Any]
PIXELS_FORMAT: Final = "cuvil-pixels/1"
ROWS, COLUMNS = 8, 9
"""Areas of the perceptual hash: each of the 8 x 8 bits compares an area with its right neighbour."""


@dataclass(frozen=True)
class Item:
    """``content``: SHA-256 of a file's bytes, empty for a row of an array. ``pixels``: SHA-256, empty where there are
    none that can be read. ``perceptual``: 16 hex digits, empty for what is no picture of at least 8 x 9 pixels."""

    id: str
    content: str = ""
    pixels: str = ""
    perceptual: str = ""

    def to_json(self) -> dict[str, Json]:
        found = {"content": self.content, "pixels": self.pixels, "perceptual": self.perceptual}
        return {"id": self.id, **{key: value for key, value in found.items() if value}}


def plain_pixels(pixels: Array) -> Array:
    """``pixels`` in the form that is hashed: no axes of length 1, no equal colour channels, little-endian, C order."""
    plain = pixels.squeeze()
    if plain.ndim == 3 and plain.shape[-1] == 3 and bool((plain == plain[..., :1]).all()):
        plain = plain[..., 0]
    return np.ascontiguousarray(plain, dtype=plain.dtype.newbyteorder("<"))


def pixel_digest(plain: Array) -> str:
    """SHA-256 over format, element type, shape and elements of what ``plain_pixels`` gave."""
    shape = "x".join(map(str, plain.shape))
    parts = (PIXELS_FORMAT.encode(), plain.dtype.name.encode(), shape.encode(), plain.tobytes())
    return hashlib.sha256(b"".join(framed(part) for part in parts)).hexdigest()


def perceptual_hash(plain: Array) -> str:
    """Difference hash: whether each of 8 x 8 areas is darker than the one to its right; empty where there is none.

    A picture is two-dimensional, or has 3 or 4 channels last, which are added. Means of integers are compared exactly.
    """
    picture = plain
    if picture.ndim == 3 and picture.shape[-1] in (3, 4):
        picture = picture[..., :3].astype(np.int64 if picture.dtype.kind in "iub" else np.float64).sum(axis=-1)
    if picture.ndim != 2 or picture.shape[0] < ROWS or picture.shape[1] < COLUMNS:
        return ""
    values = picture.astype(np.int64 if picture.dtype.kind in "iub" else np.float64)
    rows = [i * picture.shape[0] // ROWS for i in range(ROWS)]
    columns = [i * picture.shape[1] // COLUMNS for i in range(COLUMNS)]
    sums = np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1)
    widths = np.diff([*columns, picture.shape[1]])
    darker = sums[:, :-1] * widths[1:] < sums[:, 1:] * widths[:-1]
    return np.packbits(darker).tobytes().hex()


def array_items(array: Array) -> Iterator[Item]:
    """One item for each row of ``array`` (first axis), numbered from 0."""
    for index, row in enumerate(array):
        plain = plain_pixels(row)
        yield Item(f"row {index}", pixels=pixel_digest(plain), perceptual=perceptual_hash(plain))


def file_item(name: str, data: bytes, pixels: Array | None) -> Item:
    """The item of a file; ``pixels`` where they could be read."""
    content = hashlib.sha256(data).hexdigest()
    if pixels is None or pixels.size == 0:
        return Item(name, content)
    plain = plain_pixels(pixels)
    return Item(name, content, pixel_digest(plain), perceptual_hash(plain))
