"""Affine views: what slice, transpose, reshape and expand of a plain value read, as an offset and one step per axis.

A chain of such operations moves nothing by itself: a kernel that takes steps for its operands reads through it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from compiler_kernels.ir.graph import Op, TensorType

MOVES: Final = frozenset({"slice", "transpose", "reshape", "expand"})


@dataclass(frozen=True, slots=True)
class View:
    """Element ``i`` of the viewed value is ``source[offset + sum(i[a] * steps[a])]``; steps in elements."""

    source: str
    offset: int
    dims: tuple[int, ...]
    steps: tuple[int, ...]

    def broadcast(self, dims: Sequence[int]) -> View:
        """The same elements under NumPy broadcasting to ``dims``; ``ValueError`` where that is not possible."""
        lead = len(dims) - len(self.dims)
        if lead < 0 or any(own not in (1, size) for own, size in zip(self.dims, dims[lead:], strict=True)):
            raise ValueError(f"{self.dims} cannot be broadcast to {tuple(dims)}")
        own = [0 if d == 1 else s for d, s in zip(self.dims, self.steps, strict=True)]
        return replace(self, dims=tuple(dims), steps=(*[0] * lead, *own))


def contiguous(source: str, dims: Sequence[int]) -> View:
    """The row-major value itself."""
    return View(source, 0, tuple(dims), tuple(prod(dims[a + 1 :]) for a in range(len(dims))))


def reshaped(view: View, dims: Sequence[int]) -> View | None:
    """The row-major elements of ``view`` in another shape; ``None`` where one step per axis cannot say it."""
    old = [(d, s) for d, s in zip(view.dims, view.steps, strict=True) if d != 1]
    steps: list[int] = []
    size, step = 1, 0  # what is left of the old axis being cut; its innermost step
    for d in reversed(tuple(dims)):
        if d == 1:
            steps.append(0)
            continue
        left = d
        first = None
        while left > 1:
            if size == 1:
                if not old:
                    return None
                size, step = old.pop()
                while old and size < left and old[-1][1] == step * size:
                    size *= old.pop()[0]
            if first is None:
                first = step
            if size % left == 0:
                size //= left
                step *= left
                left = 1
            else:
                return None
        steps.append(first or 0)
    if old or size != 1:
        return None
    return replace(view, dims=tuple(dims), steps=tuple(reversed(steps)))


def moved(view: View, op: Op) -> View | None:
    """The view after ``op``, one of ``MOVES``; ``None`` where it is not affine."""
    dims = op.out.dims
    if op.kind == "transpose":
        perm = op.ints("perm")
        return replace(view, dims=dims, steps=tuple(view.steps[p] for p in perm))
    if op.kind == "slice":
        starts, jumps = op.ints("starts"), op.ints("steps")
        offset = view.offset + sum(a * s for a, s in zip(starts, view.steps, strict=True))
        return replace(
            view, offset=offset, dims=dims, steps=tuple(j * s for j, s in zip(jumps, view.steps, strict=True))
        )
    if op.kind == "expand":
        return view.broadcast(dims)
    return reshaped(view, dims)


def views_of(ops: Iterable[Op], types: Mapping[str, TensorType]) -> dict[str, View]:
    """Views of every plain value in ``types`` and of everything ``ops`` derive from them by affine moves."""
    found = {name: contiguous(name, t.dims) for name, t in types.items() if not t.layout}
    for op in ops:
        found.pop(op.result, None)
        if op.kind in MOVES and op.operands[0] in found:
            view = moved(found[op.operands[0]], op)
            if view is not None:
                found[op.result] = view
    return found


def written_view(ops: Sequence[Op], dims: Sequence[int]) -> View | None:
    """Where the elements of a value of shape ``dims`` land in ``y`` after ``ops`` (transposes and reshapes only)."""
    if not ops:
        return contiguous("y", dims)
    view: View | None = contiguous("y", ops[-1].out.dims)
    shapes = [tuple(dims), *(op.out.dims for op in ops[:-1])]
    for op, before in zip(reversed(ops), reversed(shapes), strict=True):
        if view is None or op.kind not in ("transpose", "reshape"):
            return None
        if op.kind == "transpose":
            perm = op.ints("perm")
            steps = [0] * len(perm)
            for place, axis in enumerate(perm):
                steps[axis] = view.steps[place]
            view = replace(view, dims=before, steps=tuple(steps))
        else:
            view = reshaped(view, before)
    return view


def joined_axes(dims: Sequence[int], views: Sequence[View]) -> tuple[list[int], list[list[int]]]:
    """Axes with adjacent ones joined wherever every view allows it, and their steps in each view."""
    size: list[int] = []
    steps: list[list[int]] = [[] for _ in views]
    for axis, count in enumerate(dims):
        if count == 1:
            continue
        here = [v.steps[axis] for v in views]
        if size and all(s[-1] == h * count for s, h in zip(steps, here, strict=True)):
            size[-1] *= count
            for s, h in zip(steps, here, strict=True):
                s[-1] = h
            continue
        size.append(count)
        for s, h in zip(steps, here, strict=True):
            s.append(h)
    return size, steps
