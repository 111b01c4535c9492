"""``x[...]`` with constants: integers, slices, ``None``, ``...`` and one list of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_kernels.doors.functions.values import Array, Graph, NotPure, by_example, holds_array


def subscript(graph: Graph, array: Array, index: Any) -> Array:
    """The element or part of ``array``; ``NotPure`` where the data would decide which one."""
    if holds_array(index):
        raise NotPure(
            "indexes with an array computed from the data; use np.where to choose between values, or a constant index"
        )
    items = index if isinstance(index, tuple) else (index,)
    result = by_example(lambda a: a[index], (array,))
    lists = [i for i, item in enumerate(items) if isinstance(item, list | np.ndarray)]
    if lists:
        return _listed(graph, array, items, lists, result.shape)
    starts, ends, steps = [], [], []
    for size, item in zip(array.shape, _per_axis(items, array.ndim), strict=True):
        if isinstance(item, slice):
            start, stop, step = item.indices(size)
            if len(range(start, stop, step)) == 0:
                raise NotPure("is an empty array, which is not compiled; give a slice with elements")
            # ONNX reads a negative end from the back; "before the first" is the smallest integer
            ends.append(stop if stop >= 0 else np.iinfo(np.int64).min)
            starts.append(start)
            steps.append(step)
        else:
            place = int(item) % size
            starts.append(place)
            ends.append(place + 1)
            steps.append(1)
    whole = [(0, size, 1) for size in array.shape]
    taken = array
    if list(zip(starts, ends, steps, strict=True)) != whole:
        shape = [len(range(a, b if b >= 0 else -1, c)) for a, b, c in zip(starts, ends, steps, strict=True)]
        inputs = [graph.constant(v, np.int64) for v in (starts, ends, list(range(array.ndim)), steps)]
        taken = graph.emit("Slice", [array.name, *inputs], shape, array.dtype, array)
    return graph.reshaped(taken, result.shape)


def _per_axis(items: tuple[Any, ...], rank: int) -> list[Any]:
    """One item for every axis of the array: ``...`` filled up, ``None`` left out."""
    used = sum(item is not None and item is not Ellipsis for item in items)
    axes: list[Any] = []
    for item in items:
        if item is Ellipsis:
            axes += [slice(None)] * (rank - used)
        elif isinstance(item, bool | np.bool_):
            raise NotPure("indexes with a truth value; use integers and slices")
        elif item is not None:
            axes.append(item)
    return axes + [slice(None)] * (rank - len(axes))


def _listed(graph: Graph, array: Array, items: tuple[Any, ...], lists: list[int], shape: tuple[int, ...]) -> Array:
    """``x[..., [2, 1, 0]]``: one list, everything else whole axes."""
    others = [item for i, item in enumerate(items) if i not in lists]
    numbers = np.asarray(items[lists[0]])
    if len(lists) > 1 or numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise NotPure("indexes with more than one list, or not with integers; use one list of integers")
    if any(item is not Ellipsis and item != slice(None) for item in others):
        raise NotPure("mixes a list with other indices; take the list in an expression of its own")
    marked = [item if i not in lists else "here" for i, item in enumerate(items)]
    axis = _per_axis(tuple(marked), array.ndim).index("here")
    places = graph.constant(numbers % array.shape[axis], np.int64)
    return graph.emit("Gather", [array.name, places], shape, array.dtype, axis=axis)
