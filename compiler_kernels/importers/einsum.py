"""Einsum as diagonals, transposes, reshapes and matrix products, two operands at a time from left to right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from compiler_kernels.importers.context import Context, Tensor


@dataclass(frozen=True)
class Labelled:
    """A tensor with one label per axis, all different."""

    x: Tensor
    labels: str

    def size(self, label: str) -> int:
        return self.x.shape[self.labels.index(label)]


def _terms(ctx: Context) -> tuple[list[str], str]:
    """Labels of every operand and of the result; an ellipsis becomes capital-free private labels, innermost last."""
    equation = "".join(ctx.at.str_("equation", "").split())
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ctx.at.inputs):
        ctx.at.invalid(f"has the equation {equation!r} for {len(ctx.at.inputs)} operands")
    spread = 0
    found: list[str] = []
    for index, term in enumerate(terms):
        rank = ctx.tensor(index).rank
        extra = rank - len(term.replace("...", ""))
        if term.count("...") > 1 or extra < 0 or (extra and "..." not in term):
            ctx.at.invalid(f"has the term {term!r} in {equation!r} for an operand of rank {rank}")
        if "..." in term:
            spread = max(spread, extra)
        found.append(term.replace("...", _private(extra)))
    if arrow:
        result = right.replace("...", _private(spread))
    else:
        names = "".join(found)
        once = sorted(n for n in set(names) if names.count(n) == 1 and n.isalpha())
        result = _private(spread) + "".join(once)
    letters = set("".join(found))
    plain = [n for n in letters | set(result) if not (n.isascii() and n.isalpha()) and not "0" <= n <= "9"]
    if plain or not set(result) <= letters or len(set(result)) != len(result):
        ctx.at.invalid(f"has the equation {equation!r}, which is not one of an einsum")
    return found, result


def _private(count: int) -> str:
    """Labels of the last ``count`` axes of an ellipsis: digits, counted from the innermost."""
    return "".join(str(d) for d in reversed(range(count)))


def _diagonal(ctx: Context, x: Tensor, labels: str) -> Labelled:
    """A label that occurs twice: the elements where both axes have the same index."""
    while len(set(labels)) != len(labels):
        label = next(n for n in labels if labels.count(n) > 1)
        a = labels.index(label)
        b = labels.index(label, a + 1)
        size = x.shape[a]
        if x.shape[b] != size:
            ctx.at.invalid(f"takes the diagonal of axes of {size} and {x.shape[b]} elements")
        perm = [a, b, *(i for i in range(x.rank) if i not in (a, b))]
        y = ctx.transpose(x, perm)
        rest = y.shape[2:]
        flat = ctx.reshape(y, (size * size, *rest))
        starts, steps = [0] * flat.rank, [size + 1, *[1] * len(rest)]
        x = ctx.slice(flat, starts, steps, (size, *rest))
        labels = label + "".join(n for i, n in enumerate(labels) if i not in (a, b))
    return Labelled(x, labels)


def _arranged(ctx: Context, item: Labelled, labels: str) -> Tensor:
    """The axes in the order of ``labels``; a label it lacks becomes an axis of one."""
    own = [n for n in labels if n in item.labels]
    y = ctx.transpose(item.x, [item.labels.index(n) for n in own])
    return ctx.reshape(y, [item.size(n) if n in item.labels else 1 for n in labels])


def _summed(ctx: Context, item: Labelled, kept: str) -> Labelled:
    """Labels that nothing needs any more, summed together, moved behind the others."""
    gone = "".join(n for n in item.labels if n not in kept)
    if not gone:
        return item
    left = "".join(n for n in item.labels if n in kept)
    y = _arranged(ctx, item, left + gone)
    axes = tuple(range(len(left), y.rank))
    return Labelled(ctx.emit("reduce_sum", [y], {"axes": axes, "keepdims": False}), left)


def _product(ctx: Context, a: Labelled, b: Labelled, kept: str) -> Labelled:
    """Batch, rows, columns and summed labels of one matrix product; an axis of one element broadcasts."""
    a = _summed(ctx, a, kept + b.labels)
    b = _summed(ctx, b, kept + a.labels)

    def wide(item: Labelled, label: str) -> bool:
        return label in item.labels and item.size(label) != 1

    labels = a.labels + "".join(n for n in b.labels if n not in a.labels)
    both = [n for n in labels if wide(a, n) and wide(b, n)]
    for n in both:
        if a.size(n) != b.size(n):
            ctx.at.invalid(f"gives the label {n!r} the sizes {a.size(n)} and {b.size(n)}")
    inner = "".join(n for n in both if n not in kept)
    batch = "".join(n for n in both if n in kept)
    rows = "".join(n for n in labels if wide(a, n) and n not in both)
    columns = "".join(n for n in labels if wide(b, n) and n not in both)
    ones = "".join(n for n in labels if n in kept and not wide(a, n) and not wide(b, n))
    lost = "".join(n for n in labels if n not in kept and n not in inner)
    if any(n in rows + columns for n in lost):  # a summed label that one operand broadcasts: sum it there first
        broadcast = "".join(n for n in lost if n in rows + columns)
        a = _summed(ctx, _without_ones(ctx, a, broadcast), kept + b.labels.translate(_removing(broadcast)))
        b = _summed(ctx, _without_ones(ctx, b, broadcast), kept + a.labels.translate(_removing(broadcast)))
        return _product(ctx, a, b, kept)

    def count(item: Labelled, names: str) -> int:
        return prod(item.size(n) for n in names)

    sizes = [count(a, batch), count(a, rows), count(a, inner), count(b, columns)]
    left = ctx.reshape(_arranged(ctx, _narrow(ctx, a, batch + rows + inner), batch + rows + inner), sizes[:3])
    right = ctx.reshape(
        _arranged(ctx, _narrow(ctx, b, batch + inner + columns), batch + inner + columns), (sizes[0], *sizes[2:])
    )
    y = ctx.emit("matmul", [left, right]) if inner else ctx.emit("mul", [left, right])
    shape = [a.size(n) for n in batch + rows] + [b.size(n) for n in columns] + [1] * len(ones)
    return Labelled(ctx.reshape(y, shape), batch + rows + columns + ones)


def _removing(names: str) -> dict[int, None]:
    return {ord(n): None for n in names}


def _without_ones(ctx: Context, item: Labelled, names: str) -> Labelled:
    """Axes of one element among ``names`` dropped."""
    left = "".join(n for n in item.labels if not (n in names and item.size(n) == 1))
    return Labelled(ctx.reshape(item.x, [item.size(n) for n in left]), left)


def _narrow(ctx: Context, item: Labelled, kept: str) -> Labelled:
    """Axes of one element that are not among ``kept`` dropped."""
    return _without_ones(ctx, item, "".join(n for n in item.labels if n not in kept))


def einsum(ctx: Context) -> None:
    """Diagonals, then pairs of operands from left to right, then what is left to sum, then the order of the result."""
    terms, result = _terms(ctx)
    items = [_diagonal(ctx, ctx.wide(i), term) for i, term in enumerate(terms)]
    if any(t.x.type.dtype not in ("float32", "float64") for t in items) and len(items) > 1:
        ctx.at.unsupported(f"multiplies {items[0].x.type.dtype} tensors; floating-point ones are compiled")
    total = items[0]
    for index, item in enumerate(items[1:], 1):
        later = "".join(t.labels for t in items[index + 1 :])
        total = _product(ctx, total, item, result + later)
    total = _summed(ctx, total, result)
    ctx.bind(ctx.narrow(_arranged(ctx, total, result), ctx.tensor(0)))


IMPORTERS: dict[str, Callable[[Context], None]] = {"Einsum": einsum}
