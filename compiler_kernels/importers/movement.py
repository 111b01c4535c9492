"""Operators that only move data: reshapes, concat, split, slice, pad, transpose, expand, gather by constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.node import f32
from compiler_kernels.ir.dims import Expr, ceildiv, maximum, minimum
from compiler_kernels.ir.dtypes import BY_ONNX
from compiler_kernels.ir.shapes import cast_sizes, is_one
from compiler_kernels.ir.symbols import divides, simplified


def identity(ctx: Context) -> None:
    ctx.bind(ctx.tensor(0))


def dropout(ctx: Context) -> None:
    """Identity in inference; the mask is not available."""
    if ctx.used(1):
        ctx.at.unsupported("returns its mask, which only training needs")
    if ctx.at.has_input(2) and bool(ctx.const(2, "its training_mode").any()):
        ctx.at.unsupported("is in training mode; export the model for inference")
    identity(ctx)


def cast(ctx: Context) -> None:
    """To any compiled type; CastLike takes the type of its second input."""
    x = ctx.tensor(0)
    if ctx.at.op == "CastLike":
        ctx.bind(ctx.cast(x, ctx.tensor(1).type.dtype))
        return
    to = BY_ONNX.get(ctx.at.int_("to", 1))
    if to is None:
        ctx.at.unsupported(f"casts to ONNX element type {ctx.at.int_('to', 1)}, which is not compiled")
    ctx.bind(ctx.cast(x, to.name))


def reshape(ctx: Context) -> None:
    x, wanted = ctx.tensor(0), list(ctx.const_ints(1, "its shape"))
    if not ctx.at.int_("allowzero", 0):
        wanted = [x.shape[i] if d == 0 and i < x.rank else d for i, d in enumerate(wanted)]
    if wanted.count(-1) > 1 or any(d < -1 for d in wanted):
        ctx.at.invalid(f"reshapes to {wanted}, which is not a shape")
    known = prod(d for d in wanted if d != -1)
    if -1 in wanted:
        if known == 0 or not divides(known, prod(x.shape)):
            ctx.at.invalid(f"cannot reshape {list(x.shape)} to {wanted}")
        wanted[wanted.index(-1)] = prod(x.shape) // known
    if prod(wanted) != prod(x.shape):
        ctx.at.invalid(f"cannot reshape {list(x.shape)} to {wanted}")
    ctx.bind(ctx.reshape(x, wanted))


def flatten(ctx: Context) -> None:
    x, axis = ctx.tensor(0), ctx.at.int_("axis", 1)
    if not -x.rank <= axis <= x.rank:
        ctx.at.invalid(f"flattens at axis {axis} of a tensor of rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    ctx.bind(ctx.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:]))))


def _axes(ctx: Context) -> tuple[int, ...] | None:
    if ctx.at.version >= 13:
        return ctx.const_ints(1, "its axes") if ctx.at.has_input(1) else None
    return ctx.at.optional_ints("axes")


def squeeze(ctx: Context) -> None:
    x, axes = ctx.tensor(0), _axes(ctx)
    if axes is None:
        ctx.bind(ctx.reshape(x, [d for d in x.shape if d != 1]))
        return
    gone = {axis_of(ctx, a, x.rank) for a in axes}
    if any(x.shape[a] != 1 for a in gone):
        ctx.at.invalid(f"squeezes axes {sorted(gone)} of shape {list(x.shape)}")
    ctx.bind(ctx.reshape(x, [d for i, d in enumerate(x.shape) if i not in gone]))


def unsqueeze(ctx: Context) -> None:
    x, axes = ctx.tensor(0), _axes(ctx)
    if axes is None:
        ctx.at.invalid("lacks its axes")
    rank = x.rank + len(axes)
    new = {axis_of(ctx, a, rank) for a in axes}
    if len(new) != len(axes):
        ctx.at.invalid(f"names an axis twice in {list(axes)}")
    rest = iter(x.shape)
    ctx.bind(ctx.reshape(x, [1 if i in new else next(rest) for i in range(rank)]))


def transpose(ctx: Context) -> None:
    x = ctx.tensor(0)
    ctx.bind(ctx.transpose(x, ctx.at.ints("perm", tuple(reversed(range(x.rank))), x.rank)))


def expand(ctx: Context) -> None:
    x, wanted = ctx.tensor(0), ctx.const_ints(1, "its shape")
    rank = max(x.rank, len(wanted))
    old, new = (1,) * (rank - x.rank) + x.shape, (1,) * (rank - len(wanted)) + wanted
    # a size that may be 1 is none that stretches: the operation's rule then asks that it equals the wanted one
    sizes = [a if is_one(b) else b for a, b in zip(old, new, strict=True)]
    ctx.bind(ctx.expand(x, sizes))


def concat(ctx: Context) -> None:
    """Operands that are empty along the axis disappear; a single one left is passed through."""
    parts = [ctx.tensor(i) for i in range(len(ctx.at.inputs))]
    axis = axis_of(ctx, ctx.at.int_("axis", 1), parts[0].rank)
    if any(p.rank != parts[0].rank for p in parts):
        ctx.at.invalid("joins tensors of different ranks")
    full = [p for p in parts if p.shape[axis]] or parts[:1]
    ctx.bind(full[0] if len(full) == 1 else ctx.emit("concat", full, {"axis": axis}))


def split(ctx: Context) -> None:
    x = ctx.tensor(0)
    axis, count = axis_of(ctx, ctx.at.int_("axis", 0), x.rank), len(ctx.at.outputs)
    sizes = ctx.at.optional_ints("split")
    if sizes is None and ctx.at.has_input(1):
        sizes = ctx.const_ints(1, "its sizes")
    if sizes is None:
        each = -(-x.shape[axis] // count)
        sizes = cast_sizes([simplified(maximum(0, minimum(each, x.shape[axis] - i * each))) for i in range(count)])
    if sum(sizes) != x.shape[axis] or len(sizes) != count or any(size < 0 for size in sizes):
        ctx.at.invalid(f"splits {x.shape[axis]} elements into {list(sizes)} for {count} outputs")
    start = 0
    for index, size in enumerate(sizes):
        if ctx.used(index):
            ctx.bind(_range(ctx, x, axis, start, size), index)
        start += size


def _range(ctx: Context, x: Tensor, axis: int, start: int, size: int) -> Tensor:
    starts = [start if i == axis else 0 for i in range(x.rank)]
    return ctx.slice(x, starts, [1] * x.rank, [size if i == axis else d for i, d in enumerate(x.shape)])


def slice_(ctx: Context) -> None:
    """Attributes before opset 10, inputs from then on; out-of-range bounds clamp as ONNX says."""
    x = ctx.tensor(0)
    steps: Sequence[int] | None = None
    if ctx.at.version < 10:
        begins, ends, axes = ctx.at.ints("starts"), ctx.at.ints("ends"), ctx.at.optional_ints("axes")
    else:
        begins, ends = ctx.const_ints(1, "its starts"), ctx.const_ints(2, "its ends")
        axes = ctx.const_ints(3, "its axes") if ctx.at.has_input(3) else None
        steps = ctx.const_ints(4, "its steps") if ctx.at.has_input(4) else None
    axes = tuple(range(len(begins))) if axes is None else axes
    steps = (1,) * len(begins) if steps is None else steps
    if not len(begins) == len(ends) == len(axes) == len(steps) or 0 in steps:
        ctx.at.invalid("has starts, ends, axes and steps that do not belong together")
    start, step, size = [0] * x.rank, [1] * x.rank, list(x.shape)
    for a, b, e, s in zip(axes, begins, ends, steps, strict=True):
        axis = axis_of(ctx, a, x.rank)
        if all(isinstance(v, int) for v in (x.shape[axis], b, e)):
            picked = range(x.shape[axis])[slice(b, e, s)]
            start[axis], step[axis], size[axis] = (picked.start if picked else 0), s, len(picked)
        else:
            start[axis], size[axis] = _symbolic_range(x.shape[axis], b, e, s)
            step[axis] = s
    ctx.bind(ctx.slice(x, start, step, size))


def _symbolic_range(size: int, begin: int, end: int, step: int) -> tuple[int, int]:
    """First element and number of elements of ``range(size)[begin:end:step]`` as expressions."""
    low, high = (0, size) if step > 0 else (-1, size - 1)
    bounds = [v if v >= 0 else v + size for v in (begin, end)]
    first, last = (simplified(minimum(maximum(v, low), high)) for v in bounds)
    count = (last - first) if step > 0 else (first - last)
    return cast_sizes([first])[0], cast_sizes([simplified(maximum(0, ceildiv(count, abs(step))))])[0]


def pad(ctx: Context) -> None:
    """Negative pads crop first; ONNX defines that for constant padding only."""
    x = ctx.tensor(0)
    mode = ctx.at.str_("mode", "constant")
    axes: Sequence[int] = range(x.rank)
    value = 0.0
    if ctx.at.version < 11:
        pads, value = ctx.at.ints("pads"), ctx.at.float_("value", 0.0)
    else:
        pads = ctx.const_ints(1, "its pads")
        value = f32(ctx.const_float(2, "its fill value")) if ctx.at.has_input(2) else 0.0
        if ctx.at.has_input(3):
            axes = [axis_of(ctx, a, x.rank) for a in ctx.const_ints(3, "its axes")]
    if any(isinstance(p, Expr) for p in pads):
        ctx.at.unsupported(f"pads by {list(pads)}, which depends on the size; only constant pads are compiled")
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        ctx.at.invalid(f"has {len(pads)} pads for {len(axes)} axes")
    begins, ends = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        begins[axis], ends[axis] = pads[i], pads[len(axes) + i]
    if min((*begins, *ends), default=0) < 0:
        if mode != "constant":
            ctx.at.unsupported(f"combines negative pads with mode {mode}")
        x = ctx.crop(x, [max(0, -b) for b in begins], [max(0, -e) for e in ends])
    amounts = tuple(max(0, p) for p in (*begins, *ends))
    if any(amounts):
        x = ctx.emit("pad", [x], {"mode": mode, "pads": amounts, "value": value if mode == "constant" else 0.0})
    ctx.bind(x)


def _column_row_depth(ctx: Context) -> bool:
    mode = ctx.at.str_("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        ctx.at.invalid(f"has mode {mode!r}; ONNX defines DCR and CRD")
    return mode == "CRD"


def depth_to_space(ctx: Context) -> None:
    x, b = ctx.tensor(0), ctx.at.int_("blocksize", 0)
    if x.rank != 4 or b < 1 or x.shape[1] % (b * b):
        ctx.at.invalid(f"cannot use blocksize {b} on shape {list(x.shape)}")
    n, c, h, w = x.shape
    c //= b * b
    if _column_row_depth(ctx):
        cut, perm = (n, c, b, b, h, w), (0, 1, 4, 2, 5, 3)
    else:
        cut, perm = (n, b, b, c, h, w), (0, 3, 4, 1, 5, 2)
    ctx.bind(ctx.reshape(ctx.transpose(ctx.reshape(x, cut), perm), (n, c, h * b, w * b)))


def space_to_depth(ctx: Context) -> None:
    x, b = ctx.tensor(0), ctx.at.int_("blocksize", 0)
    if x.rank != 4 or b < 1 or not (divides(b, x.shape[2]) and divides(b, x.shape[3])):
        ctx.at.invalid(f"cannot use blocksize {b} on shape {list(x.shape)}")
    n, c, h, w = x.shape
    cut = ctx.reshape(x, (n, c, h // b, b, w // b, b))
    perm = (0, 1, 3, 5, 2, 4) if _column_row_depth(ctx) else (0, 3, 5, 1, 2, 4)
    ctx.bind(ctx.reshape(ctx.transpose(cut, perm), (n, c * b * b, h // b, w // b)))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Identity": identity,
    "Dropout": dropout,
    "Cast": cast,
    "CastLike": cast,
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Expand": expand,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Pad": pad,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
