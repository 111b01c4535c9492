"""The frozen test set: items, labels, and how an item becomes the input of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler_kernels.errors import UsageError
from compiler_kernels.policy.recertification import Layout
from evidence.dataset.items import array_items, pixel_digest, plain_pixels
from evidence.dataset.manifest import manifest_of
from evidence.dataset.sources import read_array

Array = NDArray[Any]


@dataclass(frozen=True)
class TestSet:
    """``items``: one array a row. ``labels``: one whole number each. The digests name both in a policy."""

    items: Array
    labels: Array
    manifest_sha256: str
    labels_sha256: str


def read_test_set(data: str, labels: str) -> TestSet:
    """Read ``FILE.npz:ARRAY`` or ``.npy``, images and labels. ``UsageError`` for what does not belong together.

    Labels are whole numbers, one an item, and may have axes of length 1.
    """
    items, found = read_array(data), read_array(labels, least_axes=1)
    flat = found.reshape(len(found), -1)
    if flat.shape != (len(items), 1) or found.dtype.kind not in "iub":
        raise UsageError(
            f"{labels}: is {found.dtype} {list(found.shape)}; give one whole number for each of {len(items)} items"
        )
    if not len(items):
        raise UsageError(f"{data}: holds no item; give a test set")
    manifest = manifest_of(list(array_items(items))).sha256
    return TestSet(items, flat[:, 0].astype(np.int64), manifest, labels_digest(found))


def labels_digest(labels: Array) -> str:
    """SHA-256 of labels as of pixels (docs/dataset.md), as 64-bit integers: their element type does not count."""
    return pixel_digest(plain_pixels(labels.reshape(-1).astype(np.int64)))


def prepare(item: Array, shape: Sequence[int | str], dtype: str, divide_by: float, layout: Layout) -> Array:
    """One item as the input of an engine: cast, divided, channels moved, axes of length 1 added or dropped.

    ``shape``: sizes; the name of an open axis takes the item's, where axes of length 1 are only added in front.

    The cast must keep every value. ``UsageError`` where the sizes do not fit: nothing is resampled or cropped.
    """
    moved = np.moveaxis(item, -1, 0) if layout == "channels_last" and item.ndim > 1 else item
    sizes = [n for n in shape if isinstance(n, int)]
    fits = [n for n in moved.shape if n != 1] == [n for n in sizes if n != 1]
    if len(sizes) < len(shape):
        own = [1] * (len(shape) - moved.ndim) + list(moved.shape)
        fits = len(own) == len(shape) and all(isinstance(w, str) or w == n for n, w in zip(own, shape, strict=True))
        sizes = own
    if not fits:
        raise UsageError(
            f"an item of shape {list(item.shape)} does not fit the engine's input {list(shape)}; resample it, or state "
            "layout channels_last where the last axis counts channels"
        )
    wanted = np.dtype(dtype)
    with np.errstate(all="ignore"):
        cast = moved.astype(wanted)
        kept = np.array_equal(cast.astype(moved.dtype), moved, equal_nan=moved.dtype.kind == "f")
        if not kept or (moved.dtype.kind == "f" and wanted.kind != "f"):
            raise UsageError(f"items of {item.dtype} lose values as {dtype}, the engine's input; store them as {dtype}")
        if divide_by != 1:
            if wanted.kind != "f":
                raise UsageError(f"divide_by needs an input of floating-point numbers, and the engine's is {dtype}")
            cast = cast / wanted.type(divide_by)
    return np.ascontiguousarray(cast.reshape(sizes))
