"""Decisions an output is put to: thresholds and the largest class, each held against what rounding may have done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from compiler_kernels.errors import UsageError
from compiler_kernels.stage import Json, as_json
from evidence.certificate.ball import Ball, BallArithmetic, distance
from evidence.certificate.fixed import Array, raised
from evidence.certificate.selection import Value

_TEXT = re.compile(r"(.+?)(?:\[([\d\s,]+)\])?\s*(>=|<=|>|<)\s*(\S+)")
_TRUE: Final = {">=": (0, 1), ">": (1,), "<=": (0, -1), "<": (-1,)}
CERTIFIED, DOUBTFUL, CHANGED = "certified", "not certified", "changed by rounding"


@dataclass(frozen=True)
class Threshold:
    """``output[index] >= value``; every element without index; ``value`` is the nearest binary64 number."""

    text: str
    output: str
    index: tuple[int, ...] | None
    operator: str
    value: float


def parse_threshold(text: str) -> Threshold:
    """``prob[0,1]>=0.5``; ``UsageError`` for anything else."""
    match = _TEXT.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        value = float(match[4])
        index = None if match[2] is None else tuple(int(n) for n in match[2].split(","))
        if not np.isfinite(value):
            raise ValueError
    except (ValueError, OverflowError):
        raise UsageError(
            f"--threshold {text!r} is not of the form OUTPUT[0,1]>=0.5: an output, an index or none, one of "
            ">=, >, <=, <, and a number"
        ) from None
    return Threshold(text.strip(), match[1].strip(), index, match[3], value)


def output_of(values: Mapping[str, Any], name: str, option: str) -> Any:
    if name not in values:
        raise UsageError(f"{option}: the engine has no output {name!r}; it has {', '.join(values)}")
    return values[name]


def place_of(threshold: Threshold, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The index, checked."""
    index = threshold.index
    if index is not None and (len(index) != len(shape) or any(i >= n for i, n in zip(index, shape, strict=True))):
        raise UsageError(
            f"--threshold {threshold.text!r}: the output {threshold.output!r} has the shape {list(shape)}; give "
            f"{len(shape)} numbers within it, or no index for every element"
        )
    return index


def judge_threshold(ar: BallArithmetic, threshold: Threshold, engine: Array, exact: Value) -> dict[str, Json]:
    """Whether the exact result surely stands on the engine's side of the threshold, for every element asked about."""
    place = place_of(threshold, engine.shape)
    ball = exact if isinstance(exact, Ball) else ar.number(exact)
    if place is not None:
        ball, engine = ball.take(place).reshape(1), np.asarray(engine[place]).reshape(1)
    with np.errstate(invalid="ignore"):
        wide = engine.astype(np.float64)
        decided = np.isin(np.sign(wide - float(threshold.value)), _TRUE[threshold.operator])
    sign, sure = ar.order(ball, ar.number(np.asarray(threshold.value)))
    exactly = np.isin(sign, _TRUE[threshold.operator])
    status = np.where(~sure | np.isnan(wide), DOUBTFUL, np.where(exactly == decided, CERTIFIED, CHANGED))
    bound = distance(ar, ball, engine)
    margin = np.abs(wide - float(threshold.value))  # a difference of two binary32 numbers, rounded once for the reader
    count = int(np.count_nonzero(status == CERTIFIED))
    entry: dict[str, Json] = {
        "kind": "threshold",
        "name": threshold.text,
        "output": threshold.output,
        "value": float(threshold.value),
        "elements": int(status.size),
        "certified": count,
        "status": CERTIFIED if count == status.size else CHANGED if (status == CHANGED).any() else DOUBTFUL,
    }
    if status.size == 0:
        return entry
    # The element to look at: the first that is not certified, else the one with the least margin over its bound.
    with np.errstate(all="ignore"):
        room = np.where(bound > 0, margin / bound, np.inf)
    flat = status.reshape(-1)
    worst = int(np.flatnonzero(flat != CERTIFIED)[0]) if count < status.size else int(np.argmin(room.reshape(-1)))
    at = np.unravel_index(worst, engine.shape)
    entry |= {
        "index": as_json([int(i) for i in (place if place is not None else at)]),
        "engine": float(wide[at]),
        "decision": bool(decided[at]),
        "margin": float(margin[at]),
        "bound": float(bound[at]),
    }
    return entry


def judge_largest(ar: BallArithmetic, name: str, engine: Array, exact: Value) -> dict[str, Json]:
    """Whether the largest class (last axis; of equals the first) of every row is surely the exact result's too.

    The margin is the engine's distance between winner and runner-up, the bound the sum of both their bounds.
    """
    if engine.ndim == 0 or engine.shape[-1] < 2:
        raise UsageError(
            f"--argmax {name}: the output has the shape {list(engine.shape)}; at least two classes are needed"
        )
    ball = exact if isinstance(exact, Ball) else ar.number(exact)
    rows = engine.reshape(-1, engine.shape[-1]).astype(np.float64)
    balls = ball.reshape(*rows.shape)
    winner = np.argmax(rows, axis=1)
    best = balls.mapped(lambda v: np.take_along_axis(v, winner[:, None], axis=1))
    sign, sure = ar.order(best, balls)
    places = np.arange(rows.shape[1])
    self_ = places == winner[:, None]
    wins = (sign > 0) | ((sign == 0) & (places >= winner[:, None]))
    settled = (sure | self_).all(axis=1) & np.isfinite(rows).all(axis=1)
    lost = (sure & ~wins & ~self_).any(axis=1)
    status = np.where(lost, CHANGED, np.where(settled, CERTIFIED, DOUBTFUL))
    bounds = distance(ar, balls, engine.reshape(rows.shape))
    second = np.argmax(np.where(self_, -np.inf, rows), axis=1)
    r = np.arange(len(rows))
    margin = rows[r, winner] - rows[r, second]
    bound = raised(bounds[r, winner] + bounds[r, second])
    count = int(np.count_nonzero(status == CERTIFIED))
    entry: dict[str, Json] = {
        "kind": "argmax",
        "name": name,
        "output": name,
        "elements": int(status.size),
        "certified": count,
        "status": CERTIFIED if count == status.size else CHANGED if lost.any() else DOUBTFUL,
    }
    if status.size:
        with np.errstate(all="ignore"):
            room = np.where(bound > 0, margin / bound, np.inf)
        worst = int(np.flatnonzero(status != CERTIFIED)[0]) if count < status.size else int(np.argmin(room))
        entry |= {
            "index": as_json([int(i) for i in np.unravel_index(worst, engine.shape[:-1])]),
            "class": int(winner[worst]),
            "runner_up": int(second[worst]),
            "margin": float(margin[worst]),
            "bound": float(bound[worst]),
        }
    return entry


__all__ = ["CERTIFIED", "CHANGED", "DOUBTFUL", "Threshold", "judge_largest", "judge_threshold", "parse_threshold"]
