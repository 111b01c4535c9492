"""Ensembles of decision trees (docs/arithmetic.md, section 15)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evidence.reference.arithmetic import Arithmetic, Array
from evidence.reference.graph import RefNode

_MODES: tuple[Callable[[Array, Array], Array], ...] = (
    np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal,
)  # fmt: skip


def _leaves(x: Array, root: int, nodes: Array, splits: Array, members: Array) -> Array:
    """The leaf that each row of x reaches."""
    at = np.full(x.shape[0], root)
    while (at >= 0).any():
        for n in np.unique(at[at >= 0]):
            here = at == n
            feature, mode, holding, failing, missing, first, count = (int(v) for v in nodes[n])
            value = x[here, feature]
            if mode < len(_MODES):
                holds = _MODES[mode](value, splits[n])
            else:
                holds = (value[:, None] == members[first : first + count]).any(axis=1)
            holds = holds | (np.isnan(value) & bool(missing))
            at[here] = np.where(holds, holding, failing)
    return -1 - at


def tree_ensemble(
    ar: Arithmetic,
    node: RefNode,
    x: Array,
    roots: Array,
    nodes: Array,
    splits: Array,
    leaves: Array,
    targets: Array,
    weights: Array,
    members: Array,
    base: Array,
) -> Array:
    """Per row and target the weights of the leaves reached, trees in order, in binary64; base added; rounded once."""
    how = node.attrs["aggregate"]
    total = np.zeros(node.shape, dtype=np.float64)
    reached = np.zeros(node.shape, dtype=bool)
    for root in roots:
        for row, leaf in enumerate(_leaves(x, int(root), nodes, splits, members)):
            first, count = (int(v) for v in leaves[leaf])
            for entry in range(first, first + count):
                k, w = int(targets[entry]), np.float64(weights[entry])
                if how in ("sum", "average"):
                    total[row, k] = total[row, k] + w
                elif not reached[row, k] or (w < total[row, k] if how == "min" else w > total[row, k]):
                    total[row, k] = w
                reached[row, k] = True
    if how == "average":
        total = total / np.float64(len(roots))
    return np.asarray((total + base.astype(np.float64)).astype(x.dtype))


TREES: dict[str, Callable[..., Array]] = {"tree_ensemble": tree_ensemble}
