"""An ensemble of decision trees: one kernel walks the tables of nodes for every row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from compiler_kernels.ir.graph import Graph
from compiler_kernels.ir.shapes_trees import NODE_FIELDS
from compiler_kernels.targets.c.writer import Code, c_type, root_of

_COMPARISONS: Final = ("v <= split", "v < split", "v >= split", "v > split", "v == split", "v != split")


def rows(function: Graph) -> int:
    return root_of(function).out.dims[0]


def tree_ensemble(function: Graph, code: Code) -> None:
    """Item ``i`` is one row: the leaves it reaches, tree after tree, are gathered per target in binary64."""
    op = root_of(function)
    x, roots, nodes, splits, leaves, targets, weights, members, base = op.operands
    types = function.types()
    count, trees, ctype = op.int_("targets"), types[roots].count, c_type(op.out)
    how = op.str_("aggregate")
    code.add(f"const {ctype} *row = {x} + i * {types[x].dims[1]};", f"double total[{count}];", f"int reached[{count}];")
    code.add(f"for (int k = 0; k < {count}; k++) {{ total[k] = 0.0; reached[k] = 0; }}")
    with code.block(f"for (int t = 0; t < {trees}; t++)"):
        code.add(f"int n = {roots}[t];")
        with code.block("while (n >= 0)"):
            code.add(f"const int32_t *node = {nodes} + n * {NODE_FIELDS};")
            code.add(f"const {ctype} v = row[node[0]], split = {splits}[n];", "int holds = 0;")
            with code.block("switch (node[1])"):
                code.add(*(f"case {m}: holds = {text}; break;" for m, text in enumerate(_COMPARISONS)))
                code.add(f"default: for (int m = 0; m < node[6]; m++) holds |= v == {members}[node[5] + m];")
            code.add("if (v != v && node[4]) holds = 1;", "n = holds ? node[2] : node[3];")
        code.add(f"const int32_t *leaf = {leaves} + (-1 - n) * 2;")
        with code.block("for (int e = leaf[0]; e < leaf[0] + leaf[1]; e++)"):
            code.add(f"const int k = {targets}[e];", f"const double w = {weights}[e];")
            if how in ("sum", "average"):
                code.add("total[k] = total[k] + w;")
            else:
                code.add(f"if (!reached[k] || w {'<' if how == 'min' else '>'} total[k]) total[k] = w;")
            code.add("reached[k] = 1;")
    mean = f" / {trees}.0" if how == "average" else ""
    code.add(f"for (int k = 0; k < {count}; k++) y[i * {count} + k] = ({ctype})(total[k]{mean} + {base}[k]);")
    if how in ("sum", "average"):
        code.add("(void)reached;")


ROW: Final[Mapping[str, tuple[Callable[[Graph, Code], None], Callable[[Graph], int]]]] = {
    "tree_ensemble": (tree_ensemble, rows),
}
"""Emitters of a whole item, and the number of items."""
