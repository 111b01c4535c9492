"""Result types of the L0 operations that look up, write, order and count elements by index (docs/ir.md)."""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Shape, Site
from compiler_kernels.ir.shapes_window import pool

REDUCTIONS = ("none", "add", "mul", "max", "min")


def gather(site: Site) -> TensorType:
    x, indices = site.shape(0), site.shape(1)
    axis = site.axis(len(x))
    return site.result((*x[:axis], *indices, *x[axis + 1 :]))


def _same_rank(site: Site, x: Shape, indices: Shape, axis: int, slack: bool) -> None:
    """Indices along ``axis`` of x: equal rank, elsewhere no larger than x (``slack``)."""
    if len(x) != len(indices):
        site.fail(f"x has rank {len(x)}, the indices have rank {len(indices)}")
    for a, (size, count) in enumerate(zip(x, indices, strict=True)):
        if a != axis and (count > size if slack else count != size):
            site.fail(f"indices of shape {list(indices)} do not fit x of shape {list(x)} outside axis {axis}")


def gather_elements(site: Site) -> TensorType:
    x, indices = site.shape(0), site.shape(1)
    _same_rank(site, x, indices, site.axis(len(x)), True)
    return site.result(indices)


def gather_nd(site: Site) -> TensorType:
    x, indices, batch = site.shape(0), site.shape(1), site.int_("batch_dims")
    if not indices:
        site.fail("the indices are a scalar; their last axis holds index tuples")
    depth = indices[-1]
    if not 0 <= batch < min(len(x), len(indices)) or x[:batch] != indices[:batch]:
        site.fail(f"batch_dims {batch} does not fit shapes {list(x)} and {list(indices)}")
    if not 1 <= depth <= len(x) - batch:
        site.fail(f"index tuples of {depth} for {len(x) - batch} axes")
    return site.result((*indices[:-1], *x[batch + depth :]))


def _reduction(site: Site) -> None:
    if site.str_("reduction") not in REDUCTIONS:
        site.fail(f"reduction {site.str_('reduction')!r} is not one of {', '.join(REDUCTIONS)}")


def scatter_elements(site: Site) -> TensorType:
    x, indices = site.shape(0), site.shape(1)
    _reduction(site)
    _same_rank(site, x, indices, site.axis(len(x)), True)
    if site.shape(2) != indices:
        site.fail(f"updates of shape {list(site.shape(2))} for indices of shape {list(indices)}")
    return site.result(x)


def scatter_nd(site: Site) -> TensorType:
    x, indices = site.shape(0), site.shape(1)
    _reduction(site)
    if not indices or not 1 <= indices[-1] <= len(x):
        site.fail(f"indices of shape {list(indices)} do not address x of shape {list(x)}")
    wanted = (*indices[:-1], *x[indices[-1] :])
    if site.shape(2) != wanted:
        site.fail(f"updates of shape {list(site.shape(2))} where {list(wanted)} is needed")
    return site.result(x)


def tensor_scatter(site: Site) -> TensorType:
    """x (batch, ..., sequence, ...), update of the same shape but for the sequence axis, [first positions (batch)]."""
    x, update = site.shape(0), site.shape(1)
    axis = site.axis(len(x))
    if site.str_("mode") not in ("linear", "circular"):
        site.fail(f"mode {site.str_('mode')!r} is neither linear nor circular")
    if axis == 0 or len(update) != len(x) or update[axis] > x[axis]:
        site.fail(f"an update of shape {list(update)} does not fit {list(x)} along axis {axis}")
    if any(a != b for i, (a, b) in enumerate(zip(x, update, strict=True)) if i != axis):
        site.fail(f"an update of shape {list(update)} does not fit {list(x)} along axis {axis}")
    if site.has(2) and site.shape(2) != (x[0],):
        site.fail(f"{list(site.shape(2))} first positions for a batch of {x[0]}")
    return site.result(x)


def topk_indices(site: Site) -> TensorType:
    x, k = site.shape(0), site.int_("k")
    axis = site.axis(len(x))
    if k < 0 or k > x[axis]:
        site.fail(f"the {k} first of {x[axis]} elements")
    return site.result((*x[:axis], k, *x[axis + 1 :]), "int64")


def arg_extreme(site: Site) -> TensorType:
    x = site.shape(0)
    axis = site.axis(len(x))
    if x[axis] < 1:
        site.fail(f"axis {axis} of {list(x)} is empty")
    kept = (1,) if site.attrs["keepdims"] else ()
    return site.result((*x[:axis], *kept, *x[axis + 1 :]), "int64")


def scan(site: Site) -> TensorType:
    x = site.shape(0)
    site.axis(len(x))
    return site.result(x)


def pool_indices(site: Site) -> TensorType:
    return TensorType(pool(site).shape, "int64")


def nonzero(site: Site) -> TensorType:
    """Room for all elements: (rank, number of elements); a scalar counts as one axis of one element."""
    x = site.shape(0)
    return site.result((max(1, len(x)), prod(x)), "int64")


def count_nonzero(site: Site) -> TensorType:
    site.shape(0)
    return site.result((), "int64")


def sort_rows(site: Site) -> TensorType:
    x = site.shape(0)
    if len(x) != 2:
        site.fail(f"x of shape {list(x)} is no table of rows")
    return site.result((x[0],), "int64")


def compact(site: Site) -> TensorType:
    x = site.shape(0)
    if site.shape(1) != (len(x),):
        site.fail(f"{list(site.shape(1))} sizes for a tensor of rank {len(x)}")
    return site.result(x)


def non_max_suppression(site: Site) -> TensorType:
    """boxes (B, N, 4), scores (B, C, N), order (B, C, N); the result (B, C, limit) holds boxes, then -1."""
    boxes, scores, limit = site.shape(0), site.shape(1), site.int_("limit")
    if len(boxes) != 3 or boxes[2] != 4 or len(scores) != 3:
        site.fail(f"boxes of shape {list(boxes)} and scores of shape {list(scores)}")
    if boxes[0] != scores[0] or boxes[1] != scores[2] or site.shape(2) != scores:
        site.fail(f"boxes of shape {list(boxes)} do not belong to scores of shape {list(scores)}")
    if not 1 <= limit <= boxes[1]:
        site.fail(f"at most {limit} of {boxes[1]} boxes")
    return site.result((scores[0], scores[1], limit), "int64")
