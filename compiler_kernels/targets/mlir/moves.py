"""Operations that only move elements: reshape, transpose, expand, concat, pad, slice."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from compiler_kernels.ir.graph import Op
from compiler_kernels.targets.mlir.scalars import broadcast
from compiler_kernels.targets.mlir.writer import ELEMENTS, FLOATS, Body, Tensor, Writer


def first(b: Body) -> str:
    """The body of a move."""
    return b.args[0]


def merging(many: Sequence[int], few: Sequence[int]) -> list[list[int]] | None:
    """Which axes of ``many`` make up each axis of ``few``; ``None`` where merging axes does not lead there."""
    groups: list[list[int]] = []
    at = 0
    for size in few:
        group = [at] if at < len(many) else []
        total = many[at] if group else 1
        at += 1
        while total < size and at < len(many):
            total *= many[at]
            group.append(at)
            at += 1
        if not group or total != size:
            return None
        groups.append(group)
    if not groups:
        return groups if prod(many) == 1 else None
    while at < len(many) and many[at] == 1:
        groups[-1].append(at)
        at += 1
    return groups if at == len(many) else None


def _groups(groups: Sequence[Sequence[int]], suffix: str = "") -> str:
    return "[" + ", ".join("[" + ", ".join(f"{a}{suffix}" for a in g) + "]" for g in groups) + "]"


def collapse(writer: Writer, stem: str, x: Tensor, dims: Sequence[int], groups: Sequence[Sequence[int]]) -> Tensor:
    result = Tensor("", tuple(dims), x.dtype)
    text = f"tensor.collapse_shape %{x.name} {_groups(groups)}{writer.tail()} : {x.text} into {result.text}"
    return writer.add(stem, dims, x.dtype, text)


def unfold(writer: Writer, stem: str, x: Tensor, dims: Sequence[int], groups: Sequence[Sequence[int]]) -> Tensor:
    """``tensor.expand_shape`` in the generic form."""
    result = Tensor("", tuple(dims), x.dtype)
    shape = f"array<i64: {', '.join(map(str, dims))}>" if dims else "array<i64>"
    inherent = f"reassociation = {_groups(groups, ' : i64')}, static_output_shape = {shape}"
    notes = "".join(f", {k} = {v}" for k, v in writer.notes.items())
    text = f'"tensor.expand_shape"(%{x.name}) {{{inherent}{notes}}} : ({x.text}) -> {result.text}'
    return writer.add(stem, dims, x.dtype, text)


def reshape(writer: Writer, stem: str, x: Tensor, dims: Sequence[int]) -> Tensor:
    """``x`` in another shape: merged axes, split axes, or both through one axis."""
    target = tuple(dims)
    if target == x.dims:
        return x
    groups = merging(x.dims, target)
    if groups is not None and len(target) < x.rank:
        return collapse(writer, stem, x, target, groups)
    groups = merging(target, x.dims)
    if groups is not None and len(target) > x.rank:
        return unfold(writer, stem, x, target, groups)
    flat = collapse(writer, f"{stem}.flat", x, (prod(x.dims),), [list(range(x.rank))])
    return unfold(writer, stem, flat, target, [list(range(len(target)))])


def transposed(op: Op, writer: Writer, x: Tensor) -> Tensor:
    perm = op.ints("perm")
    places = [f"d{perm.index(axis)}" for axis in range(x.rank)]
    return writer.generic(op.result, [(x, places)], writer.empty(op.out.dims, x.dtype), "p" * x.rank, first)


def expanded(op: Op, writer: Writer, x: Tensor) -> Tensor:
    dims = op.out.dims
    return writer.generic(op.result, [(x, broadcast(x, dims))], writer.empty(dims, x.dtype), "p" * len(dims), first)


def joined(op: Op, writer: Writer, operands: Sequence[Tensor]) -> Tensor:
    """Every part written into an empty tensor."""
    dims, axis = op.out.dims, op.int_("axis")
    found, start = writer.empty(dims, op.out.dtype), 0
    for number, part in enumerate(operands):
        offsets = [start if a == axis else 0 for a in range(len(dims))]
        stem = op.result if number == len(operands) - 1 else f"{op.result}.part"
        found = inserted(writer, stem, part, found, offsets, [1] * len(dims))
        start += part.dims[axis]
    return found


def inserted(
    writer: Writer, stem: str, x: Tensor, into: Tensor, offsets: Sequence[int], steps: Sequence[int]
) -> Tensor:
    place = f"{list(offsets)} {list(x.dims)} {list(steps)}"
    text = f"tensor.insert_slice %{x.name} into %{into.name}{place}{writer.tail()} : {x.text} into {into.text}"
    return writer.add(stem, into.dims, x.dtype, text)


def cut(
    writer: Writer, stem: str, x: Tensor, starts: Sequence[int], dims: Sequence[int], steps: Sequence[int]
) -> Tensor:
    """``tensor.extract_slice`` with positive steps."""
    result = Tensor("", tuple(dims), x.dtype)
    place = f"{list(starts)} {list(dims)} {list(steps)}"
    text = f"tensor.extract_slice %{x.name}{place}{writer.tail()} : {x.text} to {result.text}"
    return writer.add(stem, dims, x.dtype, text)


def sliced(op: Op, writer: Writer, x: Tensor) -> Tensor:
    """A slice; one that runs backwards is a move with negative factors."""
    starts, steps, dims = op.ints("starts"), op.ints("steps"), op.out.dims
    if min(steps, default=1) > 0:
        return cut(writer, op.result, x, starts, dims, steps)
    places = [f"d{a} * {step} + {start}" for a, (start, step) in enumerate(zip(starts, steps, strict=True))]
    return writer.generic(op.result, [(x, places)], writer.empty(dims, x.dtype), "p" * len(dims), first)


def padded(writer: Writer, stem: str, x: Tensor, begins: Sequence[int], ends: Sequence[int], value: float) -> Tensor:
    """``tensor.pad`` with a constant; ``x`` itself where nothing is added."""
    if not any((*begins, *ends)):
        return x
    dims = [d + b + e for d, b, e in zip(x.dims, begins, ends, strict=True)]
    number = writer.scalar(value, x.dtype)
    result = Tensor("", tuple(dims), x.dtype)
    found = writer.add(stem, dims, x.dtype, f"tensor.pad %{x.name} low{list(begins)} high{list(ends)} {{")
    indices = ", ".join(f"%i${a}: index" for a in range(x.rank))
    writer.lines += [f"^bb0({indices}):", f"  tensor.yield {number} : {ELEMENTS[x.dtype]}"]
    writer.lines.append(f"}}{writer.tail()} : {x.text} to {result.text}")
    return found


def pad(op: Op, writer: Writer, x: Tensor) -> Tensor | None:
    """Constant padding, or a read at the index that the mode gives."""
    pads = op.ints("pads")
    begins, ends, mode = pads[: x.rank], pads[x.rank :], op.str_("mode")
    if mode == "constant":
        value = op.attr("value")
        assert isinstance(value, int | float)
        return padded(writer, op.result, x, begins, ends, float(value)) if x.dtype in FLOATS else None

    def body(b: Body) -> str:
        places = [_source(b, mode, a, x.dims[a], begins[a]) if begins[a] or ends[a] else _loop(b, a)
                  for a in range(x.rank)]  # fmt: skip
        return b.line(f"tensor.extract %{x.name}[{', '.join(places)}] : {x.text}")

    return writer.generic(op.result, [], writer.empty(op.out.dims, x.dtype), "p" * x.rank, body)


def _loop(b: Body, axis: int) -> str:
    return b.line(f"linalg.index {axis} : index")


def _source(b: Body, mode: str, axis: int, size: int, begin: int) -> str:
    """Index in x of the current position along ``axis``: mirrored, clamped, or modulo ``size``."""

    def two(name: str, left: str, right: str) -> str:
        return b.line(f"arith.{name} {left}, {right} : index")

    def magnitude(value: str) -> str:
        return two("maxsi", value, two("subi", b.index(0), value))

    at = two("subi", _loop(b, axis), b.index(begin))
    last = b.index(size - 1)
    if mode == "edge":
        return two("minsi", two("maxsi", at, b.index(0)), last)
    if mode == "reflect":
        return two("subi", last, magnitude(two("subi", last, magnitude(at))))
    whole = b.index(size)
    return two("remsi", two("addi", two("remsi", at, whole), whole), whole)
