"""Result types of operations that read between elements at run-time coordinates."""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Shape, Site
from compiler_kernels.ir.shapes_window import window_size

PADDINGS = ("zeros", "border", "reflection")


def _spatial(site: Site, rank: int | None = None) -> Shape:
    x = site.shape(0)
    if len(x) < 3 or (rank is not None and len(x) != rank + 2) or any(d < 1 for d in x[2:]):
        site.fail(f"an operand of shape {list(x)} has not the spatial axes that are needed")
    return x


def grid_sample(site: Site) -> TensorType:
    x, grid = _spatial(site), site.shape(1)
    n = len(x) - 2
    if site.str_("mode") not in ("nearest", "linear", "cubic") or site.str_("padding") not in PADDINGS:
        site.fail(f"mode {site.str_('mode')!r} with padding {site.str_('padding')!r}")
    first, second = site.operands[:2]
    assert first is not None and second is not None
    if site.str_("mode") != "nearest" and first.dtype != second.dtype:
        site.fail(f"interpolates {first.dtype} elements at {second.dtype} coordinates")
    if len(grid) != n + 2 or grid[0] != x[0] or grid[-1] != n:
        site.fail(f"a grid of shape {list(grid)} does not belong to an operand of shape {list(x)}")
    return site.result((x[0], x[1], *grid[1:-1]))


def _pooled(site: Site) -> Shape:
    size = site.ints("output", 2)
    if min(size) < 1:
        site.fail(f"output {list(size)} is not positive")
    return size


def roi_align(site: Site) -> TensorType:
    x, rois = _spatial(site, 2), site.shape(1)
    if site.str_("mode") not in ("avg", "max"):
        site.fail(f"mode {site.str_('mode')!r} is not avg or max")
    if len(rois) != 2 or rois[1] != 4 or site.shape(2) != rois[:1]:
        site.fail(f"regions {list(rois)} and their batch entries {list(site.shape(2))} do not fit")
    return site.result((rois[0], x[1], *_pooled(site)))


def max_roi_pool(site: Site) -> TensorType:
    x, rois = _spatial(site, 2), site.shape(1)
    if len(rois) != 2 or rois[1] != 5:
        site.fail(f"regions {list(rois)} are not rows of five numbers")
    return site.result((rois[0], x[1], *_pooled(site)))


def deform_sample(site: Site) -> TensorType:
    """(N, C, kernel positions, output positions)."""
    x, offset = _spatial(site), site.shape(1)
    n, group = len(x) - 2, site.int_("offset_group")
    kernel, strides = site.ints("kernel", n), site.ints("strides", n)
    dilations, pads = site.ints("dilations", n), site.ints("pads", 2 * n)
    if min((group, *kernel, *strides, *dilations)) < 1 or x[1] % group:
        site.fail("kernel, strides and dilations must be positive, and offset_group must divide the channels")
    out = tuple(
        window_size(x[2 + i], kernel[i], strides[i], dilations[i], (pads[i], pads[n + i]), False) for i in range(n)
    )
    if any(size < 1 for size in out) or offset != (x[0], group * prod(kernel) * n, *out):
        site.fail(f"offsets of shape {list(offset)} for windows of {list(kernel)} over {list(x)}")
    if site.has(2) and site.shape(2) != (x[0], group * prod(kernel), *out):
        site.fail(f"a mask of shape {list(site.shape(2))} for offsets of shape {list(offset)}")
    return site.result((*x[:2], prod(kernel), prod(out)))
