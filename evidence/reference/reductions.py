"""Reductions over any axes and of every element type (docs/arithmetic.md, section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode
from evidence.reference.order import LANES, RADIX, SUM_LEAF, first_max, first_min, select_lanes, select_positions
from evidence.reference.typed import divide


def front(x: Array, axes: tuple[int, ...]) -> Array:
    """``axes`` flattened row-major into a new axis 0."""
    rest = [a for a in range(x.ndim) if a not in axes]
    count = math.prod(x.shape[a] for a in axes)
    return x.transpose(*axes, *rest).reshape(count, *(x.shape[a] for a in rest))


def in_lanes(node: RefNode, rank: int, axes: tuple[int, ...]) -> bool:
    """Whether a reduction runs in 16 lanes: trailing axes together, unless it is the mean of a feature map."""
    if node.op == "reduce_mean" and rank >= 4 and axes == tuple(range(2, rank)):
        return False
    return axes == tuple(range(rank - len(axes), rank))


def _product_positions(values: Array) -> Array:
    """Axis 0: leaves of 64 as chains from 1, then nodes of 8 from left to right."""
    level = [values[k : k + SUM_LEAF] for k in range(0, len(values), SUM_LEAF)]
    nodes = [_chain(leaf, np.ones(values.shape[1:], values.dtype)) for leaf in level]
    while len(nodes) > 1:
        nodes = [_chain(nodes[k + 1 : k + RADIX], nodes[k]) for k in range(0, len(nodes), RADIX)]
    return nodes[0] if nodes else np.ones(values.shape[1:], values.dtype)


def _chain(values: Any, acc: Array) -> Array:
    for value in values:
        acc = acc * value
    return acc


def _product_lanes(values: Array) -> Array:
    """Axis 0 in 16 lanes, then lanes 8, 4, 2, 1 apart."""
    lanes = [_product_positions(values[j::LANES]) for j in range(LANES)]
    width = LANES
    while width > 1:
        width //= 2
        lanes = [lanes[j] * lanes[j + width] for j in range(width)]
    return lanes[0]


def _exact(node: RefNode, values: Array) -> Array:
    """Integers wrap in their type; of bool there is only a maximum and a minimum."""
    kind = node.op.removeprefix("reduce_")
    if kind in ("max", "min"):
        return np.asarray(values.max(axis=0) if kind == "max" else values.min(axis=0))
    function = np.multiply if kind == "prod" else np.add
    total = np.asarray(function.reduce(values, axis=0, dtype=values.dtype))
    return divide(total, np.full_like(total, len(values))) if kind == "mean" else total


def reduce(ar: Arithmetic, node: RefNode, x: Array) -> Array:
    """``reduce_sum``, ``reduce_mean``, ``reduce_prod``, ``reduce_max``, ``reduce_min`` over ``axes``."""
    axes = tuple(int(a) for a in node.attrs["axes"])
    values, lanes = front(x, axes), in_lanes(node, x.ndim, axes)
    with np.errstate(all="ignore"):
        if x.dtype.kind != "f":
            result = _exact(node, values)
        elif node.op == "reduce_prod":
            result = _product_lanes(values) if lanes else _product_positions(values)
        elif node.op in ("reduce_sum", "reduce_mean"):
            result = ar.sum_lanes(np.moveaxis(values, 0, -1)) if lanes else ar.sum_positions(values)
            result = result / x.dtype.type(len(values)) if node.op == "reduce_mean" else result
        else:
            select, absent = (first_max, -math.inf) if node.op == "reduce_max" else (first_min, math.inf)
            in_order = np.moveaxis(values, 0, -1) if lanes else values
            result = (select_lanes if lanes else select_positions)(in_order, select, absent)
    return np.asarray(result).reshape(node.shape)


REDUCTIONS: dict[str, Callable[..., Array]] = {f"reduce_{kind}": reduce for kind in "sum mean prod max min".split()}
