"""Why two systems differ at one operation: what the graph and the two values themselves show, and nothing more.

Every sentence rests on a computation: the element is recomputed in candidate orders, the resize in the other coordinate
modes, and the difference is compared with the rounding bound of any order of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from evidence.reference import ReferenceError, RefNode
from evidence.reference.arithmetic import ARITHMETICS
from evidence.reference.interpreter import evaluate
from evidence.reference.rounding import fmaf

Array = npt.NDArray[Any]
SUMS: Final = frozenset({"conv", "conv_transpose", "gemm", "matmul"})
ELEMENTARY: Final = frozenset(
    "exp log erf tanh sigmoid pow gelu softplus elu hard_swish softmax log_softmax sqrt lstm gru rnn".split()
)
PURE_SUMS: Final = frozenset(
    "reduce_mean reduce_sum global_average_pool average_pool layer_normalization instance_normalization "
    "group_normalization".split()
)
_COORDINATES: Final = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
_UNIT: Final = 2.0**-24


def explain(node: RefNode, operands: Sequence[Array | None], at: Sequence[int], values: Mapping[str, Array]) -> str:
    """One sentence on the difference of ``values`` (by system name) of ``node`` at flat indices ``at``, worst first.

    ``operands`` are the node's inputs, of which both systems have equal bits.
    """
    if node.op == "resize":
        return _resize(node, operands, values)
    if node.op in SUMS:
        return _sum(node, operands, at, values)
    if node.op == "batch_normalization":
        return (
            "BatchNormalization folded into the convolution before it rounds other constants than one that is computed "
            "at run time, and x * a + b in one rounding differs from two"
        )
    if node.op in ELEMENTARY:
        return (
            f"elementary function: the systems approximate {node.op} differently; CA-1 fixes the operation sequence "
            "(docs/arithmetic-elementary.md)"
        )
    if node.op in PURE_SUMS:
        return f"order of a sum: {node.op} adds many values, and the systems add them in different orders"
    return f"{node.op} is computed differently by the two systems, although its inputs are equal"


def _resize(node: RefNode, operands: Sequence[Array | None], values: Mapping[str, Array]) -> str:
    found = {name: _mode_of(node, operands, value) for name, value in values.items()}
    said = [f"{name} computes {mode}" for name, mode in found.items() if mode]
    asked = f"the model asks for mode {node.attrs['mode']}, coordinates {node.attrs['coordinate_mode']}"
    if len(set(found.values())) == 1 and said:
        return f"resize: both follow {said[0].partition(' computes ')[2]} and differ in rounding ({asked})"
    return f"resize coordinates: {asked}; {'; '.join(said) or 'no known coordinate mode gives either result'}"


def _mode_of(node: RefNode, operands: Sequence[Array | None], value: Array) -> str:
    """The coordinate (and nearest) mode whose result is closest to ``value``, if it is close."""
    best, closest = "", np.inf
    rounding = (
        ("",) if node.attrs["mode"] != "nearest" else ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    )
    scale = float(np.max(np.abs(value), initial=1e-30))
    own = (node.attrs["coordinate_mode"], node.attrs.get("nearest_mode", ""))
    tries = sorted(product(_COORDINATES, rounding), key=lambda item: item != own)
    for mode, nearest in tries:
        changed = {**node.attrs, "coordinate_mode": mode, **({"nearest_mode": nearest} if nearest else {})}
        try:
            other = evaluate(ARITHMETICS["ca1"], replace(node, attrs=changed), list(operands))
        except (ReferenceError, ValueError, KeyError):
            continue
        distance = float(np.max(np.abs(other - value), initial=0.0)) / scale
        if distance < closest:
            best, closest = f"{mode}{' ' + nearest if nearest else ''}", distance
    return best if closest < 1e-4 else ""


def _sum(node: RefNode, operands: Sequence[Array | None], at: Sequence[int], values: Mapping[str, Array]) -> str:
    terms = element_terms(node, operands, at[0])
    if terms is None:
        return f"{node.op}: a sum of products whose order the two systems choose differently"
    x, w, bias = terms
    flat = {name: np.asarray(v, np.float32).reshape(-1) for name, v in values.items()}
    one, two = (float(v[at[0]]) for v in flat.values())
    gap = abs(one - two)
    bound = 2 * (x.size + 2) * _UNIT * float(np.sum(np.abs(x.astype(np.float64) * w)) + abs(bias))
    if not gap <= bound:
        return (
            f"the difference {gap:.3g} is larger than any order of the {x.size} products can explain ({bound:.3g}): "
            "another operand, another meaning of an attribute, or a defect"
        )
    said = []
    for name, value in flat.items():
        orders = [_orders(element_terms(node, operands, i), float(value[i])) for i in at]
        common = [order for order in orders[0] if all(order in other for other in orders)]
        if common and name != "float64":
            said.append(f"{name} is {common[0]}")
    return (
        f"order of a sum of {x.size} products, or its contraction to fused multiply-add: inside the rounding bound "
        f"({bound:.3g}); at {len(at)} elements {' and '.join(said) or 'neither is one chain'}"
    )


def element_terms(node: RefNode, operands: Sequence[Array | None], at: int) -> tuple[Array, Array, float] | None:
    """The factors ``x``, ``w`` (channel outermost) and the bias of one element of a sum of products."""
    index = np.unravel_index(at, node.shape)
    bias_of = operands[2] if len(operands) > 2 else None
    x, w = operands[0], operands[1]
    if x is None or w is None:
        return None
    if node.op == "conv":
        rank, per_group = w.ndim - 2, node.shape[1] // node.attrs["group"]
        channels = w.shape[1]
        first = int(index[1]) // per_group * channels
        xs, ws = [], []
        for c, *tap in product(range(channels), *(range(k) for k in w.shape[2:])):
            place = [
                int(index[2 + a]) * node.attrs["strides"][a]
                - node.attrs["pads"][a]
                + tap[a] * node.attrs["dilations"][a]
                for a in range(rank)
            ]
            if all(0 <= p < x.shape[2 + a] for a, p in enumerate(place)):
                xs.append(x[(index[0], first + c, *place)])
                ws.append(w[(index[1], c, *tap)])
        bias = float(bias_of[index[1]]) if bias_of is not None else 0.0
        return np.array(xs, np.float32), np.array(ws, np.float32), bias
    if node.op == "gemm" and node.attrs["alpha"] == node.attrs["beta"] == 1.0:
        row = (x.T if node.attrs["trans_a"] else x)[index[0]]
        column = (w.T if node.attrs["trans_b"] else w)[:, index[1]]
        bias = float(np.broadcast_to(bias_of, node.shape)[index]) if bias_of is not None else 0.0
        return row, column, bias
    if node.op == "matmul" and x.ndim >= 2 and w.ndim >= 2:
        lead = node.shape[:-2]
        at_all = tuple(int(i) for i in index)
        left = np.broadcast_to(x, (*lead, *x.shape[-2:]))[at_all[:-1]]
        right = np.broadcast_to(w, (*lead, *w.shape[-2:]))[at_all[:-2]][:, at_all[-1]]
        return np.asarray(left), np.asarray(right), 0.0
    return None


def _orders(terms: tuple[Array, Array, float] | None, value: float) -> list[str]:
    """The orders that give exactly ``value``."""
    if terms is None:
        return []
    wanted = np.float32(value).view(np.uint32)
    x, w, bias = terms
    return [
        n for n, candidate in _candidates(x, w, np.float32(bias)) if np.float32(candidate).view(np.uint32) == wanted
    ]


def _candidates(x: Array, w: Array, bias: np.float32) -> Iterator[tuple[str, float]]:
    """Results of the simplest orders: one chain over the products, fused or not, bias first or last."""
    with np.errstate(all="ignore"):
        for fused, first in product((True, False), (False, True)):
            total = bias if first else np.float32(0.0)
            for a, b in zip(x, w, strict=True):
                total = np.float32(fmaf(a, b, total)) if fused else np.float32(total + np.float32(a * b))
            total = total if first else np.float32(total + bias)
            how = "with fused multiply-add" if fused else "of separate products and additions"
            yield f"one chain {how}, bias {'first' if first else 'last'}", float(total)
        exact = float(np.sum(x.astype(np.float64) * w) + float(bias))
        yield "the exact sum rounded once", float(np.float32(exact))
