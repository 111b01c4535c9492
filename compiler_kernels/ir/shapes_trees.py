"""Result type of an ensemble of decision trees given as tables."""

from __future__ import annotations

from typing import Final

from compiler_kernels.ir.graph import TensorType
from compiler_kernels.ir.shapes import Site

AGGREGATES: Final = ("sum", "average", "min", "max")
MODES: Final = ("leq", "lt", "gte", "gt", "eq", "neq", "member")
"""Comparisons of a branch, by the number that stands for them in the table of nodes."""
NODE_FIELDS: Final = 7
"""feature, mode, next node where the comparison holds, where it does not, whether a missing value holds, and for
``member`` the first of its values and their number. A next node below zero is the leaf ``-1 - node``."""
MOST_TARGETS: Final = 4096


def tree_ensemble(site: Site) -> TensorType:
    """x (N, F), roots (T), nodes (M, fields), splits (M), leaves (L, first entry and number), targets (E), weights (E),
    members (K), base (targets): the result is (N, targets)."""
    x, targets = site.shape(0), site.int_("targets")
    if site.str_("aggregate") not in AGGREGATES:
        site.fail(f"aggregate {site.str_('aggregate')!r} is not one of {', '.join(AGGREGATES)}")
    if len(x) != 2 or not 1 <= targets <= MOST_TARGETS:
        site.fail(f"{targets} targets from x of shape {list(x)}; 1 to {MOST_TARGETS} from rows are possible")
    nodes, leaves = site.shape(2), site.shape(4)
    if len(nodes) != 2 or nodes[1] != NODE_FIELDS or site.shape(3) != (nodes[0],):
        site.fail(f"nodes of shape {list(nodes)} with splits of shape {list(site.shape(3))}")
    if len(leaves) != 2 or leaves[1] != 2 or site.shape(5) != site.shape(6) or site.shape(8) != (targets,):
        site.fail(f"leaves of shape {list(leaves)} with {list(site.shape(5))} targets and {list(site.shape(8))} bases")
    return site.result((x[0], targets))
