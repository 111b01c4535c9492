"""Sliding windows: convolutions and pooling over an explicitly padded operand, one ``linalg.generic`` each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

import numpy as np

from compiler_kernels.arithmetic.order import sum_order
from compiler_kernels.ir.graph import Op
from compiler_kernels.targets.mlir.moves import cut, first, inserted, padded, reshape
from compiler_kernels.targets.mlir.scalars import broadcast
from compiler_kernels.targets.mlir.writer import Body, Tensor, Writer


def multiply_add(b: Body) -> str:
    return b.op("arith.addf", b.args[2], b.op("arith.mulf", b.args[0], b.args[1]))


def add(writer: Writer, stem: str, x: Tensor, other: Tensor) -> Tensor:
    """x + other, which broadcasts."""
    pairs = [(x, broadcast(x, x.dims)), (other, broadcast(other, x.dims))]
    into = writer.empty(x.dims, x.dtype)
    return writer.generic(stem, pairs, into, "p" * x.rank, lambda b: b.op("arith.addf", *b.args[:2]))


def conv(op: Op, writer: Writer, operands: Sequence[Tensor]) -> Tensor:
    """Padding, one sum of products, the bias last. Groups are an axis of their own."""
    x, w = operands[:2]
    rank = x.rank - 2
    pads = op.ints("pads")
    x = padded(writer, f"{op.result}.pad", x, (0, 0, *pads[:rank]), (0, 0, *pads[rank:]), 0.0)
    return _sum(op, writer, x, w, operands[2:], op.ints("strides"), op.ints("dilations"), transposed=False)


def conv_transpose(op: Op, writer: Writer, operands: Sequence[Tensor]) -> Tensor:
    """x with zeros between its elements, then a convolution of stride 1 with the kernel read backwards."""
    x, w = operands[:2]
    rank = x.rank - 2
    strides, dilations = op.ints("strides"), op.ints("dilations")
    pads, extra = op.ints("pads"), op.ints("output_padding")
    spread = [(d - 1) * s + 1 for d, s in zip(x.dims[2:], strides, strict=True)]
    if spread != list(x.dims[2:]):
        zeros = writer.filled((*x.dims[:2], *spread), x.dtype, 0.0)
        x = inserted(writer, f"{op.result}.spread", x, zeros, [0] * x.rank, [1, 1, *strides])
    reach = [(k - 1) * d for k, d in zip(w.dims[2:], dilations, strict=True)]
    begins = [r - p for r, p in zip(reach, pads[:rank], strict=True)]
    ends = [r - p + e for r, p, e in zip(reach, pads[rank:], extra, strict=True)]
    wide = padded(
        writer, f"{op.result}.pad", x, (0, 0, *(max(b, 0) for b in begins)), (0, 0, *(max(e, 0) for e in ends)), 0.0
    )
    if min((*begins, *ends)) < 0:  # a pad wider than the kernel removes elements
        starts = [max(-b, 0) for b in begins]
        dims = [d + b + e for d, b, e in zip(x.dims[2:], begins, ends, strict=True)]
        wide = cut(writer, f"{op.result}.cut", wide, (0, 0, *starts), (*x.dims[:2], *dims), [1] * x.rank)
    turned = ["d0", "d1", *(f"d{2 + a} * -1 + {k - 1}" for a, k in enumerate(w.dims[2:]))]
    if prod(w.dims[2:]) > 1:
        w = writer.generic(f"{op.result}.turned", [(w, turned)], writer.empty(w.dims, w.dtype), "p" * w.rank, first)
    return _sum(op, writer, wide, w, operands[2:], (1,) * rank, dilations, transposed=True)


def _window(outer: int, inner: int, strides: Sequence[int], dilations: Sequence[int]) -> list[str]:
    """Positions in x: output loops from ``d<outer>`` on, kernel loops from ``d<inner>`` on."""

    def term(loop: int, factor: int) -> str:
        return f"d{loop}" if factor == 1 else f"d{loop} * {factor}"

    return [
        f"{term(outer + a, s)} + {term(inner + a, d)}" for a, (s, d) in enumerate(zip(strides, dilations, strict=True))
    ]


def _sum(
    op: Op,
    writer: Writer,
    x: Tensor,
    w: Tensor,
    bias: Sequence[Tensor],
    strides: Sequence[int],
    dilations: Sequence[int],
    transposed: bool,
) -> Tensor:
    """Loops: n, [group], output channel, output positions; channel in group, kernel positions."""
    group, rank, out = op.int_("group"), x.rank - 2, op.out
    kernel = w.dims[2:]
    channels, outputs = x.dims[1] // group, out.dims[1] // group
    grouped = int(group > 1)
    if grouped:
        x = reshape(writer, f"{op.result}.x", x, (x.dims[0], group, channels, *x.dims[2:]))
        pair = (channels, outputs) if transposed else (outputs, channels)
        w = reshape(writer, f"{op.result}.w", w, (group, *pair, *kernel))
    g = [f"d{1}"] if grouped else []
    o, lead = f"d{1 + grouped}", 2 + grouped
    c, k = f"d{lead + rank}", lead + rank + 1
    windows = _window(lead, k, strides, dilations)
    taps = [f"d{k + a}" for a in range(rank)]
    inner = [c, o] if transposed else [o, c]
    dims = (out.dims[0], *([group] if grouped else []), outputs, *out.dims[2:])
    into = writer.filled(dims, out.dtype, 0.0)
    stem = f"{op.result}.sum" if bias or grouped else op.result
    order = sum_order(channels, prod(kernel))
    leaf = (order.block * order.blocks_per_leaf, *[0] * rank)
    pixels, block = writer.tile
    tile = (0, *[0] * grouped, block, *[0] * (rank - 1), pixels, *leaf)
    found = writer.generic(
        stem, [(x, ["d0", *g, c, *windows]), (w, [*g, *inner, *taps])], into,
        "p" * (lead + rank) + "r" * (1 + rank), multiply_add, tile=tile,
        result=[f"d{i}" for i in range(lead + rank)],
    )  # fmt: skip
    if grouped:
        found = reshape(writer, f"{op.result}.sum" if bias else op.result, found, out.dims)
    if bias:
        column = reshape(writer, f"{op.result}.bias", bias[0], (out.dims[1], *[1] * rank))
        found = add(writer, op.result, found, column)
    return found


def pool(op: Op, writer: Writer, x: Tensor) -> Tensor:
    """The window is scanned over x padded with -inf or 0; a mean divides by the positions that count."""
    rank = x.rank - 2
    kernel, strides, dilations = op.ints("kernel"), op.ints("strides"), op.ints("dilations")
    pads, dims = op.ints("pads"), op.out.dims
    begins = pads[:rank]
    # Enough at the end for the last window, which with ceil_mode may reach beyond the padding.
    needed = [(dims[2 + a] - 1) * strides[a] + (kernel[a] - 1) * dilations[a] + 1 for a in range(rank)]
    ends = [max(needed[a] - begins[a] - x.dims[2 + a], 0) for a in range(rank)]
    average = op.kind == "average_pool"
    border = 0.0 if average else float("-inf")
    wide = padded(writer, f"{op.result}.pad", x, (0, 0, *begins), (0, 0, *ends), border)
    window = writer.empty(kernel, x.dtype)
    places = _window(2, 2 + rank, strides, dilations)
    pairs = [(wide, ["d0", "d1", *places]), (window, [f"d{2 + rank + a}" for a in range(rank)])]
    own = [f"d{i}" for i in range(2 + rank)]
    kinds = "p" * (2 + rank) + "r" * rank
    into = writer.filled(dims, x.dtype, border)
    if not average:
        return writer.generic(
            op.result, pairs, into, kinds, lambda b: b.extreme("oge", b.args[2], b.args[0]), result=own
        )
    total = writer.generic(
        f"{op.result}.sum", pairs, into, kinds, lambda b: b.op("arith.addf", b.args[2], b.args[0]), result=own
    )
    counts = writer.constant(f"{op.result}.count", _counts(op, x), x.dtype)
    pairs = [(total, own), (counts, own[2:])]
    divided = writer.empty(dims, x.dtype)
    return writer.generic(op.result, pairs, divided, "p" * len(dims), lambda b: b.op("arith.divf", *b.args[:2]))


def _counts(op: Op, x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """How many positions of every window count: those in x, or also those in its padding, never those beyond."""
    rank = x.rank - 2
    kernel, strides, dilations, pads = op.ints("kernel"), op.ints("strides"), op.ints("dilations"), op.ints("pads")
    include = bool(op.attr("count_include_pad"))
    axes = []
    for a in range(rank):
        low, high = (-pads[a], x.dims[2 + a] + pads[rank + a]) if include else (0, x.dims[2 + a])
        starts = [o * strides[a] - pads[a] for o in range(op.out.dims[2 + a])]
        axes.append([sum(low <= s + k * dilations[a] < high for k in range(kernel[a])) for s in starts])
    counts = [prod(c) for c in itertools.product(*axes)]
    return np.array(counts, dtype=np.float32).reshape(op.out.dims[2:])
