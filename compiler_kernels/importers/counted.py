"""Which axis of a result has a size that depends on the data, given operands with such an axis (bound and count).

Operations that treat every element or every slice along the axis by itself keep it; whatever would mix elements along
it with the unused room behind them is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final

from compiler_kernels.importers.node import Node
from compiler_kernels.ir.graph import Attr, TensorType
from compiler_kernels.passes.fuse import ELEMENTWISE

if TYPE_CHECKING:
    from compiler_kernels.importers.context import Tensor

Operands = Sequence["Tensor | None"]
_REDUCTIONS: Final = frozenset("reduce_sum reduce_mean reduce_max reduce_min".split())


def counted_result(
    at: Node, kind: str, operands: Operands, attrs: Mapping[str, Attr], result: TensorType
) -> tuple[Tensor | None, int]:
    """The count and the axis of the result; ``UnsupportedError`` naming the node where there is no rule."""
    found = [t for t in operands if t is not None and t.count is not None]
    count = found[0].count
    if any(t.count is not count for t in found):
        at.unsupported("joins tensors whose sizes depend on the data in different ways")
    axis = _axis(kind, operands, attrs, result)
    if axis is None:
        at.unsupported(
            f"computes on {found[0].name!r}, whose axis {found[0].counted} has a size that depends on the data; such a "
            "tensor may be an output, or pass through operations on its elements or slices"
        )
    return count, axis


def _axis(kind: str, operands: Operands, attrs: Mapping[str, Attr], result: TensorType) -> int | None:
    rank = len(result.shape)
    if kind in ELEMENTWISE:
        return _elementwise(operands, rank)
    x = operands[0]
    assert x is not None
    if kind in ("gather", "gather_nd") and x.count is None:
        indices = operands[1]
        assert indices is not None
        if kind == "gather":
            first = attrs["axis"]
            return int(first) + indices.counted if isinstance(first, int) else None
        return indices.counted if indices.counted < indices.rank - 1 and not attrs["batch_dims"] else None
    if x.count is None or (kind != "concat" and any(t is not None and t.count is not None for t in operands[1:])):
        return None
    along, axes = x.counted, _ints(attrs, "axes")
    if kind == "transpose":
        return _ints(attrs, "perm").index(along)
    if kind == "slice":
        whole = not _ints(attrs, "starts")[along] and _ints(attrs, "steps")[along] == 1
        return along if whole and result.shape[along] == x.type.shape[along] else None
    if kind == "concat":
        same = all(t is not None and t.count is not None and t.counted == along for t in operands)
        return along if same and attrs["axis"] != along else None
    if kind == "gather" and attrs["axis"] != along:
        return along if along < int(str(attrs["axis"])) else along + rank - x.rank
    if kind in _REDUCTIONS and along not in axes:
        return along if attrs["keepdims"] else along - sum(a < along for a in axes)
    if kind == "reshape":
        return _reshape(x, result)
    return None


def _ints(attrs: Mapping[str, Attr], key: str) -> tuple[int, ...]:
    value = attrs.get(key, ())
    return tuple(int(v) for v in value) if isinstance(value, tuple) else ()


def _elementwise(operands: Operands, rank: int) -> int | None:
    """All operands have the axis at the same distance from the end, or broadcast along it."""
    places = {t.counted + rank - t.rank for t in operands if t is not None and t.count is not None}
    if len(places) != 1:
        return None
    (place,) = places
    for t in operands:
        if t is not None and t.count is None:
            own = place - (rank - t.rank)
            if own >= 0 and t.type.shape[own] != 1:
                return None
    return place


def _reshape(x: Tensor, result: TensorType) -> int | None:
    """The axis stays one: as many elements before it, and its own size; not told apart where the bound is 1."""
    bound = x.shape[x.counted]
    before = prod(x.shape[: x.counted])
    if bound == 1:
        return None
    for axis, size in enumerate(result.dims):
        if prod(result.dims[:axis]) == before and size == bound:
            return axis
    return None
