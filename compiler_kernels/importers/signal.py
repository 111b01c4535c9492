"""DFT and STFT as matrix products with a constant table, window functions, MelWeightMatrix."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal
from decimal import Context as Decimals
from math import prod
from typing import Final

import numpy as np

from compiler_kernels.arithmetic.fourier import real_inverse, transform
from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Array, Context, Tensor, constant
from compiler_kernels.importers.functions import expand
from compiler_kernels.importers.halves import widened
from compiler_kernels.importers.runtime_values import (
    checked,
    chosen_by_axes,
    declared_sizes,
    ints,
    runtime,
    undetermined,
)
from compiler_kernels.ir.dtypes import BY_ONNX, COMPUTED, numpy_dtype

LARGEST_TABLE: Final = 1 << 24
"""Most elements of a transform's matrix: 64 MiB of binary32 in the engine."""


def _times(
    ctx: Context, x: Tensor, axis: int, build: Callable[[], Array], rows: int, columns: int, parts: int
) -> Tensor:
    """``x`` (..., taps at ``axis``, ..., parts) times the matrix ``build()``, back in the order of axes of ``x``."""
    if rows * columns > LARGEST_TABLE:
        ctx.at.unsupported(
            f"transforms by a matrix of {rows} x {columns} numbers, more than {LARGEST_TABLE}; use shorter frames"
        )
    last = x.rank - 1
    others = [a for a in range(last) if a != axis]
    moved = ctx.transpose(x, (*others, axis, last))
    lead = [x.shape[a] for a in others]
    flat = ctx.reshape(moved, (prod(lead), rows))
    y = ctx.reshape(ctx.emit("matmul", [flat, constant(build())]), (*lead, columns // parts, parts))
    back = list(range(last - 1))
    back.insert(axis, last - 1)
    return ctx.transpose(y, (*back, last))


def _first(ctx: Context, x: Tensor, axis: int, count: int) -> Tensor:
    """At most ``count`` elements along ``axis``; what a longer transform reads behind the end is zero."""
    kept = min(count, x.shape[axis])
    return ctx.slice(x, [0] * x.rank, [1] * x.rank, [kept if a == axis else d for a, d in enumerate(x.shape)])


def _spectrum(ctx: Context, x: Tensor, axis: int, length: int, inverse: bool, onesided: bool) -> Tensor:
    """The transform of ``length`` points of ``x`` (..., 1 or 2) along ``axis``."""
    parts, dtype = x.shape[-1], x.type.dtype
    if length < 1:
        ctx.at.invalid(f"transforms {length} points")
    if onesided and not inverse and parts == 2:
        ctx.at.invalid("asks for one side of the transform of complex numbers, which has no symmetry")
    if onesided and inverse:
        if parts == 1:
            ctx.at.invalid("asks for real points from a spectrum without imaginary parts; give it two parts")
        x = _first(ctx, x, axis, length // 2 + 1)
        taps = x.shape[axis]
        return _times(ctx, x, axis, lambda: real_inverse(taps, length, dtype), 2 * taps, length, 1)
    x = _first(ctx, x, axis, length)
    taps, bins = x.shape[axis], length // 2 + 1 if onesided else length

    def table() -> Array:
        return transform(taps, length, bins, parts == 2, inverse, dtype)

    return _times(ctx, x, axis, table, parts * taps, 2 * bins, 2)


def dft(ctx: Context) -> None:
    """Opsets 17 (axis is an attribute, 1 by default) and 20 (an input, -2 by default)."""
    x = ctx.tensor(0)
    inverse, onesided = ctx.at.flag("inverse", 0), ctx.at.flag("onesided", 0)
    if x.rank < 2 or x.shape[-1] not in (1, 2) or x.type.dtype not in COMPUTED:
        ctx.at.invalid(f"transforms {x.type.dtype}{list(x.shape)}; the last axis holds 1 or 2 floating-point parts")
    if ctx.at.version >= 20 and runtime(ctx, 2) is not None:
        ctx.bind(_along_chosen_axis(ctx, x, inverse, onesided))
        return
    axis = ctx.at.int_("axis", 1)
    if ctx.at.version >= 20:
        axis = ctx.const_ints(2, "its axis")[0] if ctx.at.has_input(2) else -2
    axis = axis_of(ctx, axis, x.rank)
    if axis == x.rank - 1:
        ctx.at.invalid("transforms along its last axis, which holds the real and imaginary parts")

    def expected() -> tuple[int, ...]:
        found, size = declared_sizes(ctx, 1, "its length"), x.shape[axis]
        if onesided and not inverse:  # two lengths have this number of results; one of them is that of x
            if len(found) == x.rank and found[axis] == size // 2 + 1:
                return (size,)
            ctx.at.unsupported(undetermined(ctx, 1, "its length"))
        return found[axis : axis + 1]

    if not ctx.at.has_input(1):
        ctx.bind(_spectrum(ctx, x, axis, _default_length(x, axis, inverse and onesided), inverse, onesided))
        return
    (length, *_), check = ints(ctx, 1, "its length", expected)
    ctx.bind(check(_spectrum(ctx, x, axis, length, inverse, onesided)))


def _default_length(x: Tensor, axis: int, halved: bool) -> int:
    return 2 * (x.shape[axis] - 1) if halved else x.shape[axis]


def _along_chosen_axis(ctx: Context, x: Tensor, inverse: bool, onesided: bool) -> Tensor:
    """The transform along a run-time axis: those along all axes that give the declared shape, and the one it names."""
    wanted, given = declared_sizes(ctx, 2, "its axis"), None
    if ctx.at.has_input(1):
        given = ctx.const_ints(1, "its length")[0]
    axes = []
    for axis in range(x.rank - 1):
        length = _default_length(x, axis, inverse and onesided) if given is None else given
        size = length // 2 + 1 if onesided and not inverse else length
        parts = 1 if inverse and onesided else 2
        if wanted == tuple(size if a == axis else d for a, d in enumerate((*x.shape[:-1], parts))):
            axes.append((axis, length))
    if not axes:
        ctx.at.invalid(f"is declared with the shape {list(wanted)}, which no axis of {list(x.shape)} gives")
    values = [_spectrum(ctx, x, axis, length, inverse, onesided) for axis, length in axes]
    return chosen_by_axes(ctx, 2, "an axis", x.rank, [(axis,) for axis, _ in axes], values)


def stft(ctx: Context) -> None:
    """Frames of the signal (B, L[, 1 or 2]) times the window, each transformed: (B, frames, bins, 2)."""
    x = ctx.tensor(0)
    if x.rank == 2:
        x = ctx.reshape(x, (*x.shape, 1))
    if x.rank != 3 or x.shape[2] not in (1, 2) or x.type.dtype not in COMPUTED:
        ctx.at.invalid(f"takes a signal {x.type.dtype}{list(x.shape)}; it is (batch, length, 1 or 2) of numbers")
    step, window = ctx.const_ints(1, "its frame_step")[0], ctx.optional(2)
    if ctx.at.has_input(3):
        length = ctx.const_ints(3, "its frame_length")[0]
    else:
        length = x.shape[1] if window is None else window.shape[0]
    if step < 1 or not 1 <= length <= x.shape[1] or (window is not None and window.shape != (length,)):
        ctx.at.invalid(
            f"cuts frames of {length} at steps of {step} from {x.shape[1]} elements"
            + (f" under a window of shape {list(window.shape)}" if window is not None else "")
        )
    frames = (x.shape[1] - length) // step + 1
    places = np.arange(frames, dtype=np.int64)[:, None] * step + np.arange(length, dtype=np.int64)
    cut = ctx.emit("gather", [x, constant(places)], {"axis": 1})
    if window is not None:
        cut = ctx.emit("mul", [cut, ctx.reshape(window, (length, 1))])
    ctx.bind(_spectrum(ctx, cut, 2, length, False, ctx.at.flag("onesided", 1)))


def window(ctx: Context) -> None:
    """Hann, Hamming and Blackman windows: their function body, for the declared size where it is known at run time."""
    size = runtime(ctx, 0)
    ctx.at.attr("periodic")  # of the function body
    if size is None:
        expand(ctx)
        return
    wanted = declared_sizes(ctx, 0, "its size")
    name = ctx.at.inputs[0]
    ctx.tensors[name] = constant(np.array(wanted[0], numpy_dtype(size.type.dtype)), name)
    try:
        expand(ctx)
    finally:
        ctx.tensors[name] = size
    ctx.bind(checked(ctx, ctx.tensors[ctx.at.outputs[0]], 0, "its size", wanted[:1]))


def _mel_edges(ctx: Context, bins: int, length: int, rate: int, low: float, high: float) -> list[int]:
    """Spectrogram bins of the ``bins`` + 2 edges, in decimal numbers of 40 digits: no C library takes part."""
    exact = Decimals(prec=40)
    log = exact.ln(Decimal(10))

    def mel(hertz: float) -> Decimal:
        return exact.divide(
            exact.multiply(Decimal(2595), exact.ln(exact.add(1, exact.divide(Decimal(hertz), 700)))), log
        )

    first = mel(low)
    step = exact.divide(exact.subtract(mel(high), first), Decimal(bins + 2))
    edges = []
    for i in range(bins + 2):
        power = exact.divide(exact.multiply(exact.add(first, exact.multiply(step, Decimal(i))), log), Decimal(2595))
        hertz = exact.multiply(Decimal(700), exact.subtract(exact.exp(power), Decimal(1)))
        nearest = exact.divide(exact.multiply(Decimal(length + 1), hertz), Decimal(rate))
        whole = nearest.to_integral_value(rounding="ROUND_HALF_EVEN")
        # 2595 log10(1 + f / 700) and back is the identity: what is an integer up to the last digits is that integer
        near = abs(exact.subtract(nearest, whole)) < Decimal("1e-25")
        edges.append(int(whole if near else nearest.to_integral_value(rounding=ROUND_FLOOR)))
    return edges


def mel_weight_matrix(ctx: Context) -> None:
    """Triangles over the bins of a spectrogram, computed at import: (length // 2 + 1, mel bins)."""
    names = ("number of mel bins", "transform length", "sample rate")
    bins, length, rate = (ctx.const_ints(i, f"its {n}")[0] for i, n in enumerate(names))
    low, high = (ctx.const_float(i, f"its {n} edge") for i, n in ((3, "lower"), (4, "upper")))
    rows, to = length // 2 + 1, ctx.at.int_("output_datatype", 1)
    if bins < 1 or length < 1 or rate < 1 or not 0 <= low < high or to not in BY_ONNX:
        ctx.at.invalid(f"asks for {bins} bins from {low} to {high} Hz of {length} points at {rate} Hz as type {to}")
    if rows * bins > LARGEST_TABLE:
        ctx.at.unsupported(f"creates a matrix of {rows} x {bins} numbers, more than {LARGEST_TABLE}")
    edges = _mel_edges(ctx, bins, length, rate, low, high)
    if edges[-1] > rows or edges[-2] >= rows:
        ctx.at.invalid(f"has its upper edge at bin {edges[-1]} of {rows}; it may not exceed half the sample rate")
    matrix = np.zeros((rows, bins))
    for i in range(bins):
        left, middle, right = edges[i : i + 3]
        if left == middle:
            matrix[middle, i] = 1
        else:
            matrix[left : middle + 1, i] = np.arange(middle - left + 1) / (middle - left)
        if right > middle:
            matrix[middle:right, i] = np.arange(right - middle, 0, -1) / (right - middle)
    ctx.bind(constant(matrix.astype(numpy_dtype(BY_ONNX[to].name))))


IMPORTERS: dict[str, Callable[[Context], None]] = {
    "DFT": widened(dft),
    "STFT": widened(stft),
    "MelWeightMatrix": mel_weight_matrix,
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), window),
}
