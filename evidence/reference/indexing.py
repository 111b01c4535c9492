"""Reading and writing by run-time indices (docs/arithmetic.md, section 14). Operators of any element type."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.errors import ReferenceError
from evidence.reference.graph import RefNode
from evidence.reference.order import first_max, first_min


def _read_places(indices: Array, size: int) -> Array:
    """Negative indices count from the end; outside the axis the nearest element is read."""
    wide = indices.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1)


def _write_place(index: int, size: int) -> int | None:
    """Negative indices count from the end; outside the axis nothing is written."""
    place = index + size if index < 0 else index
    return place if 0 <= place < size else None


def gather(ar: Arithmetic, node: RefNode, x: Array, indices: Array) -> Array:
    """``axis`` of x replaced by the axes of the indices."""
    axis = int(node.attrs["axis"])
    return np.asarray(np.take(x, _read_places(indices, x.shape[axis]), axis=axis))


def gather_elements(ar: Arithmetic, node: RefNode, x: Array, indices: Array) -> Array:
    """Element c of the result is x at c, but for ``axis``, where the index at c says."""
    axis = int(node.attrs["axis"])
    within = tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))
    return np.asarray(np.take_along_axis(x[within], _read_places(indices, x.shape[axis]), axis=axis))


def gather_nd(ar: Arithmetic, node: RefNode, x: Array, indices: Array) -> Array:
    """Each index tuple addresses a slice of x within its batch."""
    batch = int(node.attrs["batch_dims"])
    depth = indices.shape[-1]
    result = np.empty((*indices.shape[:-1], *x.shape[batch + depth :]), dtype=x.dtype)
    for place in np.ndindex(indices.shape[:-1]):
        tuple_ = [int(_read_places(i, x.shape[batch + d])) for d, i in enumerate(indices[place])]
        result[place] = x[(*place[:batch], *tuple_)]
    return result


def _combined(reduction: str, old: Array, new: Array) -> Array:
    if reduction == "none":
        return new
    functions: dict[str, Callable[[Array, Array], Array]] = {
        "add": np.add, "mul": np.multiply, "max": first_max, "min": first_min,
    }  # fmt: skip
    if reduction not in functions:
        raise ReferenceError(f"reduction {reduction!r} is not defined")
    with np.errstate(all="ignore"):
        return np.asarray(functions[reduction](old, new), dtype=old.dtype)


def scatter_elements(ar: Arithmetic, node: RefNode, x: Array, indices: Array, updates: Array) -> Array:
    """Updates in row-major order of the indices, each applied to what the ones before it left."""
    axis, reduction = int(node.attrs["axis"]), str(node.attrs["reduction"])
    y = x.copy()
    for place in product(*map(range, indices.shape)):
        index = _write_place(int(indices[place]), x.shape[axis])
        if index is not None:
            target = (*place[:axis], index, *place[axis + 1 :])
            y[target] = _combined(reduction, y[target], updates[place])
    return y


def scatter_nd(ar: Arithmetic, node: RefNode, x: Array, indices: Array, updates: Array) -> Array:
    """Slices in row-major order of the index tuples, each applied to what the ones before it left."""
    y, reduction = x.copy(), str(node.attrs["reduction"])
    for place in np.ndindex(indices.shape[:-1]):
        target = tuple(_write_place(int(i), x.shape[d]) for d, i in enumerate(indices[place]))
        if None not in target:
            y[target] = _combined(reduction, y[target], updates[place])
    return y


def tensor_scatter(ar: Arithmetic, node: RefNode, x: Array, update: Array, first: Array | None = None) -> Array:
    """The update along ``axis`` from the first position of its batch entry on, wrapped around where circular."""
    axis, size = int(node.attrs["axis"]), x.shape[int(node.attrs["axis"])]
    y = x.copy()
    for b in range(x.shape[0]):
        into, source = np.moveaxis(y[b], axis - 1, 0), np.moveaxis(update[b], axis - 1, 0)
        start = 0 if first is None else int(first[b])
        for t, line in enumerate(source):
            at = (start + t) % size if node.attrs["mode"] == "circular" else start + t
            if 0 <= at < size:
                into[at] = line
    return y


INDEXING: dict[str, Callable[..., Array]] = {
    "gather": gather,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
    "tensor_scatter": tensor_scatter,
}
