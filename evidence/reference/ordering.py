"""Ordering, scanning and counting elements (docs/arithmetic.md, section 14)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode


def _ranks(x: Array) -> Array:
    """Whole numbers in the order of the values: NaN above all, -0 as +0, equal values alike."""
    flat = x.reshape(-1)
    if x.dtype.kind == "f":
        flat = np.where(flat == 0, flat.dtype.type(0), flat)
    return np.unique(flat, return_inverse=True, equal_nan=True)[1].reshape(x.shape).astype(np.int64)


def topk_indices(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """The first k places in descending (ascending) order; of equal values the lower index comes first."""
    axis, ranks = int(node.attrs["axis"]), _ranks(x)
    order = np.argsort(-ranks if node.attrs["largest"] else ranks, axis=axis, kind="stable")
    return np.ascontiguousarray(order.take(range(int(node.attrs["k"])), axis=axis))


def _arg(largest: bool) -> Callable[..., Array]:
    def operator(ar: Arithmetic, node: RefNode, x: Array) -> Array:
        """Index of the extreme element, NaN before any number; the first of equal ones, or the last."""
        axis, ranks = int(node.attrs["axis"]), _ranks(x)
        goodness = ranks if largest else -ranks
        if x.dtype.kind == "f":
            goodness = np.where(np.isnan(x), x.size, goodness)
        if node.attrs["select_last"]:
            found = x.shape[axis] - 1 - np.argmax(np.flip(goodness, axis), axis=axis)
        else:
            found = np.argmax(goodness, axis=axis)
        return np.asarray(np.expand_dims(found, axis) if node.attrs["keepdims"] else found)

    return operator


def _running(start: int, function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def operator(ar: Arithmetic, node: RefNode, x: Array) -> Array:
        """Each element combined with the result for those before it; exclusive: the result before it."""
        axis = int(node.attrs["axis"])
        lines = np.moveaxis(x, axis, 0)
        lines = lines[::-1] if node.attrs["reverse"] else lines
        result = np.empty_like(lines)
        total = np.full(lines.shape[1:], start, dtype=x.dtype)
        for i, line in enumerate(lines):
            following = line if i == 0 else function(total, line)
            result[i] = total if node.attrs["exclusive"] else following
            total = np.asarray(following, dtype=x.dtype)
        result = result[::-1] if node.attrs["reverse"] else result
        return np.ascontiguousarray(np.moveaxis(result, 0, axis))

    return operator


def nonzero(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Coordinates in row-major order, one row per axis, then zeros up to the number of elements."""
    found = np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)
    result = np.zeros((found.shape[0], x.size), dtype=np.int64)
    result[:, : found.shape[1]] = found
    return result


def count_nonzero(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    return np.asarray(np.count_nonzero(x), dtype=np.int64)


def sort_rows(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Ascending order of the rows, compared element after element; of equal rows the lower index comes first."""
    return np.lexsort(tuple(_ranks(x[:, c]) for c in reversed(range(x.shape[1])))).astype(np.int64)


def compact(ar: Arithmetic, node: RefNode, x: Array, sizes: Array) -> Array:
    """The elements inside ``sizes`` one after another, then zeros (of bits)."""
    result = np.zeros(x.size, dtype=x.dtype)
    kept = x[tuple(slice(int(n)) for n in sizes)].reshape(-1)
    result[: kept.size] = kept
    return result.reshape(x.shape)


def max_pool_indices(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """Where the maximum of each window lies in all of x, row-major or first spatial axis fastest; -1 for no element."""
    spatial, rank = x.shape[2:], x.ndim - 2
    steps, dilations, pads = node.attrs["strides"], node.attrs["dilations"], node.attrs["pads"]
    plane = int(np.prod(spatial))
    result = np.empty(node.shape, dtype=np.int64)
    for place in np.ndindex(node.shape):
        best, best_at = None, -1
        for offsets in product(*map(range, node.attrs["kernel"])):
            at = [place[2 + a] * steps[a] - pads[a] + offsets[a] * dilations[a] for a in range(rank)]
            if any(not 0 <= p < n for p, n in zip(at, spatial, strict=True)):
                continue
            value = x[(*place[:2], *at)]
            if best is None or value > best or (np.isnan(value) and not np.isnan(best)):
                sizes = spatial[::-1] if node.attrs["column_major"] else spatial
                where = at[::-1] if node.attrs["column_major"] else at
                best, best_at = value, int(np.ravel_multi_index(where, sizes))
        first = (place[0] * x.shape[1] + place[1]) * plane
        result[place] = first + best_at if best is not None else -1
    return result


def _corners(box: Array, center: bool) -> tuple[Array, Array]:
    """Lower and upper corner of a box as (x, y)."""
    if center:
        half = box[2:] / box.dtype.type(2)
        return box[:2] - half, box[:2] + half
    a, b = box[1::-1], box[:1:-1]
    swap = a >= b
    return np.where(swap, b, a), np.where(swap, a, b)


def _overlaps(a: Array, b: Array, center: bool, threshold: np.floating) -> bool:
    (low_a, high_a), (low_b, high_b) = _corners(a, center), _corners(b, center)
    low, high = np.where(low_b > low_a, low_b, low_a), np.where(high_b < high_a, high_b, high_a)
    if (high <= low).any():
        return False
    sides = high - low
    both = sides[0] * sides[1]
    areas = [(top - bottom)[0] * (top - bottom)[1] for bottom, top in ((low_a, high_a), (low_b, high_b))]
    either = (areas[0] + areas[1]) - both
    if both <= 0 or areas[0] <= 0 or areas[1] <= 0 or either <= 0:
        return False
    return bool(both / either > threshold)


def non_max_suppression(
    ar: Arithmetic,
    node: RefNode,
    boxes: Array,
    scores: Array,
    order: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    lowest: Array | None = None,
) -> Array:
    """Per class the boxes kept, in order; a box is kept unless one kept before it overlaps it by more than allowed."""
    center, limit = bool(node.attrs["center_point"]), int(node.attrs["limit"])
    wanted = limit if most is None else min(limit, int(most.reshape(-1)[0]))
    threshold = boxes.dtype.type(0) if overlap is None else overlap.reshape(-1)[0]
    result = np.full(node.shape, -1, dtype=np.int64)
    for b, c in np.ndindex(scores.shape[:2]):
        kept: list[int] = []
        for box in order[b, c]:
            if len(kept) >= wanted:
                break
            if lowest is not None and not scores[b, c, box] > lowest.reshape(-1)[0]:
                continue
            if not any(_overlaps(boxes[b, box], boxes[b, other], center, threshold) for other in kept):
                kept.append(int(box))
        result[b, c, : len(kept)] = kept
    return result


ORDERING: dict[str, Callable[..., Array]] = {
    "topk_indices": topk_indices,
    "arg_max": _arg(True),
    "arg_min": _arg(False),
    "cum_sum": _running(0, np.add),
    "cum_prod": _running(1, np.multiply),
    "nonzero": nonzero,
    "count_nonzero": count_nonzero,
    "sort_rows": sort_rows,
    "compact": compact,
    "max_pool_indices": max_pool_indices,
    "non_max_suppression": non_max_suppression,
}
"""Operators of any element type that can be ordered or counted."""
