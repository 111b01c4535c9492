"""What moves, selects and compares: movement, maxima, pooling of maxima, comparisons, rounding to integers, indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from evidence.certificate import fixed
from evidence.certificate.ball import Ball, BallArithmetic, joined
from evidence.certificate.fixed import Array, Fixed, raised
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.graph import RefNode, storage
from evidence.reference.interpreter import OPERATORS
from evidence.reference.pooling import windows
from evidence.reference.reductions import front

_ANY = ARITHMETICS["ca1"]
Value = Ball | Array
"""A tensor: balls, or exactly known integers and truth values."""


def unknown(shape: tuple[int, ...]) -> Ball:
    return Ball(Fixed(np.zeros((1, *shape)), 0), np.full(shape, np.inf))


def moved(ar: BallArithmetic, node: RefNode, operands: list[Value | None], data: Sequence[int]) -> Ball:
    """A node that only copies elements of the operands numbered in ``data``: the reference moves their numbers.

    The fill value of ``pad`` becomes one more element. Run-time indices among the other operands must be known.
    """
    places: list[Any] = list(operands)
    parts: list[Ball] = []
    count = 0
    for k in data:
        value = operands[k]
        if value is None:
            continue
        part = value if isinstance(value, Ball) else ar.number(value)
        places[k] = np.arange(count, count + part.radius.size, dtype=np.int64).reshape(part.shape)
        parts.append(part)
        count += part.radius.size
    if any(isinstance(p, Ball) for p in places):
        return unknown(node.shape)
    attrs = dict(node.attrs)
    for key in ("value", "extrapolation_value"):
        if key in attrs or (node.op == "pad" and key == "value"):
            if key == "extrapolation_value" and count >= 1 << 24:  # the reference passes it through binary32
                return unknown(node.shape)
            parts.append(ar.number(np.asarray([np.float32(attrs.get(key, 0.0))])))
            attrs[key] = count
            count += 1
    while places and places[-1] is None:
        places.pop()
    index = np.asarray(OPERATORS[node.op](_ANY, replace(node, attrs=attrs), *places))
    return joined(parts).take(index.reshape(-1)).reshape(*node.shape)


def largest(ar: BallArithmetic, x: Ball) -> Ball:
    """Maximum over axis 0."""
    while x.shape[0] > 1:  # pairs, so that the work halves each time
        n = x.shape[0]
        pairs = ar.maximum(x.take(slice(0, n - 1, 2)), x.take(slice(1, n, 2)))
        x = pairs if n % 2 == 0 else _stacked(ar, pairs, x.take(slice(n - 1, n)))
    return x.take(0)


def _stacked(ar: BallArithmetic, a: Ball, b: Ball) -> Ball:
    return joined([a, b]).reshape(a.shape[0] + b.shape[0], *a.shape[1:])


def to_front(x: Ball, axes: tuple[int, ...]) -> Ball:
    """``axes`` flattened row-major into a new axis 0."""
    return x.mapped(lambda v: front(v, axes))


def max_pool(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    """Padding is absent: another element of the window stands in; a window of padding alone is unknown (-inf)."""
    numbers = np.arange(x.radius.size, dtype=np.float64).reshape(x.shape)
    index = windows(node, numbers, -1.0).astype(np.int64)
    first = index.max(axis=0)
    pooled = largest(ar, x.reshape(-1).take(np.where(index < 0, first, index)))
    return Ball(pooled.centre, np.where(first < 0, np.inf, pooled.radius))


def global_max_pool(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    return largest(ar, to_front(x, tuple(range(2, len(x.shape))))).reshape(*node.shape)


def relu(ar: BallArithmetic, x: Ball) -> Ball:
    return ar.maximum(x, ar.fraction(0))


def clip(ar: BallArithmetic, node: RefNode, x: Ball) -> Ball:
    lo, hi = node.attrs.get("lo"), node.attrs.get("hi")
    if lo is not None and math.isfinite(lo):
        x = ar.maximum(x, ar.number(np.asarray(np.float32(lo))))
    return ar.minimum(x, ar.number(np.asarray(np.float32(hi)))) if hi is not None and math.isfinite(hi) else x


def hull(ar: BallArithmetic, a: Ball, b: Ball) -> Ball:
    """A ball around the centre of ``a`` that holds both."""
    apart = fixed.magnitude(fixed.add(a.centre, b.centre, -1.0))
    return Ball(a.centre, raised(np.maximum(a.radius, apart + b.radius)))


def branches(ar: BallArithmetic, x: Ball, below: Ball, above: Ball) -> Ball:
    """``below`` where x < 0, ``above`` otherwise; both where the ball of x reaches 0."""
    sign, sure = ar.order(x, ar.fraction(0))
    chosen, other = ar.select(sign < 0, below, above), ar.select(sign < 0, above, below)
    return Ball(chosen.centre, np.where(sure, chosen.radius, hull(ar, chosen, other).radius))


def where(ar: BallArithmetic, node: RefNode, condition: Value, x: Value, y: Value) -> Ball:
    """Both sides where the condition is not known."""
    a, b = (v if isinstance(v, Ball) else ar.number(v) for v in (x, y))
    shape = node.shape
    wide = [v.mapped(lambda w: np.broadcast_to(w, shape)) for v in _ranked(len(shape), a, b)]
    if not isinstance(condition, Ball):
        return ar.select(np.broadcast_to(condition, shape), *wide)
    truth = np.broadcast_to(fixed.to_float(condition.centre) > 0.5, shape)
    sure = np.broadcast_to(condition.radius == 0, shape)
    chosen, other = ar.select(truth, *wide), ar.select(~truth, *wide)
    return Ball(chosen.centre, np.where(sure, chosen.radius, hull(ar, chosen, other).radius))


def _ranked(rank: int, *balls: Ball) -> list[Ball]:
    return [b.reshape(*(1,) * (rank - len(b.shape)), *b.shape) for b in balls]


def truth(values: Array, sure: Array) -> Value:
    """Truth values; a ball around the likely one where some are not sure."""
    if sure.all():
        return np.asarray(values, dtype=np.bool_)
    return Ball(fixed.carried(values.astype(np.float64)[None], 0), np.where(sure, 0.0, 1.0))


COMPARISONS: dict[str, Callable[[Array], Array]] = {
    "equal": lambda s: s == 0,
    "less": lambda s: s < 0,
    "less_or_equal": lambda s: s <= 0,
    "greater": lambda s: s > 0,
    "greater_or_equal": lambda s: s >= 0,
}


def compare(ar: BallArithmetic, node: RefNode, a: Ball, b: Ball) -> Value:
    sign, sure = ar.order(a, b)
    return truth(COMPARISONS[node.op](sign), sure)


def whole(ar: BallArithmetic, x: Ball, kind: str, low: float = -(2.0**50), high: float = 2.0**50) -> Ball:
    """floor, ceil, trunc or round (half to even) of every real number in the ball, saturated to [low, high]."""
    approximate = np.clip(fixed.to_float(x.centre), low - 2, high + 2)
    function = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}[kind]
    guess = np.clip(function(approximate), low, high)
    reach = np.where(np.isfinite(x.radius), x.radius, 0.0)
    # The conversion to binary64 may have crossed a step, so the guess is corrected by exact comparison.
    for _ in range(2):
        for move in (-1.0, 1.0):
            guess = np.where(_beyond(ar, x, guess, kind, move, low, high, None), guess + move, guess)
    crossed = _beyond(ar, x, guess, kind, -1.0, low, high, reach) | _beyond(ar, x, guess, kind, 1.0, low, high, reach)
    # A function of the real line that never decreases: the results over the ball lie between those at its ends.
    width = np.where(crossed, raised(reach + 2.0), 0.0)
    bounded = high - low < 2.0**40  # saturating: whatever x is, the result is in the range
    known = np.isfinite(x.radius) & (bounded | (np.abs(approximate) < 2.0**49))
    return Ball(ar.number(guess).centre, np.where(known, width, high - low if bounded else np.inf))


def _beyond(
    ar: BallArithmetic, x: Ball, guess: Array, kind: str, move: float, low: float, high: float, reach: Array | None
) -> Array:
    """Whether the centre (with ``reach``: some number of the ball) rounds past ``guess`` in the direction ``move``."""
    step = {"floor": (0.0, 1.0), "ceil": (-1.0, 0.0), "round": (-0.5, 0.5), "trunc": (0.0, 0.0)}[kind][move > 0]
    if kind == "trunc":  # floor above 0, ceil below
        step_array = np.where(guess > 0, 0.0, -1.0) if move < 0 else np.where(guess >= 0, 1.0, 0.0)
    else:
        step_array = np.full(guess.shape, step)
    sign = fixed.signs(difference := fixed.add(x.centre, ar.number(guess + step_array).centre, -1.0)) * move
    # At the boundary itself: floor and trunc step up on it, ceil stays, an odd guess gives way to the even neighbour.
    on = {
        "floor": np.full(guess.shape, move > 0),
        "ceil": np.full(guess.shape, move < 0),
        "round": np.mod(guess, 2) != 0,
        "trunc": (guess >= 0) if move > 0 else (guess <= 0),
    }[kind]
    past = (sign > 0) | ((sign == 0) & on)
    if reach is not None:
        near = fixed.least_magnitude(difference) <= reach
        past = past | ((reach > 0) & near)
    within: Array = (guess < high) if move > 0 else (guess > low)
    return np.asarray(past & within)


def to_integer(ar: BallArithmetic, x: Ball, dtype: str, kind: str) -> Value:
    """Rounded and saturated to an integer type; an exact array where nothing is in doubt."""
    info = np.iinfo(storage(dtype))
    low, high = (float(info.min), float(info.max)) if info.bits <= 32 else (-(2.0**50), 2.0**50)
    found = whole(ar, x, kind, low, high)
    return found if found.radius.any() else np.asarray(fixed.to_float(found.centre).astype(storage(dtype)))


def quantize(ar: BallArithmetic, node: RefNode, x: Ball, scale: Ball, zero: Value | None = None) -> Value:
    """saturate(round_even(x / scale) + zero) of the exact quotient, decided without dividing where scale is known."""
    to = str(node.attrs["to"])
    info = np.iinfo(storage(to))
    if scale.exact and (fixed.signs(scale.centre) > 0).all():
        steps = _divided_whole(ar, x, scale)
    else:
        steps = whole(ar, ar.div(x, scale), "round")
    if zero is not None:
        steps = ar.add(steps, zero if isinstance(zero, Ball) else ar.number(zero))
    shifted = ar.maximum(ar.minimum(steps, ar.fraction(int(info.max))), ar.fraction(int(info.min)))
    return shifted if shifted.radius.any() else np.asarray(fixed.to_float(shifted.centre).astype(storage(to)))


def _divided_whole(ar: BallArithmetic, x: Ball, scale: Ball) -> Ball:
    """round_even(x / scale) for a known scale > 0: x is compared with (q +- 1/2) scale, so that ties are seen."""
    with np.errstate(all="ignore"):
        guess = np.clip(np.rint(fixed.to_float(x.centre) / fixed.to_float(scale.centre)), -(2.0**40), 2.0**40)
    guess = np.broadcast_to(guess, np.broadcast_shapes(x.shape, scale.shape))
    finite = np.isfinite(x.radius)
    unsure = np.zeros(guess.shape, dtype=bool)
    for final in (False, False, True):
        moves = np.zeros(guess.shape)
        for half in (-1, 1):
            edge = ar.halved(ar.mul(ar.number(2 * guess + half), scale), 1)
            sign, sure = ar.order(x, edge)
            past = (sign * half > 0) | ((sign == 0) & (np.mod(guess, 2) != 0))
            moves = np.where(past, half, moves)
            if final:
                unsure |= ~sure | past
        if not final:
            guess = guess + moves
    with np.errstate(all="ignore"):
        reach = raised(x.radius / fixed.least_magnitude(scale.centre)) + 2.0
    return Ball(ar.number(guess).centre, np.where(unsure | ~finite, np.where(finite, reach, np.inf), 0.0))


def extreme_index(ar: BallArithmetic, node: RefNode, x: Ball) -> Value:
    """arg_max and arg_min; unknown as a whole where a runner-up's ball reaches the winner's."""
    axis = int(node.attrs["axis"]) % len(x.shape)
    sign = 1.0 if node.op == "arg_max" else -1.0
    # Rank by exact comparison: convert all distinct values to their order, through the words from last to first.
    flat = np.moveaxis(x.centre.words, axis + 1, 1) * sign
    count = flat.shape[1]
    best = np.zeros(flat.shape[2:], dtype=np.int64)
    for k in range(1, count):
        held = np.take_along_axis(flat, best[None, None], axis=1)[:, 0]
        against = fixed.signs(Fixed(fixed.carried(flat[:, k] - held, x.centre.top).words, 0))
        best = np.where((against > 0) | ((against == 0) & bool(node.attrs.get("select_last", 0))), k, best)
    index = np.expand_dims(best, axis)
    winner = x.mapped(lambda v: np.take_along_axis(v, index, axis=axis))
    _, sure = ar.order(winner, x)
    places = np.arange(count).reshape([-1 if a == axis else 1 for a in range(len(x.shape))])
    settled = (sure | (places == index)).all()
    result = index if node.attrs.get("keepdims", 1) else best
    return np.asarray(result, dtype=np.int64).reshape(node.shape) if settled else unknown(node.shape)


def scalar(ar: BallArithmetic, value: Any) -> Ball:
    """A binary32 attribute."""
    return ar.fraction(Fraction(float(np.float32(value))))
