"""Shape-like inputs that are only known at run time: axes, shapes, sizes, counts.

Where the result type that the model declares determines such an input, the graph is compiled for that value, and the
engine compares it at every inference (L0 operations ``checked`` and ``by_axes``) and refuses another one. An importer
asks :func:`runtime` whether an input is of this kind, takes the declared sizes from :func:`declared_sizes`, and passes
every result through :func:`checked` before it binds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from compiler_kernels.importers.context import Context, Tensor
from compiler_kernels.ir.graph import Attr

Check = Callable[[Tensor], Tensor]
"""Passes a result through the comparison that it depends on."""


def runtime(ctx: Context, index: int) -> Tensor | None:
    """Input ``index`` of the current node where it is given and its value is only known at run time."""
    found = ctx.optional(index)
    return found if found is not None and found.const is None and found.sym is None else None


def undetermined(ctx: Context, index: int, what: str, output: int = 0) -> str:
    """Why the run-time input ``index`` cannot be compiled, and the remedies; for ``ctx.at.unsupported``."""
    name = ctx.at.outputs[output] if output < len(ctx.at.outputs) else ""
    return (
        f"takes {what} from the run-time tensor {ctx.at.inputs[index]!r}, which the shape that the model declares for "
        f"{name!r} does not determine; make it an initialiser, or declare that shape in full"
    )


def declared_sizes(ctx: Context, index: int, what: str, output: int = 0) -> tuple[int, ...]:
    """The sizes that the model declares for ``output``, all known; ``UnsupportedError`` naming input and remedy
    otherwise."""
    stated = ctx.declared(output)
    if stated is None or not stated.is_static:
        ctx.at.unsupported(undetermined(ctx, index, what, output))
    return stated.dims


def ints(ctx: Context, index: int, what: str, expected: Callable[[], Sequence[int]]) -> tuple[tuple[int, ...], Check]:
    """Integers of input ``index`` and the check that results must pass.

    Of a constant: its values, and no check. Of a run-time tensor: ``expected()``, usually computed from
    :func:`declared_sizes`, for which the graph is compiled.
    """
    if runtime(ctx, index) is None:
        return ctx.const_ints(index, what), lambda y: y
    wanted = tuple(int(v) for v in expected())
    return wanted, lambda y: checked(ctx, y, index, what, wanted)


def checked(
    ctx: Context,
    y: Tensor,
    index: int,
    what: str,
    expected: Sequence[float],
    also: Sequence[Sequence[float]] = (),
    wildcard: int | None = None,
    steering: Tensor | None = None,
) -> Tensor:
    """``y``, where the run-time input ``index`` holds ``expected``; the engine refuses anything else.

    ``also`` gives further values that mean the same, per element. At most one element may be ``wildcard``. ``steering``
    stands for the input where only a part of it matters.
    """
    steering = ctx.tensor(index) if steering is None else steering
    if steering.const is not None or steering.type.count == 0:
        return y
    if len(expected) != steering.type.count:
        ctx.at.invalid(f"has {steering.type.count} values as {what} where {len(expected)} are needed")
    rows = [list(dict.fromkeys((v, *more))) for v, more in zip(expected, also or [()] * len(expected), strict=True)]
    widest = max(map(len, rows))
    allowed = tuple(v for row in rows for v in (*row, *row[:1] * (widest - len(row))))
    number = float if steering.type.dtype.startswith("float") else int
    attrs: dict[str, Attr] = {
        "expected": tuple(number(v) for v in allowed),
        "message": _message(ctx, index, what, str(list(np.asarray(expected).tolist()))),
    }
    if wildcard is not None:
        attrs["wildcard"] = number(wildcard)
    return ctx.emit("checked", [y, steering], attrs)


def _message(ctx: Context, index: int, what: str, wanted: str) -> str:
    return (
        f"input {ctx.at.inputs[index]!r} of node {ctx.at.name!r} ({ctx.at.op}) gives {what} that the engine is not "
        f"compiled for: it takes {wanted}; give that, or compile the model for another shape"
    )


def axis_sets(rank: int, count: int, fits: Callable[[tuple[int, ...]], bool]) -> list[tuple[int, ...]]:
    """Sets of ``count`` axes of a tensor of ``rank`` that fit, in lexicographic order."""
    return [axes for axes in combinations(range(rank), count) if fits(axes)]


def chosen_by_axes(
    ctx: Context, index: int, what: str, rank: int, sets: Sequence[tuple[int, ...]], values: Sequence[Tensor]
) -> Tensor:
    """The one of ``values`` whose set of axes the run-time input ``index`` names; the engine refuses other axes."""
    distinct = list(dict.fromkeys(values))
    attrs: dict[str, Attr] = {
        "masks": tuple(sum(1 << a for a in axes) for axes in sets),
        "picks": tuple(distinct.index(v) for v in values),
        "rank": rank,
        "message": _message(ctx, index, what, " or ".join(str(list(axes)) for axes in sets)),
    }
    return ctx.emit("by_axes", [ctx.tensor(index), *distinct], attrs)
