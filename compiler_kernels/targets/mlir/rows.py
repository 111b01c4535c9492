"""Reductions, softmax and normalisations, as sums and elementwise steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from compiler_kernels.ir.graph import Op
from compiler_kernels.targets.mlir.moves import reshape
from compiler_kernels.targets.mlir.scalars import broadcast
from compiler_kernels.targets.mlir.writer import Body, Scalar, Tensor, Writer

INITIAL = {"sum": 0.0, "max": float("-inf"), "min": float("inf")}


def reduced(writer: Writer, stem: str, x: Tensor, axes: Sequence[int], how: str) -> Tensor:
    """``x`` without ``axes``; ``how`` is sum, max or min."""
    kinds = "".join("r" if a in axes else "p" for a in range(x.rank))
    kept = [a for a in range(x.rank) if a not in axes]
    into = writer.filled([x.dims[a] for a in kept], x.dtype, INITIAL[how])
    steps: dict[str, Scalar] = {
        "sum": lambda b: b.op("arith.addf", b.args[1], b.args[0]),
        "max": lambda b: b.extreme("oge", b.args[1], b.args[0]),
        "min": lambda b: b.extreme("ole", b.args[1], b.args[0]),
    }
    pairs = [(x, [f"d{a}" for a in range(x.rank)])]
    if not kept:  # a scalar result has no index expressions
        return writer.generic(stem, pairs, into, kinds, steps[how])
    return writer.generic(stem, pairs, into, kinds, steps[how], result=[f"d{a}" for a in kept])


def pointwise(writer: Writer, stem: str, dims: Sequence[int], operands: Sequence[Tensor], scalar: Scalar) -> Tensor:
    """Elementwise over ``dims``, with broadcasting."""
    pairs = [(t, broadcast(t, dims)) for t in operands]
    return writer.generic(stem, pairs, writer.empty(dims, operands[0].dtype), "p" * len(dims), scalar)


def _mean(writer: Writer, stem: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    total = reduced(writer, f"{stem}.sum", x, axes, "sum")
    count = float(prod(x.dims[a] for a in axes))
    return pointwise(writer, stem, total.dims, [total], lambda b: b.op("arith.divf", b.args[0], b.const(count)))


def reduce(op: Op, writer: Writer, x: Tensor) -> Tensor:
    axes, how = op.ints("axes"), op.kind.removeprefix("reduce_")
    stem = f"{op.result}.row" if op.attr("keepdims") else op.result
    found = _mean(writer, stem, x, axes) if how == "mean" else reduced(writer, stem, x, axes, how)
    return reshape(writer, op.result, found, op.out.dims)


def global_pool(op: Op, writer: Writer, x: Tensor) -> Tensor:
    axes = range(2, x.rank)
    stem = f"{op.result}.row"
    found = reduced(writer, stem, x, axes, "max") if "max" in op.kind else _mean(writer, stem, x, axes)
    return reshape(writer, op.result, found, op.out.dims)


def softmax(op: Op, writer: Writer, x: Tensor) -> Tensor:
    """e / sum(e) with e = exp(x - max), or (x - max) - log(sum(e))."""
    axis, name = op.int_("axis"), op.result
    flat = [1 if a == axis else d for a, d in enumerate(x.dims)]
    top = reshape(writer, f"{name}.top", reduced(writer, f"{name}.max", x, (axis,), "max"), flat)
    shifted = pointwise(writer, f"{name}.shifted", x.dims, [x, top], lambda b: b.op("arith.subf", *b.args[:2]))
    e = pointwise(writer, f"{name}.exp", x.dims, [shifted], lambda b: b.op("math.exp", b.args[0]))
    total = reshape(writer, f"{name}.total", reduced(writer, f"{name}.sum", e, (axis,), "sum"), flat)
    if op.kind == "softmax":
        return pointwise(writer, name, x.dims, [e, total], lambda b: b.op("arith.divf", *b.args[:2]))
    return pointwise(
        writer, name, x.dims, [shifted, total], lambda b: b.op("arith.subf", b.args[0], b.op("math.log", b.args[1]))
    )


def batch_norm(op: Op, writer: Writer, operands: Sequence[Tensor]) -> Tensor:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, per channel."""
    x = operands[0]
    shape = (x.dims[1], *[1] * (x.rank - 2))
    parts = [reshape(writer, f"{op.result}.p", p, shape) for p in operands[1:]]
    return pointwise(writer, op.result, x.dims, [x, *parts], _normalised(op.float_("epsilon")))


def _normalised(epsilon: float) -> Scalar:
    """Of arguments x, scale, bias, mean, var."""

    def scalar(b: Body) -> str:
        x, scale, bias, mean, var = b.args[:5]
        root = b.op("math.sqrt", b.op("arith.addf", var, b.const(epsilon)))
        unit = b.op("arith.divf", b.op("arith.subf", x, mean), root)
        return b.op("arith.addf", b.op("arith.mulf", unit, scale), bias)

    return scalar


def norm(op: Op, writer: Writer, operands: Sequence[Tensor]) -> Tensor | None:
    """Layer, instance and group normalisation: mean and variance over some axes, then as batch normalisation."""
    x, scale, *rest = operands
    name, dims = op.result, x.dims
    if op.kind == "layer_normalization":
        axes: Sequence[int] = range(op.int_("axis"), x.rank)
        inner = scale.dims
    else:
        inner = (dims[1], *[1] * (x.rank - 2))
        axes = range(2, x.rank)
        if op.kind == "group_normalization":
            groups = op.int_("num_groups")
            x = reshape(writer, f"{name}.x", x, (dims[0], groups, dims[1] // groups * prod(dims[2:])))
            axes = (2,)
    kept = [1 if a in axes else d for a, d in enumerate(x.dims)]
    mean = reshape(writer, f"{name}.centre", _mean(writer, f"{name}.mean", x, axes), kept)
    off = pointwise(writer, f"{name}.off", x.dims, [x, mean], lambda b: b.op("arith.subf", *b.args[:2]))
    square = pointwise(writer, f"{name}.square", x.dims, [off], lambda b: b.op("arith.mulf", b.args[0], b.args[0]))
    var = reshape(writer, f"{name}.spread", _mean(writer, f"{name}.var", square, axes), kept)
    epsilon = op.float_("epsilon")
    unit = pointwise(
        writer, f"{name}.unit", x.dims, [off, var],
        lambda b: b.op("arith.divf", b.args[0], b.op("math.sqrt", b.op("arith.addf", b.args[1], b.const(epsilon)))),
    )  # fmt: skip
    unit = reshape(writer, f"{name}.back", unit, dims)
    scale = reshape(writer, f"{name}.scale", scale, inner)
    stem = f"{name}.scaled" if rest else name
    found = pointwise(writer, stem, dims, [unit, scale], lambda b: b.op("arith.mulf", *b.args[:2]))
    if rest:
        bias = reshape(writer, f"{name}.bias", rest[0], inner)
        found = pointwise(writer, name, dims, [found, bias], lambda b: b.op("arith.addf", *b.args[:2]))
    return found
