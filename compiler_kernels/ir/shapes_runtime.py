"""Result types of operations whose operands say at run time what the graph was compiled for.

The result type is that of the values; the steering operand (axes, a shape, a count) is compared by the kernel.
"""

from __future__ import annotations

from math import prod

from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Site
from compiler_kernels.ir.shapes_move import PAD_MODES


def checked(site: Site) -> TensorType:
    """y, s: the value y; ``expected`` holds the same number of alternatives for every element of s."""
    count = prod(site.shape(1))
    allowed = site.attrs["expected"]
    assert isinstance(allowed, tuple)
    if count == 0 or not allowed or len(allowed) % count:
        site.fail(f"{len(allowed)} allowed values do not belong to {count} elements")
    return site.result(site.shape(0))


def by_axes(site: Site) -> TensorType:
    """s, y...: one of the values y, all of one type; ``masks`` are sets of axes as bits, ``picks`` the y of each."""
    masks, picks, rank = site.ints("masks"), site.ints("picks"), site.int_("rank")
    values = [site.shape(i) for i in range(1, len(site.operands))]
    if len(masks) != len(picks) or not masks or any(not 0 <= p < len(values) for p in picks):
        site.fail(f"{len(masks)} sets of axes do not belong to {len(picks)} choices of {len(values)} values")
    if len(set(masks)) != len(masks) or any(not 0 <= m < 1 << rank for m in masks):
        site.fail(f"{list(masks)} are not distinct sets of axes of a tensor of rank {rank}")
    for other in values[1:]:
        if other != values[0]:
            site.fail(f"values of shapes {list(values[0])} and {list(other)} cannot stand for each other")
    first = site.operands[1]
    assert first is not None
    return site.result(values[0], first.dtype)


def slice_at(site: Site) -> TensorType:
    """x, starts, ends, [axes], [steps]: the kernel compares what they select with the stated shape."""
    x, out = site.shape(0), site.stated()
    if len(out) != len(x):
        site.fail(f"rank changes from {len(x)} to {len(out)}")
    count = prod(site.shape(1))
    for index in range(2, len(site.operands)):
        if site.has(index) and prod(site.shape(index)) != count:
            site.fail(f"operand {index} has {prod(site.shape(index))} values where there are {count} starts")
    if prod(x) == 0 and prod(out) != 0:
        site.fail(f"{list(x)} has no elements, {list(out)} has some")
    return site.result(out)


def pad_by(site: Site) -> TensorType:
    """x, pads, value, [axes]: the kernel compares what they add with the stated shape."""
    x, out, mode = site.shape(0), site.stated(), site.str_("mode")
    if len(out) != len(x):
        site.fail(f"rank changes from {len(x)} to {len(out)}")
    if mode not in PAD_MODES:
        site.fail(f"mode {mode!r} is not one of {', '.join(PAD_MODES)}")
    count = prod(site.shape(3)) if site.has(3) else len(x)
    if prod(site.shape(1)) != 2 * count or prod(site.shape(2)) != 1:
        site.fail(f"{prod(site.shape(1))} pads and {prod(site.shape(2))} fill values do not belong to {count} axes")
    if mode != "constant" and prod(x) == 0 and prod(out) != 0:
        site.fail(f"mode {mode} takes elements from {list(x)}, which has none")
    return site.result(out)


def range_(site: Site) -> TensorType:
    """start, limit, delta: scalars; the kernel compares the number of elements with the stated one."""
    out = site.stated()
    if len(out) != 1 or any(site.shape(i) != () for i in range(3)):
        site.fail("needs three scalars and a result of one axis")
    return site.result(out)


def col2im(site: Site) -> TensorType:
    """x (N, C * block, L), block (a size per image axis): the stated image (N, C, ...); the kernel checks the block."""
    x, out = site.shape(0), site.stated()
    n = len(out) - 2
    if len(x) != 3 or n < 1 or site.shape(1) != (n,) or x[0] != out[0] or out[1] < 1 or x[1] % out[1]:
        site.fail(f"columns of shape {list(x)} and a block of {list(site.shape(1))} sizes do not fit {list(out)}")
    if min((*site.ints("strides", n), *site.ints("dilations", n)), default=1) < 1 or min(site.ints("pads", 2 * n)) < 0:
        site.fail("needs strides and dilations of 1 and more and pads that are not negative")
    return site.result(out)
