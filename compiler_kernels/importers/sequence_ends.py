"""Sequence lengths of recurrent operators as places: which steps count, and where a sequence in reverse lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler_kernels.importers.context import Array, Context, Tensor, constant
from compiler_kernels.importers.indexing import iota, whole


@dataclass(frozen=True, slots=True)
class Ends:
    """``counts``, bool (T, B, 1): whether a step counts. ``mirror``, int64 (B, T, 1): the step that stands at each
    place when a sequence is reversed. ``final``, int64 (B, 1): the last step that counts, or 0."""

    counts: Tensor
    mirror: Tensor
    final: Tensor

    def cut(self, ctx: Context, states: Tensor) -> Tensor:
        """``states`` (T, B, H) with +0 behind the end of each sequence."""
        return ctx.emit("where", [self.counts, states, ctx.scalar(0.0, states.type.dtype)])

    def mirrored(self, ctx: Context, x: Tensor) -> Tensor:
        """``x`` (T, B, N) with the steps of each sequence in reverse order; those behind its end stay."""
        by_row = ctx.emit("gather_nd", [ctx.transpose(x, (1, 0, 2)), self.mirror], {"batch_dims": 1})
        return ctx.transpose(by_row, (1, 0, 2))

    def last(self, ctx: Context, states: Tensor) -> Tensor:
        """The state (1, B, H) of the last step that counts; of a sequence without steps the first, which is +0."""
        _, batch, hidden = states.shape
        by_row = ctx.emit("gather_nd", [ctx.transpose(states, (1, 0, 2)), self.final], {"batch_dims": 1})
        return ctx.reshape(by_row, (1, batch, hidden))


def sequence_ends(ctx: Context, index: int, time: int, batch: int) -> Ends | None:
    """Input ``index``, a length per batch entry; ``None`` where it is absent or every sequence has all steps.

    A constant length outside 0 to ``time`` is invalid; one known at run time only is taken as the nearest inside.
    """
    found = ctx.optional(index)
    if found is None:
        return None
    if found.rank != 1 or found.shape[0] != batch:
        ctx.at.invalid(f"has sequence lengths of shape {list(found.shape)} for a batch of {batch}")
    if found.const is not None:
        lengths = [int(v) for v in found.const]
        if any(not 0 <= v <= time for v in lengths):
            ctx.at.invalid(f"has the sequence lengths {lengths} for {time} steps")
        if all(v == time for v in lengths):
            return None
        return _known(np.array(lengths, dtype=np.int64)[:, None], time)
    inside = ctx.emit("min", [ctx.emit("max", [ctx.cast(found, "int64"), whole([0])]), whole([time])])
    ends, steps = ctx.reshape(inside, (batch, 1)), iota(time)
    counts, last = ctx.emit("less", [steps, ends]), ctx.emit("sub", [ends, whole([1])])
    mirror = ctx.emit("where", [counts, ctx.emit("sub", [last, steps]), steps])
    by_step = ctx.reshape(ctx.transpose(counts, (1, 0)), (time, batch, 1))
    return Ends(by_step, ctx.reshape(mirror, (batch, time, 1)), ctx.emit("max", [last, whole([0])]))


def _known(lengths: Array, time: int) -> Ends:
    """The same of constant lengths (B, 1)."""
    steps = np.arange(time)
    counts = steps < lengths
    mirror = np.where(counts, lengths - 1 - steps, steps)
    return Ends(constant(counts.T[..., None]), constant(mirror[..., None]), constant(np.maximum(lengths - 1, 0)))
