"""Conv, ConvTranspose, pooling: ``auto_pad``, missing kernels and negative pads become explicit attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.importers.halves import widened
from compiler_kernels.ir.dims import Expr, maximum
from compiler_kernels.ir.graph import Attr
from compiler_kernels.ir.shapes import cast_sizes
from compiler_kernels.ir.symbols import simplified

Ints = tuple[int, ...]


def _auto_pad(ctx: Context) -> str:
    mode = ctx.at.str_("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        ctx.at.invalid(f"has auto_pad {mode!r}, which ONNX does not define")
    return mode


def _spatial_rank(ctx: Context, x: Tensor) -> int:
    if x.rank < 3:
        ctx.at.invalid(f"needs a batch, a channel and a spatial axis, but its input has shape {list(x.shape)}")
    return x.rank - 2


def _split(total: int, upper: bool) -> tuple[int, int]:
    """SAME_UPPER puts the odd element at the end, everything else at the beginning."""
    small = total // 2
    return (small, total - small) if upper else (total - small, small)


def _join(pairs: Sequence[tuple[int, int]]) -> Ints:
    return tuple(p[0] for p in pairs) + tuple(p[1] for p in pairs)


@dataclass(frozen=True)
class Window:
    """What Conv and pooling share; ``automatic`` says that auto_pad gave the pads."""

    strides: Ints
    dilations: Ints
    pads: Ints
    automatic: bool

    def attrs(self) -> dict[str, Attr]:
        return {"strides": self.strides, "dilations": self.dilations, "pads": tuple(max(0, p) for p in self.pads)}


def window(ctx: Context, x: Tensor, kernel: Ints) -> Window:
    n = _spatial_rank(ctx, x)
    if len(kernel) != n:
        ctx.at.invalid(f"has a kernel of {len(kernel)} axes for {n} spatial axes")
    strides = ctx.at.ints("strides", (1,) * n, n)
    dilations = ctx.at.ints("dilations", (1,) * n, n)
    if min((*strides, *dilations, *kernel)) < 1:
        ctx.at.invalid("has a kernel, stride or dilation below 1")
    mode = _auto_pad(ctx)
    if mode == "NOTSET":
        pads = ctx.at.ints("pads", (0,) * 2 * n, 2 * n)
    elif mode == "VALID":
        pads = (0,) * 2 * n
    else:
        totals = cast_sizes(
            [
                simplified(maximum((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0))
                for size, s, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)
            ]
        )
        if any(isinstance(t, Expr) for t in totals):
            ctx.at.unsupported(
                f"has auto_pad {mode}, whose pads for {list(x.shape[2:])} depend on the size; bound it to multiples of "
                f"{list(strides)}"
            )
        pads = _join([_split(t, mode == "SAME_UPPER") for t in totals])
    return Window(strides, dilations, pads, mode != "NOTSET")


def conv(ctx: Context) -> None:
    x, w, bias = ctx.tensor(0), ctx.tensor(1), ctx.optional(2)
    kernel = w.shape[2:]
    if ctx.at.ints("kernel_shape", kernel) != kernel:
        ctx.at.invalid(f"says kernel_shape {list(ctx.at.ints('kernel_shape'))} for weights of shape {list(w.shape)}")
    found = window(ctx, x, kernel)
    n = x.rank - 2
    if min(found.pads) < 0:
        cut = [max(0, -p) for p in found.pads]
        x = ctx.crop(x, [0, 0, *cut[:n]], [0, 0, *cut[n:]])
    ctx.bind(ctx.emit("conv", [x, w, bias], {**found.attrs(), "group": ctx.at.int_("group", 1)}))


def window_of(ctx: Context, x: Tensor, w: Tensor) -> dict[str, Attr]:
    """Attributes of a convolution of ``x`` with ``w`` for an operation that takes no negative pads."""
    found = window(ctx, x, w.shape[2:])
    ctx.at.attr("kernel_shape")
    if min(found.pads) < 0:
        ctx.at.unsupported("has negative pads")
    return {**found.attrs(), "group": ctx.at.int_("group", 1)}


def conv_transpose(ctx: Context) -> None:
    """Pads follow ONNX's formula from ``output_shape`` or ``auto_pad``; a result longer than the full transposed
    convolution is expressed by ``output_padding``, so that pads never become negative."""
    x, w, bias = ctx.tensor(0), ctx.tensor(1), ctx.optional(2)
    n = _spatial_rank(ctx, x)
    kernel = w.shape[2:]
    if ctx.at.ints("kernel_shape", kernel) != kernel or len(kernel) != n:
        ctx.at.invalid(f"has a kernel that does not fit weights of shape {list(w.shape)}")
    strides = ctx.at.ints("strides", (1,) * n, n)
    dilations = ctx.at.ints("dilations", (1,) * n, n)
    extra = list(ctx.at.ints("output_padding", (0,) * n, n))
    mode = _auto_pad(ctx)
    wanted = ctx.at.optional_ints("output_shape")
    full = [s * (x.shape[2 + i] - 1) + (kernel[i] - 1) * dilations[i] + 1 for i, s in enumerate(strides)]
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(x.shape[2 + i] * s for i, s in enumerate(strides))
    if wanted is not None:
        pairs = []
        for i, size in enumerate(wanted[-n:] if len(wanted) >= n else ctx.at.ints("output_shape", length=n)):
            total = full[i] + extra[i] - size
            extra[i] += max(0, -total)
            pairs.append(_split(max(0, total), mode == "SAME_UPPER"))
        pads = _join(pairs)
    else:
        pads = ctx.at.ints("pads", (0,) * 2 * n, 2 * n) if mode == "NOTSET" else (0,) * 2 * n
    if min(pads) < 0:
        ctx.at.unsupported("has negative pads")
    attrs: dict[str, Attr] = {
        "group": ctx.at.int_("group", 1),
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "output_padding": tuple(extra),
    }
    ctx.bind(ctx.emit("conv_transpose", [x, w, bias], attrs))


def pool(ctx: Context) -> None:
    """8-bit integers are compared as binary32 numbers, which hold them exactly."""
    x, kernel = ctx.wide(0), ctx.at.ints("kernel_shape")
    if ctx.at.op == "MaxPool" and x.type.dtype in ("int8", "uint8"):
        x = ctx.cast(x, "float32")
    found = window(ctx, x, kernel)
    if min(found.pads) < 0:
        ctx.at.unsupported("has negative pads")
    # with auto_pad the number of windows is ONNX's own formula, which rounds down once the pads are explicit
    ceil_mode = ctx.at.flag("ceil_mode", 0) and not found.automatic
    attrs: dict[str, Attr] = {**found.attrs(), "kernel": kernel, "ceil_mode": ceil_mode}
    if ctx.at.op == "AveragePool":
        attrs["count_include_pad"] = ctx.at.flag("count_include_pad", 0)
        ctx.bind(ctx.narrow(ctx.emit("average_pool", [x], attrs), ctx.tensor(0)))
        return
    if ctx.used(0):
        ctx.bind(ctx.cast(ctx.emit("max_pool", [x], attrs), ctx.tensor(0).type.dtype))
    if ctx.used(1):
        column_major = ctx.at.flag("storage_order", 0)
        ctx.bind(ctx.emit("max_pool_indices", [x], {**attrs, "column_major": column_major}), 1)


def global_pool(ctx: Context) -> None:
    kind = "global_average_pool" if ctx.at.op == "GlobalAveragePool" else "global_max_pool"
    ctx.bind(ctx.emit(kind, [ctx.tensor(0)]))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "Conv": widened(conv),
    "ConvTranspose": widened(conv_transpose),
    "MaxPool": pool,
    "AveragePool": pool,
    "GlobalAveragePool": widened(global_pool),
    "GlobalMaxPool": widened(global_pool),
}
