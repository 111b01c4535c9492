"""Result types of the L0 operations that only move data: concat, pad, slice, transpose, reshape, expand."""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Site, broadcast

PAD_MODES = ("constant", "reflect", "edge", "wrap")


def concat(site: Site) -> TensorType:
    first = site.shape(0)
    axis = site.axis(len(first))
    total = 0
    for index in range(len(site.operands)):
        shape = site.shape(index)
        if len(shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(shape, first, strict=True)) if i != axis
        ):
            site.fail(f"shapes {list(first)} and {list(shape)} differ outside axis {axis}")
        total += shape[axis]
    return site.result((*first[:axis], total, *first[axis + 1 :]))


def pad(site: Site) -> TensorType:
    x = site.shape(0)
    pads, mode = site.ints("pads", 2 * len(x)), site.str_("mode")
    if mode not in PAD_MODES:
        site.fail(f"mode {mode!r} is not one of {', '.join(PAD_MODES)}")
    if min(pads, default=0) < 0:
        site.fail("pads must not be negative; slice first")
    for i, size in enumerate(x):
        widest = max(pads[i], pads[len(x) + i])
        if widest and ((mode == "reflect" and widest >= size) or (mode == "edge" and size == 0)):
            site.fail(f"{mode} padding by {widest} needs more than the {size} elements of axis {i}")
    return site.result([d + pads[i] + pads[len(x) + i] for i, d in enumerate(x)])


def slice_(site: Site) -> TensorType:
    x, out = site.shape(0), site.stated()
    if len(out) != len(x):
        site.fail(f"rank changes from {len(x)} to {len(out)}")
    for i, (start, step) in enumerate(zip(site.ints("starts", len(x)), site.ints("steps", len(x)), strict=True)):
        last = start + (out[i] - 1) * step
        if step == 0 or (out[i] and not (0 <= start < x[i] and 0 <= last < x[i])):
            site.fail(f"start {start}, step {step}, {out[i]} elements leave axis {i} of size {x[i]}")
    return site.result(out)


def transpose(site: Site) -> TensorType:
    x, perm = site.shape(0), site.ints("perm")
    if sorted(perm) != list(range(len(x))):
        site.fail(f"perm {list(perm)} is not a permutation of {len(x)} axes")
    return site.result([x[p] for p in perm])


def reshape(site: Site) -> TensorType:
    x, out = site.shape(0), site.stated()
    if prod(x) != prod(out):
        site.fail(f"{list(x)} has {prod(x)} elements, {list(out)} has {prod(out)}")
    return site.result(out)


def expand(site: Site) -> TensorType:
    x, out = site.shape(0), site.stated()
    if broadcast(site, x, out) != out:
        site.fail(f"{list(x)} does not broadcast to {list(out)}")
    return site.result(out)
