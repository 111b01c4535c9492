"""Resize and Upsample whose scales or sizes are only known at run time: compiled for what the declared shape says.

Scales are taken to be the exact ratios of the declared sizes; sizes under a policy that keeps the aspect ratio to be
such that one axis decides. The engine refuses everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, floor, lcm

import numpy as np

from compiler_kernels.importers import resizing
from compiler_kernels.importers.algebra import axis_of
from compiler_kernels.importers.context import Context, Tensor, constant
from compiler_kernels.importers.node import f32
from compiler_kernels.importers.runtime_values import Check, checked, declared_sizes, runtime, undetermined

Importer = Callable[[Context], None]


def steered(importer: Importer) -> Importer:
    """``importer`` with the value the declared shape determines in the place of run-time scales or sizes."""

    def run(ctx: Context) -> None:
        scales, sizes = (1, 0) if ctx.at.version < 11 else (2, 3)
        index = next((i for i in (scales, sizes) if i and runtime(ctx, i) is not None), 0)
        if not index:
            importer(ctx)
            return
        x, given = ctx.tensor(0), ctx.tensor(index)
        what = "scales" if index == scales else "sizes"
        out = declared_sizes(ctx, index, f"its {what}")
        axes = [axis_of(ctx, a, x.rank) for a in ctx.at.optional_ints("axes") or range(x.rank)]
        if len(out) != x.rank or given.type.count != len(axes) or 0 in (*x.shape, *out):
            ctx.at.invalid(f"has {given.type.count} {what} that turn {list(x.shape)} into {list(out)}")
        if what == "scales":
            wanted = [f32(out[a] / x.shape[a]) for a in axes]
            check: Check = lambda y: checked(ctx, y, index, what, wanted)  # noqa: E731
            value = np.array(wanted, dtype=np.float32)
        else:
            chosen, check = _sizes(ctx, x, given, index, axes, out)
            value = np.array(chosen, dtype=np.int64)
        name = ctx.at.inputs[index]
        ctx.tensors[name] = constant(value, name)
        try:
            importer(ctx)
        finally:
            ctx.tensors[name] = given
        ctx.bind(check(ctx.tensors[ctx.at.outputs[0]]))

    return run


def _sizes(
    ctx: Context, x: Tensor, given: Tensor, index: int, axes: Sequence[int], out: Sequence[int]
) -> tuple[list[int], Check]:
    """Sizes to compile for. ``stretch`` takes the sizes as they are; else the smallest or largest ratio of all axes
    decides, and any sizes with that ratio mean the same."""
    policy = ctx.at.str_("keep_aspect_ratio_policy", "stretch")
    plain = [out[a] for a in axes]
    if policy == "stretch":
        return plain, lambda y: checked(ctx, y, index, "sizes", plain)
    ratios = [Fraction(out[a], x.shape[a]) for a in axes]
    fitting = [r for r in ratios if all(floor(r * x.shape[a] + Fraction(1, 2)) == out[a] for a in axes)]
    if not fitting:
        ctx.at.unsupported(undetermined(ctx, index, "its sizes"))
    ratio, smallest = fitting[0], policy == "not_larger"
    common = lcm(*(x.shape[a] for a in axes))

    def check(y: Tensor) -> Tensor:
        factors = constant(np.array([common // x.shape[a] for a in axes], dtype=np.int64))
        scaled = ctx.emit("mul", [ctx.cast(given, "int64"), factors])
        kind = "reduce_min" if smallest else "reduce_max"
        decides = ctx.emit(kind, [scaled], {"axes": (0,), "keepdims": True})
        return checked(ctx, y, index, "sizes", [int(ratio * common)], steering=decides)

    exact = [ratio * x.shape[a] for a in axes]
    return [ceil(v) if smallest else max(1, floor(v)) for v in exact], check


IMPORTERS: dict[str, Importer] = {op: steered(importer) for op, importer in resizing.IMPORTERS.items()}
